#include "client/src/session/fork_watch.h"

#include <pthread.h>
#include <sys/mman.h>
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

  // Whether this is the process that the watches were made in, as far as the kernel shows by a page
  // that it clears in every child: asking for the pid is a system call.
  bool same_process() const { return mark_ != nullptr ? *mark_ == kHere : pid_ == ::getpid(); }
  // A child that no handler ran in makes watches of its own.
  void settle() {
    if (same_process()) return;
    generation_.fetch_add(1, std::memory_order_relaxed);
    set_mark();
  }

 private:
  static constexpr uint8_t kHere = 1;

  ForkRegistry() {
    constexpr size_t kPage = 4096;  // at least; the kernel takes whole ones
    void* const page =
        ::mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page != MAP_FAILED && ::madvise(page, kPage, MADV_WIPEONFORK) == 0) {
      mark_ = static_cast<volatile uint8_t*>(page);
    }
    set_mark();
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

  void set_mark() {
    if (mark_ != nullptr) *mark_ = kHere;
    pid_ = ::getpid();
  }

  void in_child() {
    set_mark();
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
  volatile uint8_t* mark_ = nullptr;
  std::atomic<pid_t> pid_{0};
};

ForkWatch::ForkWatch(std::mutex& mutex, std::function<void()> in_child)
    : mutex_(mutex), in_child_(std::move(in_child)), generation_([] {
        ForkRegistry::get().settle();
        return ForkRegistry::get().generation();
      }()) {
  ForkRegistry::get().add(this);
}

ForkWatch::~ForkWatch() { ForkRegistry::get().remove(this); }

bool ForkWatch::forked() const {
  const ForkRegistry& registry = ForkRegistry::get();
  return generation_ != registry.generation() || !registry.same_process();
}

}  // namespace gradring::client
