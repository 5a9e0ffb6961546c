#include <fmt/format.h>

#include "client/src/communicator.h"
#include "client/src/limits.h"

// gradring_alloc, gradring_register and their counterparts.
namespace gradring::client {
namespace {

Status invalid(std::string message) { return {Code::kInvalidArgument, std::move(message)}; }

}  // namespace

tl::expected<Segment, Status> Communicator::make_segment(std::unique_lock<std::mutex>& lock,
                                                         uint64_t bytes) {
  if (Status refused = refusal(); !refused.ok()) return tl::unexpected(refused);
  auto packet = session_.allocate(lock, bytes, Clock::now() + kCallTime);
  if (!packet) return tl::unexpected(packet.error());
  const wire::SegmentReady& ready = packet->reply.segment();
  if (ready.bytes() < bytes) {
    return tl::unexpected(Status(
        Code::kInternal,
        fmt::format("asked for {} bytes, the daemon made a segment of {}", bytes, ready.bytes())));
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
  return Segment{ready.segment(), data, bytes, std::move(*mapping)};
}

tl::expected<void*, Status> Communicator::alloc(uint64_t bytes) {
  if (bytes == 0) return tl::unexpected(invalid("bytes is 0"));
  Inside inside(*this);
  auto segment = make_segment(inside.lock(), bytes);
  if (!segment) return tl::unexpected(segment.error());
  return segments_.insert(std::move(*segment)).base;
}

Status Communicator::register_memory(void* memory, uint64_t bytes) {
  if (memory == nullptr || bytes == 0) return invalid("memory is NULL or bytes is 0");
  if (bytes > UINTPTR_MAX - reinterpret_cast<uintptr_t>(memory)) {
    return invalid(fmt::format("{} bytes at {} pass the end of the address space", bytes, memory));
  }
  Status overlaps = invalid(fmt::format(
      "{} bytes at {} overlap memory that is registered or allocated already", bytes, memory));
  Inside inside(*this);
  if (segments_.touches(memory, bytes)) return overlaps;
  auto segment = make_segment(inside.lock(), bytes);
  if (!segment) return segment.error();
  segment->base = static_cast<std::byte*>(memory);
  // Asked again, because another thread may have registered it in the meantime.
  if (!segments_.touches(memory, bytes)) {
    segments_.insert(std::move(*segment));
    return {};
  }
  static_cast<void>(free_segment(inside.lock(), segment->id));
  return overlaps;
}

Status Communicator::free(void* memory) {
  Inside inside(*this);
  Segment* segment = segments_.at(memory);
  if (segment == nullptr || segment->registered()) {
    return {Code::kNotFound,
            fmt::format("{} is not the start of memory from gradring_alloc", memory)};
  }
  return give_back(inside.lock(), *segment);
}

Status Communicator::unregister_memory(void* memory) {
  Inside inside(*this);
  Segment* segment = segments_.at(memory);
  if (segment == nullptr || !segment->registered()) {
    return {Code::kNotFound,
            fmt::format("{} is not the start of memory given to gradring_register", memory)};
  }
  return give_back(inside.lock(), *segment);
}

Status Communicator::give_back(std::unique_lock<std::mutex>& lock, Segment& segment) {
  if (segment.lent > 0) {
    return invalid(fmt::format("the memory at {} is lent to requests: wait for them first",
                               fmt::ptr(segment.base)));
  }
  // Out of the map before the daemon is asked, so that no new op can name it meanwhile.
  Segment taken = segments_.take(segment);
  Status freed = free_segment(lock, taken.id);
  if (!freed.ok()) segments_.insert(std::move(taken));
  return freed;
}

Status Communicator::free_segment(std::unique_lock<std::mutex>& lock, uint64_t id) {
  // The daemon frees everything with the session, and needs no word about it.
  if (session_.lost()) return {};
  wire::ClientMessage message;
  message.mutable_free()->set_segment(id);
  const auto freed = session_.call(lock, std::move(message), wire::DaemonMessage::kFreed,
                                   Clock::now() + kCallTime);
  if (freed || session_.lost()) return {};
  // Unknown there: a daemon that restarted had freed it, and only its answer was lost.
  return freed.error().code() == Code::kNotFound ? Status() : freed.error();
}

}  // namespace gradring::client
