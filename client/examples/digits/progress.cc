#include "client/examples/digits/progress.h"

#include <fmt/format.h>

namespace digits {
namespace {

constexpr std::chrono::milliseconds kRedraw{100};
constexpr std::chrono::seconds kNewLine{1};
constexpr size_t kBarWidth = 30;

}  // namespace

std::string progress_line(const Step& step, const Recipe& recipe) {
  return fmt::format("step {:>5}/{}  epoch {:>3}/{}  loss {:.4f}", step.number + 1, step.total,
                     step.epoch + 1, recipe.epochs, step.loss);
}

std::string progress_bar(size_t done, size_t total, size_t width) {
  const size_t filled = total == 0 ? width : width * std::min(done, total) / total;
  std::string bar = "[" + std::string(filled, '#') + std::string(width - filled, ' ') + "]";
  if (filled < width) bar[1 + filled] = '>';
  return bar;
}

void Progress::show(const Step& step, const Recipe& recipe) {
  const bool last_step = step.number + 1 == step.total;
  const auto now = Clock::now();
  if (!last_step && now - last_ < (terminal_ ? Clock::duration(kRedraw) : kNewLine)) return;
  last_ = now;
  if (terminal_) {
    fmt::print(out_, "\r{} {}\x1b[K", progress_bar(step.number + 1, step.total, kBarWidth),
               progress_line(step, recipe));
    drawn_ = true;
  } else {
    fmt::print(out_, "{}\n", progress_line(step, recipe));
  }
  std::fflush(out_);
}

void Progress::end() {
  if (drawn_) fmt::print(out_, "\n");
  drawn_ = false;
}

}  // namespace digits
