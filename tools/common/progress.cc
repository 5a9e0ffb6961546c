#include "tools/common/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "tools/common/output.h"

namespace gradring::tools {
namespace {

constexpr int kWidth = 40;

}  // namespace

ProgressBar::ProgressBar(std::string what, Shows shows)
    : what_(std::move(what)), shows_(shows), shown_(isatty(STDERR_FILENO) == 1) {}

ProgressBar::~ProgressBar() {
  if (shown_ && !told_.empty()) put_err("\r\x1b[K");
}

void ProgressBar::show(uint64_t done, uint64_t all) {
  const int percent = all == 0 ? 100 : static_cast<int>(std::min(done, all) * 100 / all);
  const std::string told = shows_ == Shows::kPercent ? fmt::format("{:3} %", percent)
                                                     : fmt::format("{} / {}", done, all);
  if (!shown_ || told == told_) return;
  told_ = told;
  const int filled = percent * kWidth / 100;
  put_err(fmt::format("\r{} [{:#<{}}{:.<{}}] {}", what_, "", filled, "", kWidth - filled, told));
  std::fflush(stderr);
}

}  // namespace gradring::tools
