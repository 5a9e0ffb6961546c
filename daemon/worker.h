#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace gradring::daemon {

// A thread for what takes long, as a driver does that pins memory: one thing after the other, in
// the order in which they were asked for. Any thread may ask. There is no thread before somebody
// does.
class Worker {
 public:
  Worker() = default;
  ~Worker() { end(); }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  void put(std::function<void()> work);
  // Whether all that was asked is done in time.
  bool rests_within(std::chrono::milliseconds time);
  // Waits for what was asked. From then on whoever asks does it himself, as where there can be no
  // thread.
  void end();

 private:
  bool has_thread();
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> works_;
  bool works_on_one_ = false;
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace gradring::daemon
