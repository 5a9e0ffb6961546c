#include "client/src/fork_watch.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <vector>

namespace gradring::client {

// All watches of the process. Never destroyed: a fork may come while static objects are being
// destroyed.
class ForkRegistry {
 public:
  static ForkRegistry& get() {
    static ForkRegistry& registry = *new ForkRegistry;
    return registry;
  }

  void add(ForkWatch* watch) {
    const std::lock_guard lock(mutex_);
    watches_.push_back(watch);
  }

  void remove(ForkWatch* watch) {
    const std::lock_guard lock(mutex_);
    watches_.erase(std::remove(watches_.begin(), watches_.end(), watch), watches_.end());
  }

  uint64_t generation() const { return generation_.load(std::memory_order_relaxed); }

 private:
  ForkRegistry() {
    ::pthread_atfork([] { get().before(); }, [] { get().in_parent(); }, [] { get().in_child(); });
  }

  // The registry's mutex is taken before a watch's here and nowhere the other way round: watches
  // come and go without their mutex held.
  void before() {
    mutex_.lock();
    for (ForkWatch* watch : watches_) watch->mutex_.lock();
  }

  void in_parent() {
    for (ForkWatch* watch : watches_) watch->mutex_.unlock();
    mutex_.unlock();
  }

  void in_child() {
    generation_.fetch_add(1, std::memory_order_relaxed);
    for (ForkWatch* watch : watches_) {
      watch->mutex_.unlock();
      watch->in_child_();
    }
    watches_.clear();
    mutex_.unlock();
  }

  std::mutex mutex_;
  std::vector<ForkWatch*> watches_;
  std::atomic<uint64_t> generation_{0};  // forks between the first process and this one
};

ForkWatch::ForkWatch(std::mutex& mutex, std::function<void()> in_child)
    : mutex_(mutex),
      in_child_(std::move(in_child)),
      pid_(::getpid()),
      generation_(ForkRegistry::get().generation()) {
  ForkRegistry::get().add(this);
}

ForkWatch::~ForkWatch() { ForkRegistry::get().remove(this); }

bool ForkWatch::forked() const {
  return generation_ != ForkRegistry::get().generation() || pid_ != ::getpid();
}

}  // namespace gradring::client
