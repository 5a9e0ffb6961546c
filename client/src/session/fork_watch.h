#pragma once

#include <cstdint>
#include <functional>
#include <mutex>

namespace gradring::client {

// Stands by while the process forks (a DataLoader worker, a subprocess). The mutex is held across
// the fork, so what it guards is whole in the child; there `in_child` runs at once, with the mutex
// free, and may only close descriptors and the like.
//
// Every other thread is gone in the child, together with whatever it held: a condition variable
// that one of them slept on can not even be destroyed. So an owner that has forked() leaves its
// locks, condition variables and ZeroMQ sockets where they are, for good.
class ForkWatch {
 public:
  ForkWatch(std::mutex& mutex, std::function<void()> in_child);
  ~ForkWatch();
  ForkWatch(const ForkWatch&) = delete;
  ForkWatch& operator=(const ForkWatch&) = delete;

  // Whether this is another process than the one that made the watch, also in children of a bare
  // clone, which runs no fork handlers.
  bool forked() const;

 private:
  friend class ForkRegistry;

  std::mutex& mutex_;
  const std::function<void()> in_child_;
  const uint64_t generation_;
};

}  // namespace gradring::client
