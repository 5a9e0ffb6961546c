#include <exception>
#include <utility>

#include "client/src/communicator/communicator.h"
#include "client/src/limits.h"

// Memory of gradring_gpu_alloc, which the daemon opens where it is.
namespace gradring::client {

// Where this lies in an allocation that the daemon has open; nothing: it goes as any other memory
// of a GPU.
std::optional<Place> Communicator::shared_place(std::unique_lock<std::mutex>& lock,
                                                const void* memory, uint64_t bytes) {
  if (!opens_ || !session_.sums_on_gpus()) return std::nullopt;
  const auto allocation = GpuPool::get().around(memory);
  if (allocation == nullptr) return std::nullopt;
  const auto offset =
      static_cast<uint64_t>(static_cast<const std::byte*>(memory) - allocation->data());
  if (bytes > allocation->bytes() - offset) return std::nullopt;
  GpuShares::Share* share = shares_.find(allocation.get());
  if (share == nullptr) share = make_share(lock, allocation);
  if (share == nullptr || !share->segment) return std::nullopt;
  return Place{&*share->segment, offset};
}

// Null: the daemon cannot open such memory, or there is no session any more.
GpuShares::Share* Communicator::make_share(std::unique_lock<std::mutex>& lock,
                                           std::shared_ptr<const GpuAllocation> allocation) {
  auto made = make_shadow(lock, allocation->data(), allocation->bytes());
  if (!made && made.error().code() != Code::kResourceExhausted) return nullptr;
  if (made) {
    // Refused once is refused always: the log of the daemon says why.
    opens_ =
        let_daemon_open(lock, *made, allocation->data(), allocation->bytes(), &allocation->pages());
    made->opened = opens_;
    made->base = allocation->data();
  }
  // Entered before it is asked whether it is still there: who frees it now asks us for it.
  GpuPool::get().enter(this);
  GpuShares::Share* const others = shares_.find(allocation.get());  // of another thread
  if (others == nullptr && opens_ && !allocation->withdrawn()) {
    GpuShares::Share share{std::move(allocation), std::nullopt};
    if (made) share.segment.emplace(std::move(*made));
    return &shares_.insert(std::move(share));
  }
  if (made) {
    static_cast<void>(free_segment(lock, made->id, Clock::now() + kCallTime));
    leaving_.push_back({nullptr, std::move(*made)});
  }
  return opens_ ? shares_.find(allocation.get()) : nullptr;  // the lock was free meanwhile
}

// The daemon closes it before the GPU has it back. Where it does not say so in time it is asked
// again when somebody looks.
void Communicator::give_back_shares(std::unique_lock<std::mutex>& lock, TimePoint deadline) {
  const uint64_t withdrawals = GpuPool::get().withdrawals();
  if (withdrawals == pool_withdrawals_seen_) return;
  for (GpuShares::Share& share : shares_.take_withdrawn()) {
    if (!share.segment || free_segment(lock, share.segment->id, deadline).ok()) {
      leaving_.push_back(std::move(share));
    } else {
      shares_.insert(std::move(share));
    }
  }
  if (!shares_.any_withdrawn()) pool_withdrawals_seen_ = withdrawals;
}

void Communicator::let_go(TimePoint deadline) noexcept {
  try {
    Inside inside(*this);
    give_back_shares(inside.lock(), deadline);
    drop(inside.lock(), std::exchange(leaving_, {}));
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch)
    // For lack of memory; whoever looks next does it.
  }
}

}  // namespace gradring::client
