#pragma once

#include <cstdio>
#include <cstdlib>
#include <thread>

namespace gradring::daemon {

// Belongs to a piece of state that one thread owns; its functions call check() first. A violation
// is a bug of ours and stops the process, in production too: what it would corrupt is somebody's
// training.
class ThreadOwner {
 public:
  // The calling thread is the owner from now on.
  void adopt() { owner_ = std::this_thread::get_id(); }
  void check() const {
    if (std::this_thread::get_id() == owner_) return;
    std::fputs("gradringd: state was touched by a thread that does not own it\n", stderr);
    std::abort();
  }

 private:
  std::thread::id owner_ = std::this_thread::get_id();
};

}  // namespace gradring::daemon
