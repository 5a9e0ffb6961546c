#pragma once

#include <nanobind/nanobind.h>

#include <chrono>
#include <future>
#include <thread>
#include <utility>

namespace gradring::python {

// How long a signal, such as Ctrl-C, waits for being seen.
inline constexpr std::chrono::milliseconds kSignalsEvery{100};

inline void handle_signals() {
  if (PyErr_CheckSignals() != 0) throw nanobind::python_error();
}

// Calls wait(milliseconds) until it is true or the time is over (-1: never), without the
// interpreter's lock, and looks for signals in between.
template <class Wait>
bool wait_with_signals(int64_t timeout_ms, Wait wait) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::milliseconds(timeout_ms);
  for (;;) {
    int64_t slice = kSignalsEvery.count();
    if (timeout_ms >= 0) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now()).count();
      slice = std::clamp<int64_t>(left, 0, slice);
    }
    {
      const nanobind::gil_scoped_release unlocked;
      if (wait(slice)) return true;
    }
    handle_signals();
    if (timeout_ms >= 0 && Clock::now() >= end) return false;
  }
}

// Runs what cannot be waited for in slices on a thread of its own. After a signal that thread is
// left to itself: its result is dropped when it comes, which frees what it made.
template <class Work>
auto run_with_signals(Work work) {
  std::packaged_task<decltype(work())()> task(std::move(work));
  auto result = task.get_future();
  std::thread(std::move(task)).detach();
  wait_with_signals(-1, [&](int64_t ms) {
    return result.wait_for(std::chrono::milliseconds(ms)) == std::future_status::ready;
  });
  return result.get();
}

}  // namespace gradring::python
