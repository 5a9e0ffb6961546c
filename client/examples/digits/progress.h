#pragma once

#include <chrono>
#include <cstdio>
#include <string>

#include "client/examples/digits/train.h"

namespace digits {

// "step  460/690  epoch 20/30  loss 0.0123"
std::string progress_line(const Step& step, const Recipe& recipe);
// "[#######>       ]", `width` characters between the brackets
std::string progress_bar(size_t done, size_t total, size_t width);

// Shows how far a run is: a bar that redraws itself on a terminal, else a line every second.
class Progress {
 public:
  Progress(std::FILE* out, bool terminal) : out_(out), terminal_(terminal) {}

  void show(const Step& step, const Recipe& recipe);
  // Leaves the last state of the bar standing.
  void end();

 private:
  using Clock = std::chrono::steady_clock;

  std::FILE* out_;
  bool terminal_;
  bool drawn_ = false;
  Clock::time_point last_{};
};

}  // namespace digits
