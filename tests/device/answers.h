#pragma once

#include <cuda_runtime.h>

#include <functional>
#include <string>
#include <vector>

namespace gradring::device {

// Of many runs of one thing.
struct Spread {
  double median = 0;
  double p99 = 0;
};
Spread spread_of(std::vector<double> values);

// Microseconds that each of `runs` takes, after a few that do not count.
std::vector<double> time_each(int runs, const std::function<void()>& act);

// Throws std::runtime_error with the name of what failed and CUDA's words.
void check(cudaError_t error, const char* what);

// A line of the answer: "fold of 2 x 16 MiB, idle  median 21.4 us  p99 25.0 us".
void say(const std::string& what, const Spread& us);
void say(const std::string& what, double value, const char* unit);
void say_in_words(const std::string& what, const std::string& answer);

// "4 KiB", "64 MiB"
std::string size_in_words(size_t bytes);

}  // namespace gradring::device
