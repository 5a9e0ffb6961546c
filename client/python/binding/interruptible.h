#pragma once

#include <nanobind/nanobind.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <gradring/gradring.hpp>
#include <thread>
#include <utility>

#include "client/python/binding/forming.h"

namespace gradring::python {

// How long a signal, such as Ctrl-C, waits for being seen.
inline constexpr std::chrono::milliseconds kSignalsEvery{100};

inline void handle_signals() {
  if (PyErr_CheckSignals() != 0) throw nanobind::python_error();
}

// A thread that comes back for the interpreter's lock when there is no interpreter any more ends
// the process by an abort. So waits end before the interpreter does.
class Waits {
 public:
  class Inside {
   public:
    Inside() { ++inside_; }
    ~Inside() { --inside_; }
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;
  };

  static bool are_over() { return over_; }
  // Before the interpreter ends, with its lock: returns when no thread waits any more, or after a
  // second.
  static void end() {
    over_ = true;
    const nanobind::gil_scoped_release unlocked;
    for (auto left = 10 * kSignalsEvery; inside_ > 0 && left.count() > 0; --left)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

 private:
  static inline std::atomic<bool> over_{false};
  static inline std::atomic<int> inside_{0};
};

// Calls wait(milliseconds) until it is true or the time is over (-1: never), without the
// interpreter's lock, and in between looks for signals and calls between(milliseconds that are
// left) with it. Throws Error when the interpreter ends.
template <class Wait, class Between>
bool wait_with_signals(int64_t timeout_ms, Wait wait, Between between) {
  using Clock = std::chrono::steady_clock;
  const Waits::Inside inside;
  const auto end = Clock::now() + std::chrono::milliseconds(timeout_ms);
  for (;;) {
    int64_t slice = Waits::are_over() ? 0 : kSignalsEvery.count();
    if (timeout_ms >= 0) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now()).count();
      slice = std::clamp<int64_t>(left, 0, slice);
    }
    {
      const nanobind::gil_scoped_release unlocked;
      if (wait(slice)) return true;
    }
    handle_signals();
    if (Waits::are_over()) {
      throw Error(GRADRING_ERR_UNAVAILABLE, "the process ended before what it waited for did");
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now()).count();
    between(timeout_ms >= 0 ? std::max<int64_t>(left, 0) : -1);
    if (timeout_ms >= 0 && left <= 0) return false;
  }
}

template <class Wait>
bool wait_with_signals(int64_t timeout_ms, Wait wait) {
  return wait_with_signals(timeout_ms, wait, [](int64_t) {});
}

// Runs what cannot be waited for in slices on a thread of its own. After a signal that thread is
// left to itself: its result is dropped when it comes, which frees what it made.
template <class Work>
auto run_with_signals(Work work) {
  std::packaged_task<decltype(work())()> task(std::move(work));
  auto result = task.get_future();
  std::thread(std::move(task)).detach();
  wait_with_signals(
      -1,
      [&](int64_t ms) {
        return result.wait_for(std::chrono::milliseconds(ms)) == std::future_status::ready;
      },
      [](int64_t) { tell_of_forming(); });
  return result.get();
}

}  // namespace gradring::python
