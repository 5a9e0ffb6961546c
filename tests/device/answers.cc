#include "tests/device/answers.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <stdexcept>

namespace gradring::device {

Spread spread_of(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const size_t last = values.size() - 1;
  return {values[last / 2], values[last * 99 / 100]};
}

std::vector<double> time_each(int runs, const std::function<void()>& act) {
  constexpr int kWarmUp = 5;
  for (int i = 0; i < kWarmUp; ++i) act();
  std::vector<double> times;
  for (int i = 0; i < runs; ++i) {
    const auto start = std::chrono::steady_clock::now();
    act();
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
    times.push_back(took.count());
  }
  return times;
}

void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  throw std::runtime_error(std::string(what) + ": " + cudaGetErrorName(error) + ", " +
                           cudaGetErrorString(error));
}

void say(const std::string& what, const Spread& us) {
  std::printf("  %-52s median %10.1f us   p99 %10.1f us\n", what.c_str(), us.median, us.p99);
  std::fflush(stdout);
}

void say(const std::string& what, double value, const char* unit) {
  std::printf("  %-52s        %10.2f %s\n", what.c_str(), value, unit);
  std::fflush(stdout);
}

void say_in_words(const std::string& what, const std::string& answer) {
  std::printf("  %-52s        %s\n", what.c_str(), answer.c_str());
  std::fflush(stdout);
}

std::string size_in_words(size_t bytes) {
  if (bytes >= 1 << 20) return std::to_string(bytes >> 20) + " MiB";
  return std::to_string(bytes >> 10) + " KiB";
}

}  // namespace gradring::device
