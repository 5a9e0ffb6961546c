#include "client/src/session/reader.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>

namespace gradring::client {

Reader::Reader(Source& source) : source_(source), wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

void Reader::take_in() {
  looked_ = Clock::now();
  if (source_.take_in()) wake_all();
}

void Reader::take_ends() {
  if (source_.take_ends()) wake_all();
}

void Reader::wake_all() {
  if (followers_ > 0) changed_.notify_all();
  if (reading_) {
    // Fails only if the counter is full, and then it is readable anyway.
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(wake_.get(), &one, sizeof(one));
  }
}

void Reader::lead(std::unique_lock<std::mutex>& lock, TimePoint deadline) {
  reading_ = true;
  const std::shared_ptr<Rings> rings = source_.rings();
  if (rings) {
    const TimePoint until = std::min(deadline, source_.alarm());
    lock.unlock();
    const bool found = rings->look_on(until);
    lock.lock();
    reading_ = !found;
    if (found) return;
  }
  // What came before the sleep does not end it: the sign of it may have been consumed.
  looked_ = Clock::now();
  if (source_.take_in()) {
    reading_ = false;
    return wake_all();
  }
  const short room = source_.attach_full() ? POLLOUT : 0;
  std::array<pollfd, 4> fds = {{{source_.control_fd(), POLLIN, 0},
                                {source_.attach_fd(), static_cast<short>(POLLIN | room), 0},
                                {wake_.get(), POLLIN, 0},
                                {rings ? rings->bell() : -1, POLLIN, 0}}};
  const TimePoint until = std::min(deadline, source_.alarm());
  lock.unlock();
  if (!rings || rings->rest()) {
    const timespec left = until == kNever ? timespec{} : time_left(until);
    // Whatever ends the sleep, a signal included, the caller looks at everything again.
    ::ppoll(fds.data(), fds.size(), until == kNever ? nullptr : &left, nullptr);
    if (rings) rings->rise((fds[3].revents & POLLIN) != 0);
  }
  lock.lock();
  reading_ = false;
  if ((fds[2].revents & POLLIN) == 0) return;  // what was written since ends the next sleep at once
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t drained = ::read(wake_.get(), &count, sizeof(count));
}

void Reader::follow(std::unique_lock<std::mutex>& lock, TimePoint deadline) {
  ++followers_;
  if (deadline == kNever) {
    changed_.wait(lock);
  } else {
    changed_.wait_until(lock, deadline);
  }
  --followers_;
}

void Reader::hand_over() {
  if (!reading_ && followers_ > 0) changed_.notify_one();
}

}  // namespace gradring::client
