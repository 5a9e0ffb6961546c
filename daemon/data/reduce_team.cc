#include "daemon/data/reduce_team.h"

#include <sched.h>

#include "daemon/clock.h"
#include "daemon/look_on.h"

namespace gradring::daemon {
namespace {

// Trainers share the processors.
constexpr uint32_t kPausesPerYield = 32;

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

uint32_t parts_in(uint64_t left) { return static_cast<uint32_t>(left); }

}  // namespace

ReduceTeam::ReduceTeam(uint32_t helpers) {
  for (uint32_t i = 0; i < helpers; ++i) threads_.emplace_back([this] { help(); });
}

ReduceTeam::~ReduceTeam() {
  over_.store(true);
  bell_.fetch_add(1);
  bell_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ReduceTeam::run(uint32_t parts, Work work, void* context, bool wake) {
  if (threads_.empty() || parts < 2) {
    for (uint32_t part = 0; part < parts; ++part) work(context, part);
    return;
  }
  done_.store(0, std::memory_order_relaxed);
  parts_.store(parts, std::memory_order_relaxed);
  work_.store(work, std::memory_order_relaxed);
  context_.store(context, std::memory_order_relaxed);
  const uint64_t number = (left_.load(std::memory_order_relaxed) >> 32) + 1;
  // Sequentially consistent, as is the look at `asleep_`: either a helper that goes to sleep sees
  // this, or it is seen to sleep.
  left_.store(number << 32 | parts);
  if (wake && asleep_.load() > 0) {
    bell_.fetch_add(1);
    bell_.notify_all();
  }
  while (take_part()) {
  }
  for (uint32_t turns = 1; done_.load(std::memory_order_acquire) != parts; ++turns) {
    pause();
    if (turns % kPausesPerYield == 0) sched_yield();
  }
}

bool ReduceTeam::take_part() {
  uint64_t left = left_.load(std::memory_order_acquire);
  while (parts_in(left) > 0) {
    const uint32_t part = parts_.load(std::memory_order_relaxed) - parts_in(left);
    const Work work = work_.load(std::memory_order_relaxed);
    void* const context = context_.load(std::memory_order_relaxed);
    // Where this succeeds, the part was there until now, so what was read is of the same work.
    if (!left_.compare_exchange_weak(left, left - 1, std::memory_order_acq_rel,
                                     std::memory_order_acquire)) {
      continue;
    }
    work(context, part);
    done_.fetch_add(1, std::memory_order_release);
    return true;
  }
  return false;
}

void ReduceTeam::help() {
  pthread_setname_np(pthread_self(), "gr-reduce");
  LookOn look_on;
  look_on.worked(monotonic_now());
  for (uint32_t turns = 1; !over_.load(std::memory_order_relaxed); ++turns) {
    if (take_part()) {
      look_on.worked(monotonic_now());
      continue;
    }
    pause();
    if (turns % kPausesPerYield != 0) continue;
    sched_yield();
    if (look_on.goes_on(monotonic_now())) continue;
    const uint32_t rung = bell_.load();
    asleep_.fetch_add(1);
    if (parts_in(left_.load()) == 0 && !over_.load()) bell_.wait(rung);
    asleep_.fetch_sub(1);
  }
}

}  // namespace gradring::daemon
