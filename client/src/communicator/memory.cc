#include <fmt/format.h>

#include <atomic>
#include <memory>
#include <utility>

#include "client/src/communicator/communicator.h"
#include "client/src/limits.h"
#include "client/src/refusal.h"

// gradring_alloc, gradring_register and their counterparts.
namespace gradring::client {
namespace {

// What is aligned there is aligned in the segment, too, which begins with a page. No allocation of
// a GPU begins between two such boundaries, so that it has what lies before.
uint64_t lead_of(const void* memory) {
  constexpr uint64_t kAlign = 64;
  return reinterpret_cast<uintptr_t>(memory) % kAlign;
}

}  // namespace

tl::expected<Segment, Status> Communicator::make_segment(std::unique_lock<std::mutex>& lock,
                                                         uint64_t bytes) {
  // Groups that were made from a communicator have memory of it after it has left its job, too.
  if (Status refused = has_left_ ? session_.why_over() : refusal(); !refused.ok()) {
    return tl::unexpected(refused);
  }
  auto packet = session_.allocate(lock, bytes, Clock::now() + kCallTime);
  if (!packet) return tl::unexpected(packet.error());
  const wire::SegmentReady& ready = packet->reply.segment();
  if (ready.bytes() < bytes) {
    return tl::unexpected(Status(
        Code::kInternal,
        fmt::format("asked for {} bytes, the daemon made a segment of {}", bytes, ready.bytes())));
  }
  if (packet->cut) {
    static_cast<void>(free_segment(lock, ready.segment()));
    return tl::unexpected(Status(
        Code::kResourceExhausted,
        fmt::format("this process has no file descriptors left, and {} bytes of memory take one: "
                    "raise its limit (ulimit -n), or close what is not needed any more",
                    bytes)));
  }
  // Making gigabytes of pages present takes its time, which is not the others'.
  lock.unlock();
  if (packet->fds.empty()) packet->fds.emplace_back();  // refused in words, as any other
  auto mapping = Mapping::of(packet->fds.front(), ready.bytes());
  lock.lock();
  if (!mapping) {
    static_cast<void>(free_segment(lock, ready.segment()));
    return tl::unexpected(mapping.error());
  }
  std::byte* data = mapping->data();
  return Segment{ready.segment(), data, bytes, 0,
                 std::make_shared<const Mapping>(std::move(*mapping))};
}

Segment& Communicator::enter(Segment segment) {
  if (segment.lent_by_borrowers == nullptr) {
    segment.lent_by_borrowers = std::make_shared<std::atomic<uint64_t>>(0);
  }
  Segment& entered = segments_.insert(std::move(segment));
  commons_->offer({0, entered.base, entered.bytes, entered.lead, entered.mapping, entered.gpu,
                   entered.lent_by_borrowers, session_.id(), session_.secret(), entered.id,
                   entered.opened});
  return entered;
}

// What an op names may be another communicator's of the family: a look at the maps, and once for
// each segment a word with the daemon.
Status Communicator::borrow_for(std::unique_lock<std::mutex>& lock, const gradring_op& op) {
  give_back_withdrawn(lock);
  give_back_shares(lock, Clock::now() + kGpuFreeTime);
  let_leave(lock);
  for (const void* memory : {op.input, static_cast<const void*>(op.output)}) {
    if (memory == nullptr || segments_.around(memory) != nullptr) continue;
    auto common = commons_->around(memory);
    if (!common) continue;  // if it is to be read or written, that will be refused
    Status borrowed = borrow(lock, *common);
    drop(lock, std::move(common));  // its owner may have freed it meanwhile
    if (!borrowed.ok()) return borrowed;
  }
  return {};
}

Status Communicator::borrow(std::unique_lock<std::mutex>& lock, const Common& common) {
  if (!session_.lends()) {
    return {Code::kIncompatible,
            "the daemon is too old to let one communicator use another's memory; allocate it "
            "with this one"};
  }
  wire::BorrowSegment request;
  request.set_session(common.session);
  request.set_secret(common.secret);
  request.set_segment(common.segment);
  const auto packet = session_.borrow(lock, request, Clock::now() + kCallTime);
  if (!packet) return packet.error();
  const uint64_t id = packet->reply.segment().segment();
  // Another thread was as quick.
  if (segments_.around(common.base) != nullptr) return free_segment(lock, id);
  Segment borrowed{id, common.base, common.bytes, common.lead, common.mapping};
  borrowed.gpu = common.gpu;
  borrowed.borrowed = common.number;
  borrowed.lent_by_borrowers = common.lent_by_borrowers;
  borrowed.opened = common.opened;
  segments_.insert(std::move(borrowed));
  return {};
}

// What its owner has freed must not be found here when the address is used again.
void Communicator::give_back_withdrawn(std::unique_lock<std::mutex>& lock) {
  const uint64_t withdrawals = commons_->withdrawals();
  if (withdrawals == withdrawals_seen_) return;
  const auto withdrawn = [&](const Segment& segment) {
    return segment.borrowed != 0 && !commons_->offers(segment.borrowed);
  };
  const auto free_to_go = [&](const Segment& segment) {
    return segment.lent == 0 && withdrawn(segment);
  };
  while (Segment* segment = segments_.any(free_to_go)) {
    Segment taken = segments_.take(*segment);
    // Whatever the daemon says to it, nobody names it any more.
    static_cast<void>(free_segment(lock, taken.id));
    leaving_.push_back({nullptr, std::move(taken)});
  }
  if (segments_.any(withdrawn) == nullptr) withdrawals_seen_ = withdrawals;
}

tl::expected<void*, Status> Communicator::alloc(uint64_t bytes) {
  if (bytes == 0) return tl::unexpected(invalid("bytes is 0"));
  Inside inside(*this);
  const auto memory = allocate(inside.lock(), bytes);
  if (!memory) return tl::unexpected(memory.error());
  return *memory;
}

// It may come to lie where memory was that somebody had registered, and has unmapped since. What
// another of the family had registered is let go of first; of what was ours we were not told.
tl::expected<std::byte*, Status> Communicator::allocate(std::unique_lock<std::mutex>& lock,
                                                        uint64_t bytes) {
  auto segment = make_segment(lock, bytes);
  if (!segment) return tl::unexpected(segment.error());
  give_back_withdrawn(lock);
  std::byte* const base = segment->base;
  if (!segments_.touches(base, bytes)) return enter(std::move(*segment)).base;
  static_cast<void>(free_segment(lock, segment->id));
  drop(lock, std::move(*segment));
  return tl::unexpected(invalid(
      fmt::format("memory at {} was freed while it was registered, and {} bytes were to lie there: "
                  "give it to gradring_unregister first, then free it",
                  fmt::ptr(base), bytes)));
}

Status Communicator::register_memory(void* memory, uint64_t bytes) {
  if (memory == nullptr || bytes == 0) return invalid("memory is NULL or bytes is 0");
  if (bytes > UINTPTR_MAX - reinterpret_cast<uintptr_t>(memory)) {
    return invalid(fmt::format("{} bytes at {} pass the end of the address space", bytes, memory));
  }
  Status overlaps = invalid(fmt::format(
      "{} bytes at {} overlap memory that is registered or allocated already", bytes, memory));
  Inside inside(*this);
  give_back_withdrawn(inside.lock());
  let_leave(inside.lock());
  if (segments_.touches(memory, bytes)) return overlaps;
  const bool on_a_gpu = GpuMemory::is_of_a_gpu(memory);
  const uint64_t lead = lead_of(memory), whole = lead + bytes;
  const void* const first = static_cast<const std::byte*>(memory) - lead;
  auto segment = make_segment(inside.lock(), on_a_gpu ? GpuMemory::shadow_bytes(whole) : whole);
  if (!segment) return segment.error();
  if (on_a_gpu) {
    Status followed = follow_gpu(inside.lock(), first, whole, &*segment);
    if (!followed.ok()) return followed;
    segment->opened = let_daemon_open(inside.lock(), *segment, first, whole);
  }
  segment->base = static_cast<std::byte*>(memory);
  segment->bytes = bytes;
  segment->lead = lead;
  // Asked again, because another thread may have registered it in the meantime.
  if (!segments_.touches(memory, bytes)) {
    enter(std::move(*segment));
    return {};
  }
  static_cast<void>(free_segment(inside.lock(), segment->id));
  drop(inside.lock(), std::move(*segment));
  return overlaps;
}

// A segment that is to follow this memory; if it cannot, it is given back. Pages are pinned, which
// takes its time.
Status Communicator::follow_gpu(std::unique_lock<std::mutex>& lock, const void* memory,
                                uint64_t bytes, Segment* segment) {
  lock.unlock();
  auto gpu = GpuMemory::of(memory, bytes, segment->mapping);
  lock.lock();
  if (!gpu) {
    static_cast<void>(free_segment(lock, segment->id));
    return gpu.error();
  }
  segment->gpu = std::move(*gpu);
  return {};
}

// Where it cannot, we copy what lies there, and nothing else differs.
bool Communicator::let_daemon_open(std::unique_lock<std::mutex>& lock, const Segment& segment,
                                   const void* memory, uint64_t bytes, const GpuPages* pages) {
  if (!session_.sums_on_gpus()) return false;
  auto share = share_of(lock, segment, memory, bytes, pages);
  wire::ClientMessage message;
  if (share) {
    *message.mutable_share_gpu() = std::move(*share);
  } else {
    message.mutable_share_gpu()->set_cannot(share.error().message());
  }
  message.mutable_share_gpu()->set_segment(segment.id);
  message.mutable_share_gpu()->set_bytes(bytes);
  return session_
      .call(lock, std::move(message), wire::DaemonMessage::kGpuShared, Clock::now() + kCallTime)
      .has_value();
}

// By a descriptor where it is ours, since whoever has that needs nothing else; else by CUDA's IPC.
tl::expected<wire::ShareGpuMemory, Status> Communicator::share_of(
    std::unique_lock<std::mutex>& lock, const Segment& segment, const void* memory, uint64_t bytes,
    const GpuPages* pages) {
  wire::ShareGpuMemory share;
  if (!session_.takes_gpu_descriptors()) pages = nullptr;
  lock.unlock();
  std::optional<UniqueFd> descriptor;
  if (pages != nullptr) descriptor = pages->descriptor();
  if (descriptor) {
    const auto uuid = uuid_of(*cuda_driver(), memory);
    lock.lock();
    if (!uuid) {
      return tl::unexpected(Status(Code::kUnavailable, cuda_driver()->in_words(uuid.error())));
    }
    const auto offered = session_.offer(lock, *descriptor, Clock::now() + kCallTime);
    if (!offered) return tl::unexpected(offered.error());
    share.set_gpu(uuid->data(), uuid->size());
    share.set_offered(*offered);
    return share;
  }
  const auto handle = segment.gpu->handle(memory, bytes);
  lock.lock();
  if (!handle) return tl::unexpected(handle.error());
  share.set_handle(handle->allocation.data(), handle->allocation.size());
  share.set_gpu(handle->gpu.data(), handle->gpu.size());
  share.set_offset(handle->offset);
  return share;
}

Status Communicator::free(void* memory) {
  Inside inside(*this);
  Segment* segment = segments_.at(memory);
  if (segment == nullptr || segment->registered() || segment->borrowed != 0) {
    return {Code::kNotFound,
            fmt::format("{} is not the start of memory from gradring_alloc of this communicator",
                        memory)};
  }
  return give_back(inside.lock(), *segment);
}

Status Communicator::unregister_memory(void* memory) {
  Inside inside(*this);
  Segment* segment = segments_.at(memory);
  if (segment == nullptr || !segment->registered() || segment->borrowed != 0) {
    return {Code::kNotFound, fmt::format("{} is not the start of memory given to "
                                         "gradring_register of this communicator",
                                         memory)};
  }
  return give_back(inside.lock(), *segment);
}

Status Communicator::give_back(std::unique_lock<std::mutex>& lock, Segment& segment) {
  // Also by those of groups, and of the two ranks of a send or a receive.
  const std::shared_ptr<std::atomic<uint64_t>>& others = segment.lent_by_borrowers;
  if (segment.lent > 0 || (others != nullptr && *others > 0)) {
    return invalid(fmt::format("the memory at {} is lent to requests: wait for them first",
                               fmt::ptr(segment.base)));
  }
  // Out of the map before the daemon is asked, so that no new op can name it meanwhile.
  Segment taken = segments_.take(segment);
  commons_->withdraw(session_.id(), taken.id);
  Status freed = free_segment(lock, taken.id);
  if (freed.ok()) {
    drop(lock, std::move(taken));
  } else {
    enter(std::move(taken));
  }
  return freed;
}

Status Communicator::free_segment(std::unique_lock<std::mutex>& lock, uint64_t id) {
  return free_segment(lock, id, Clock::now() + kCallTime);
}

Status Communicator::free_segment(std::unique_lock<std::mutex>& lock, uint64_t id,
                                  TimePoint deadline) {
  // The daemon frees everything with the session, and needs no word about it.
  if (session_.lost()) return {};
  wire::ClientMessage message;
  message.mutable_free()->set_segment(id);
  const auto freed = session_.call(lock, std::move(message), wire::DaemonMessage::kFreed, deadline);
  if (freed || session_.lost()) return {};
  // Unknown there: a daemon that restarted had freed it, and only its answer was lost.
  return freed.error().code() == Code::kNotFound ? Status() : freed.error();
}

}  // namespace gradring::client
