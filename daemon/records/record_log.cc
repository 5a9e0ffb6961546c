#include "daemon/records/record_log.h"

#include <fcntl.h>
#include <google/protobuf/message_lite.h>

#include <atomic>
#include <cstring>
#include <string>
#include <utility>

namespace gradring::daemon {
namespace {

constexpr uint64_t kMagic = 0x31676f6c72677267;  // "grgrlog1"
constexpr uint64_t kPage = 4096;
constexpr uint64_t kLongGrown = 1 << 20;
constexpr uint32_t kNone = 2;  // no half counts: the list has ended

Status broken(const std::string& what) {
  return {Code::kUnavailable, "the records of the last daemon cannot be used: " + what};
}

}  // namespace

// All of it is read by another process only when this one is no more, so the order in which this
// thread writes is all that matters; the compiler must keep to it.
struct RecordLog::Head {
  uint64_t magic;
  uint64_t half_bytes;
  std::atomic<uint32_t> counts;  // which half
};
struct RecordLog::Half {
  std::atomic<uint64_t> used;  // bytes of whole entries
};

RecordLog::RecordLog(transport::Segment memory)
    : memory_(std::move(memory)), half_bytes_((memory_.memory().size() - kPage) / 2) {}

RecordLog::Head* RecordLog::head() const {
  return reinterpret_cast<Head*>(memory_.memory().data());
}
RecordLog::Half* RecordLog::half(uint32_t index) const {
  return reinterpret_cast<Half*>(memory_.memory().data() + kPage + index * half_bytes_);
}
std::byte* RecordLog::entries(uint32_t index) const {
  return memory_.memory().data() + kPage + index * half_bytes_ + sizeof(Half);
}

tl::expected<RecordLog, Status> RecordLog::create(uint64_t half_bytes) {
  half_bytes = (half_bytes + kPage - 1) / kPage * kPage;
  auto memory = transport::Segment::create(kPage + 2 * half_bytes);
  if (!memory) return tl::unexpected(memory.error());
  RecordLog log(std::move(*memory));
  log.head()->half_bytes = half_bytes;
  log.head()->magic = kMagic;
  return log;
}

tl::expected<RecordLog, Status> RecordLog::adopt(int fd) {
  auto memory = transport::Segment::adopt(fd);
  if (!memory) return tl::unexpected(memory.error());
  if (memory->memory().size() < 3 * kPage) return tl::unexpected(broken("it is too small"));
  RecordLog log(std::move(*memory));
  if (log.head()->magic != kMagic || log.head()->half_bytes != log.half_bytes_) {
    return tl::unexpected(broken("it was written by another program"));
  }
  log.writing_ = log.head()->counts.load();
  if (log.writing_ >= kNone) return log;
  log.began_with_ = log.half(log.writing_)->used.load();
  if (log.began_with_ > log.half_bytes_ - sizeof(Half)) {
    return tl::unexpected(broken("it is damaged"));
  }
  return log;
}

bool RecordLog::append(const google::protobuf::MessageLite& entry) {
  if (writing_ >= kNone) return false;
  Half* const to = half(writing_);
  const uint64_t used = to->used.load(std::memory_order_relaxed);
  const uint64_t size = entry.ByteSizeLong();
  const uint64_t room = half_bytes_ - sizeof(Half) - used;
  if (size > UINT32_MAX || sizeof(uint32_t) + size > room) {
    writing_ = kNone;
    head()->counts.store(kNone);
    return false;
  }
  std::byte* const at = entries(writing_) + used;
  const auto length = static_cast<uint32_t>(size);
  std::memcpy(at, &length, sizeof length);
  entry.SerializeWithCachedSizesToArray(reinterpret_cast<uint8_t*>(at + sizeof length));
  to->used.store(used + sizeof length + size, std::memory_order_release);
  return true;
}

bool RecordLog::long_grown() const {
  if (writing_ >= kNone) return false;
  const uint64_t used = half(writing_)->used.load(std::memory_order_relaxed);
  // One that says so much that half is full at once would else be written anew with each entry.
  const uint64_t room = half_bytes_ - began_with_;
  return used > 2 * began_with_ + kLongGrown || used > began_with_ + room / 2;
}

void RecordLog::begin_anew() {
  if (writing_ >= kNone) return;
  writing_ = 1 - head()->counts.load();
  half(writing_)->used.store(0);
}

void RecordLog::publish() {
  if (writing_ >= kNone) return;
  const uint32_t old = head()->counts.exchange(writing_);
  began_with_ = half(writing_)->used.load();
  if (old == writing_) return;
  // Its pages go back; the next time it begins with nothing used.
  fallocate(memory_.fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
            static_cast<off_t>(kPage + old * half_bytes_), static_cast<off_t>(half_bytes_));
}

bool RecordLog::for_each(const std::function<bool(std::span<const std::byte>)>& visit) const {
  const uint32_t counts = head()->counts.load();
  if (counts >= kNone) return false;
  const uint64_t used = half(counts)->used.load();
  const std::byte* at = entries(counts);
  const std::byte* const end = at + used;
  while (at < end) {
    uint32_t length = 0;
    if (static_cast<size_t>(end - at) < sizeof length) return false;
    std::memcpy(&length, at, sizeof length);
    at += sizeof length;
    if (static_cast<size_t>(end - at) < length) return false;
    if (!visit({at, length})) return false;
    at += length;
  }
  return true;
}

}  // namespace gradring::daemon
