#include "tools/ctl/watch.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <thread>

#include "tools/common/output.h"

namespace gradring::tools {
namespace {

constexpr double kWatchLeast = 0.1;
constexpr double kWatchMost = 86'400;
constexpr int kInterrupted = 128 + SIGINT;

volatile sig_atomic_t last_code = kInterrupted;

// At once, also in the middle of a question that is not answered: what was answered is out already,
// and there is nothing to clean up.
void leave(int) { _exit(last_code); }

bool is_number(const std::string& word) {
  double value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  return error == std::errc() && end == word.data() + word.size();
}

}  // namespace

std::vector<std::string> with_watch_seconds(const std::vector<std::string>& words) {
  std::vector<std::string> result;
  for (size_t i = 0; i < words.size(); ++i) {
    result.push_back(words[i]);
    if (words[i] != "--watch") continue;
    const bool told = i + 1 < words.size() && is_number(words[i + 1]);
    result.back() += "=" + (told ? words[++i] : fmt::format("{}", kWatchSeconds));
  }
  return result;
}

Status fault_of_watch(double seconds) {
  if (seconds >= kWatchLeast && seconds <= kWatchMost) return {};
  return {Code::kInvalidArgument,
          fmt::format("--watch takes {} to {} seconds", kWatchLeast, kWatchMost)};
}

int watch(double seconds, const std::function<int()>& answer,
          const std::function<bool(int)>& goes_on) {
  struct sigaction action {};
  action.sa_handler = leave;
  for (const int signal : {SIGINT, SIGTERM}) sigaction(signal, &action, nullptr);
  while (true) {
    const int code = answer();
    if (!goes_on(code) || reader_has_gone()) return code;
    last_code = code;
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  }
}

}  // namespace gradring::tools
