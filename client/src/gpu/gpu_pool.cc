#include "client/src/gpu/gpu_pool.h"

#include <fmt/format.h>

#include <iterator>
#include <string_view>
#include <utility>
#include <vector>

#include "client/src/limits.h"
#include "client/src/refusal.h"

namespace gradring::client {
namespace {

// What is smaller may lie beside other memory, which whoever opens it then has as well.
constexpr uint64_t kWholeBlock = uint64_t{2} << 20;
// More has no GPU, and it could not always be rounded up.
constexpr uint64_t kGpuBytesMost = uint64_t{1} << 50;

}  // namespace

tl::expected<std::shared_ptr<GpuAllocation>, Status> GpuAllocation::of(int ordinal,
                                                                       uint64_t bytes) {
  if (bytes == 0) return tl::unexpected(invalid("bytes is 0"));
  const auto none = [&](Code code, std::string_view why) {
    return tl::unexpected(
        Status(code, fmt::format("no {} bytes of memory of GPU {}: {}", bytes, ordinal, why)));
  };
  if (bytes > kGpuBytesMost) return none(Code::kResourceExhausted, "no GPU has as much");
  const CudaDriver* const driver = cuda_driver();
  if (driver == nullptr) {
    return none(Code::kUnavailable,
                "this process has not loaded NVIDIA's driver (libcuda.so.1), which gradring leaves "
                "to others; initialise CUDA first");
  }
  if (!driver->shares()) return none(Code::kUnavailable, "NVIDIA's driver is too old");
  const CudaDriver::Aside aside(*driver);
  std::shared_ptr<GpuAllocation> made(new GpuAllocation(*driver, bytes), &GpuPool::end);
  int device = 0;
  auto result = driver->get_device(&device, ordinal);
  if (result != CudaDriver::kSuccess) {
    return tl::unexpected(
        invalid(fmt::format("this process has no GPU {}: {}", ordinal, driver->in_words(result))));
  }
  result = driver->retain_primary(&made->context_, device);
  if (result == CudaDriver::kSuccess) made->device_ = device;
  if (result == CudaDriver::kSuccess) result = driver->push_context(made->context_);
  if (result == CudaDriver::kSuccess) {
    const uint64_t blocks = (bytes + kWholeBlock - 1) / kWholeBlock;
    auto pages = GpuPages::make(*driver, device, blocks * kWholeBlock);
    if (pages) made->pages_ = std::move(*pages);
    result = pages ? driver->allocate(&made->last_, 1) : pages.error();
    if (result != CudaDriver::kSuccess) made->last_ = 0;
    CudaDriver::Context ours = nullptr;
    driver->pop_context(&ours);
  }
  if (result == CudaDriver::kSuccess) return made;
  const bool full = result == CudaDriver::kOutOfMemory;
  return none(full ? Code::kResourceExhausted : Code::kUnavailable,
              full ? "it has so much no more" : driver->in_words(result));
}

// Whoever had it may have left it with work of the GPU, of which unmapping knows nothing. A driver
// waits for all of that where memory of cuMemAlloc goes, and leaves captures whole, which end where
// a context is waited for: cuCtxSynchronize.
bool GpuAllocation::give_back() {
  const CudaDriver::Aside aside(driver_);
  if (pages_ != nullptr) {
    if (driver_.push_context(context_) != CudaDriver::kSuccess) return false;
    const bool rests = last_ == 0 || driver_.free(last_) == CudaDriver::kSuccess;
    if (rests) {
      last_ = 0;
      pages_.reset();
    }
    CudaDriver::Context ours = nullptr;
    driver_.pop_context(&ours);
    if (!rests) return false;
  }
  if (device_ >= 0) driver_.release_primary(device_);
  return true;
}

void GpuPool::end(GpuAllocation* allocation) {
  std::unique_ptr<GpuAllocation> ended(allocation);
  if (!ended->give_back()) get().put_aside(std::move(ended));
}

void GpuPool::put_aside(std::unique_ptr<GpuAllocation> allocation) {
  const std::lock_guard lock(mutex_);
  allocation->behind_ = std::move(aside_);
  aside_ = std::move(allocation);
}

void GpuPool::give_back_what_is_aside() {
  std::unique_ptr<GpuAllocation> next;
  {
    const std::lock_guard lock(mutex_);
    next = std::move(aside_);
  }
  while (next != nullptr) {
    std::unique_ptr<GpuAllocation> behind = std::move(next->behind_);
    end(next.release());
    next = std::move(behind);
  }
}

// Never destroyed: what is freed while static objects are being destroyed finds it too.
GpuPool& GpuPool::get() {
  static std::atomic<GpuPool*> current{new GpuPool(nullptr)};
  GpuPool* pool = current.load();
  while (pool->watch_.forked()) {
    std::unique_ptr<GpuPool> made(new GpuPool(pool));
    if (current.compare_exchange_strong(pool, made.get())) return *made.release();
  }
  return *pool;
}

tl::expected<void*, Status> GpuPool::alloc(int ordinal, uint64_t bytes) {
  give_back_what_is_aside();
  auto made = GpuAllocation::of(ordinal, bytes);
  if (!made) return tl::unexpected(made.error());
  std::byte* const base = (*made)->data();
  const std::lock_guard lock(mutex_);
  by_base_.insert_or_assign(base, std::move(*made));
  return base;
}

Status GpuPool::free(void* memory) {
  give_back_what_is_aside();
  std::shared_ptr<GpuAllocation> taken;
  {
    const std::lock_guard lock(mutex_);
    const auto found = by_base_.find(static_cast<const std::byte*>(memory));
    if (found == by_base_.end()) {
      return {Code::kNotFound,
              fmt::format("{} is not the start of memory that gradring_gpu_alloc gave to this "
                          "process",
                          memory)};
    }
    taken = std::move(found->second);
    by_base_.erase(found);
  }
  taken->withdraw();
  ++withdrawals_;
  have_all_let_go();
  return {};
}

std::shared_ptr<const GpuAllocation> GpuPool::around(const void* memory) const {
  const auto* const address = static_cast<const std::byte*>(memory);
  const std::lock_guard lock(mutex_);
  const auto after = by_base_.upper_bound(address);
  if (after == by_base_.begin()) return nullptr;
  const auto& [base, allocation] = *std::prev(after);
  return static_cast<uint64_t>(address - base) < allocation->bytes() ? allocation : nullptr;
}

void GpuPool::enter(User* user) {
  const std::lock_guard lock(users_mutex_);
  users_.try_emplace(user, 0);
}

void GpuPool::leave(User* user) {
  std::unique_lock lock(users_mutex_);
  const auto found = users_.find(user);
  if (found == users_.end()) return;
  told_.wait(lock, [found] { return found->second == 0; });
  users_.erase(found);
}

// Nobody else's lock is held meanwhile. Those who enter now have none of what is withdrawn.
void GpuPool::have_all_let_go() {
  const TimePoint deadline = Clock::now() + kGpuFreeTime;
  std::unique_lock lock(users_mutex_);
  std::vector<User*> all;
  for (const auto& [user, calls] : users_) all.push_back(user);
  for (User* const user : all) {
    const auto found = users_.find(user);
    if (found == users_.end()) continue;
    ++found->second;
    lock.unlock();
    user->let_go(deadline);
    lock.lock();
    --found->second;
    told_.notify_all();
  }
}

}  // namespace gradring::client
