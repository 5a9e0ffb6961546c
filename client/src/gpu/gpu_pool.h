#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <tl/expected.hpp>

#include "client/src/clock.h"
#include "client/src/gpu/cuda_driver.h"
#include "client/src/gpu/gpu_pages.h"
#include "client/src/session/fork_watch.h"
#include "proto/status.h"

namespace gradring::client {

// Memory of a GPU that gradring_gpu_alloc gave out, which the daemon can have as well. The GPU has
// it back when nobody holds on to it any more. Thread-safe.
class GpuAllocation {
 public:
  // Of this GPU, by CUDA's number in this process.
  static tl::expected<std::shared_ptr<GpuAllocation>, Status> of(int ordinal, uint64_t bytes);
  GpuAllocation(const GpuAllocation&) = delete;
  GpuAllocation& operator=(const GpuAllocation&) = delete;

  std::byte* data() const { return pages_->data(); }
  uint64_t bytes() const { return bytes_; }  // as asked for
  const GpuPages& pages() const { return *pages_; }
  // Whoever it was given to has freed it: who still has it gives it back when no op names it.
  bool withdrawn() const { return withdrawn_.load(std::memory_order_acquire); }
  void withdraw() { withdrawn_.store(true, std::memory_order_release); }

  // To the GPU, once that has done what it has to do with it, as cudaFree does. The daemon must
  // have closed it. False: not now, and nothing has changed.
  bool give_back();

 private:
  friend class GpuPool;
  GpuAllocation(const CudaDriver& driver, uint64_t bytes) : driver_(driver), bytes_(bytes) {}

  const CudaDriver& driver_;
  const uint64_t bytes_;
  int device_ = -1;  // whose primary context we hold on to
  CudaDriver::Context context_ = nullptr;
  std::unique_ptr<const GpuPages> pages_;
  CudaDriver::Address last_ = 0;  // a byte that goes before the rest; 0: nobody has had that
  std::atomic<bool> withdrawn_{false};
  std::unique_ptr<GpuAllocation> behind_;  // where it was put aside
};

// All of it that this process has; a child that was forked off has none of its parent's.
// Thread-safe; its locks are never held while another is taken.
class GpuPool {
 public:
  // Somebody whose daemon has some of it open.
  class User {
   public:
    // Has the daemon close what is withdrawn and named by no op, and lets go of it.
    virtual void let_go(TimePoint deadline) noexcept = 0;

   protected:
    ~User() = default;
  };

  static GpuPool& get();

  tl::expected<void*, Status> alloc(int ordinal, uint64_t bytes);
  // What ops under way name goes when the last of them has been waited for; what its GPU does not
  // take back then, with a later alloc() or free(). NOT_FOUND if nothing of ours begins there.
  Status free(void* memory);

  // Where this lies; null if it is none of ours.
  std::shared_ptr<const GpuAllocation> around(const void* memory) const;
  // Changes with every free().
  uint64_t withdrawals() const { return withdrawals_.load(std::memory_order_acquire); }

  // Who enters, twice or once, is told of every free() until it leaves; leave() waits for what it
  // is just being told.
  void enter(User* user);
  void leave(User* user);

 private:
  friend class GpuAllocation;
  explicit GpuPool(const GpuPool* parents) : parents_(parents), watch_(unused_, [] {}) {}
  // Gives it back, now or later.
  static void end(GpuAllocation* allocation);
  void put_aside(std::unique_ptr<GpuAllocation> allocation);
  void give_back_what_is_aside();
  void have_all_let_go();

  const GpuPool* const parents_;  // left as it is, whoever had its locks
  std::mutex unused_;
  const ForkWatch watch_;

  mutable std::mutex mutex_;
  std::map<const std::byte*, std::shared_ptr<GpuAllocation>, std::less<>> by_base_;
  std::unique_ptr<GpuAllocation> aside_;  // what its GPU has not taken back
  std::atomic<uint64_t> withdrawals_{0};

  std::mutex users_mutex_;
  std::condition_variable told_;
  std::map<User*, int> users_;  // how often each is being told something
};

}  // namespace gradring::client
