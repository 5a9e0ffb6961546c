#pragma once

#include <cstdio>
#include <string>

#include "daemon/core/messages.h"
#include "daemon/core/report.h"
#include "daemon/core/time.h"
#include "proto/frame.h"
#include "tests/sim/scenario.h"

namespace gradring::sim {

// A line for everything that happens in a run, for people. What a line says is made up only when
// somebody reads it.
class Trace {
 public:
  void write_to(std::FILE* file) { file_ = file; }
  bool on() const { return file_ != nullptr; }

  template <typename Text>
  void line(Time now, Text text) const {
    if (on()) write(now, text());
  }

 private:
  void write(Time now, const std::string& text) const;

  std::FILE* file_ = nullptr;
};

std::string describe(const Fault& fault);
std::string describe(const core::JobMessage& message);
std::string describe(const Frame& frame);
std::string describe(const core::Report& report);
std::string describe(const core::Proposal& proposal);

}  // namespace gradring::sim
