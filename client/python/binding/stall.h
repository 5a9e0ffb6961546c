#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>

namespace gradring::python {

// How long an op has been waited for, and whether people should hear of it. One for each op; any
// thread.
class Stall {
 public:
  using Clock = std::chrono::steady_clock;
  using Seconds = std::chrono::duration<double>;

  // For the whole process: after so long a wait, and no more often; 0: never.
  static void set_patience(Seconds patience) { patience_ = patience.count(); }

  // For a wait that has not found it done. How long it is waited for by now, if this process is to
  // say so now: its ops wait for the same as a rule.
  std::optional<Seconds> to_be_told() {
    const double patience = patience_;
    if (patience <= 0) return std::nullopt;
    const Clock::rep now = Clock::now().time_since_epoch().count();
    Clock::rep since = 0;
    if (since_.compare_exchange_strong(since, now)) return std::nullopt;
    const Seconds waited = Clock::duration(now - since);
    Clock::rep told = told_;
    const bool again = told == 0 || Seconds(Clock::duration(now - told)).count() >= patience;
    if (waited.count() < patience || !again) return std::nullopt;
    if (!told_.compare_exchange_strong(told, now)) return std::nullopt;
    return waited;
  }

 private:
  static inline std::atomic<double> patience_{0};
  static inline std::atomic<Clock::rep> told_{0};
  std::atomic<Clock::rep> since_{0};  // the first such wait
};

}  // namespace gradring::python
