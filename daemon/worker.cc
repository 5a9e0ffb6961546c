#include "daemon/worker.h"

#include <system_error>
#include <utility>

namespace gradring::daemon {

void Worker::end() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

bool Worker::rests_within(std::chrono::milliseconds time) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, time, [this] { return works_.empty() && !works_on_one_; });
}

void Worker::put(std::function<void()> work) {
  std::unique_lock lock(mutex_);
  if (ends_ || !has_thread()) {
    lock.unlock();
    return work();
  }
  works_.push_back(std::move(work));
  changed_.notify_all();
}

bool Worker::has_thread() {
  if (thread_.joinable()) return true;
  try {
    thread_ = std::thread([this] { run(); });
    return true;
  } catch (const std::system_error&) {
    return false;  // there are as many as there may be
  }
}

void Worker::run() {
  pthread_setname_np(pthread_self(), "gr-memory");
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return ends_ || !works_.empty(); });
    if (works_.empty()) return;
    std::function<void()> work = std::move(works_.front());
    works_.pop_front();
    works_on_one_ = true;
    lock.unlock();
    work();
    work = nullptr;  // and what it alone has, which may take as long, keeps nobody who asks
    lock.lock();
    works_on_one_ = false;
    changed_.notify_all();
  }
}

}  // namespace gradring::daemon
