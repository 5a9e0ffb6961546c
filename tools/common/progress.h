#pragma once

#include <cstdint>
#include <string>

namespace gradring::tools {

// A bar on standard error while something takes long, where that is a terminal; else nothing.
class ProgressBar {
 public:
  enum class Shows { kPercent, kCount };  // "43 %", "3 / 7"

  explicit ProgressBar(std::string what, Shows shows = Shows::kPercent);
  ~ProgressBar();  // wipes it away
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void show(uint64_t done, uint64_t all);

 private:
  const std::string what_;
  const Shows shows_;
  const bool shown_;
  std::string told_;
};

}  // namespace gradring::tools
