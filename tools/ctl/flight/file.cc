#include "tools/ctl/flight/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <optional>

namespace gradring::tools {
namespace {

using Numbers = std::vector<uint64_t>;

FlightEvent event_at(std::span<const std::byte> ring, uint64_t index) {
  FlightEvent event;
  std::memcpy(&event, ring.data() + index * kFlightEventBytes, sizeof event);
  return event;
}

Numbers numbers_of(std::span<const std::byte> ring) {
  Numbers numbers(ring.size() / kFlightEventBytes);
  for (uint64_t i = 0; i < numbers.size(); ++i) numbers[i] = event_at(ring, i).sequence;
  return numbers;
}

// What has been written of a ring: it is written from its beginning, so behind a piece that was not
// touched there is nothing.
std::optional<std::vector<std::byte>> used_part(const FlightRingPlace& place,
                                                const ReadAt& read_at) {
  constexpr uint64_t kPieceEvents = (256 << 10) / kFlightEventBytes;
  std::vector<std::byte> bytes;
  for (uint64_t first = 0; first < place.events; first += kPieceEvents) {
    const uint64_t events = std::min(kPieceEvents, place.events - first);
    const uint64_t offset = first * kFlightEventBytes;
    bytes.resize(offset + events * kFlightEventBytes);
    const std::span<std::byte> piece = std::span(bytes).subspan(offset);
    if (!read_at(place.offset + offset, piece)) return std::nullopt;
    if (std::ranges::all_of(numbers_of(piece), [](uint64_t number) { return number == 0; })) break;
  }
  return bytes;
}

// The whole events of a ring, oldest first. The kernel copies a ring in no promised order, so what
// counts is read between two looks at the numbers: a slot that had the same one both times was not
// touched meanwhile.
std::optional<std::vector<FlightEvent>> whole_events(const FlightRingPlace& place,
                                                     const ReadAt& read_at, bool at_rest) {
  auto used = used_part(place, read_at);
  if (!used) return std::nullopt;
  std::vector<std::byte>& bytes = *used;
  const Numbers before = numbers_of(bytes);
  Numbers after = before;
  if (!at_rest) {
    std::vector<std::byte> later(bytes.size());
    std::atomic_thread_fence(std::memory_order_acquire);
    if (!read_at(place.offset, bytes)) return std::nullopt;
    std::atomic_thread_fence(std::memory_order_acquire);
    if (!read_at(place.offset, later)) return std::nullopt;
    after = numbers_of(later);
  }

  std::vector<FlightEvent> events;
  for (uint64_t i = 0; i < before.size(); ++i) {
    const FlightEvent event = event_at(bytes, i);
    const uint64_t number = event.sequence;
    const bool whole = number == before[i] && number == after[i];
    if (number != 0 && whole && (number - 1) % place.events == i) events.push_back(event);
  }
  std::ranges::sort(events, {}, &FlightEvent::sequence);
  // A ring holds the newest, so its numbers are near to one another. One that is far from most of
  // them, ahead or behind, was not written by its writer.
  const uint64_t middle = events.empty() ? 0 : events[events.size() / 2].sequence;
  std::erase_if(events, [&](const FlightEvent& event) {
    const uint64_t apart =
        event.sequence > middle ? event.sequence - middle : middle - event.sequence;
    return apart >= place.events;
  });
  return events;
}

// Puts an event and the text behind it together. Text without its event, which was overwritten, is
// nobody's.
void add_entries(const std::vector<FlightEvent>& events, uint32_t ring,
                 std::vector<FlightEntry>* entries) {
  uint64_t expected = 0;  // the number that goes on with the last entry
  std::string text;
  const auto finish = [&] {
    if (text.empty()) return;
    const size_t end = text.find('\0');
    entries->back().name = text.substr(0, end);
    if (end != std::string::npos) entries->back().words = text.substr(end + 1);
    text.clear();
  };
  for (const FlightEvent& event : events) {
    if (event.kind != FlightKind::kMore) {
      finish();
      entries->push_back({event, ring});
      expected = event.sequence + 1;
    } else if (event.sequence == expected) {
      text += text_of(event);
      ++expected;
    }
  }
  finish();
}

}  // namespace

int64_t FlightLife::last_time() const {
  return entries.empty() ? header.started : entries.back().event.time;
}

tl::expected<FlightLife, std::string> read_flight(uint64_t file_bytes, const ReadAt& read_at,
                                                  bool at_rest) {
  std::vector<std::byte> head(std::min<uint64_t>(file_bytes, kFlightHeaderBytes));
  if (!read_at(0, head)) return tl::unexpected(std::string("its header cannot be read"));
  const auto header = decode_flight_header(head, file_bytes);
  if (!header) return tl::unexpected(header.error());
  FlightLife life{*header, {}, 0};
  for (uint32_t i = 0; i < header->ring_count; ++i) {
    const auto events = whole_events(header->rings[i], read_at, at_rest);
    if (!events) return tl::unexpected(fmt::format("ring {} cannot be read", i));
    add_entries(*events, i, &life.entries);
    if (!events->empty()) life.overwritten += events->front().sequence - 1;
  }
  std::ranges::stable_sort(life.entries, {}, [](const FlightEntry& e) { return e.event.time; });
  return life;
}

tl::expected<FlightLife, Status> read_flight_file(const std::string& path) {
  const auto refuse = [&path](Code code, const std::string& what) {
    return tl::unexpected(Status(code, fmt::format("{}: {}", path, what)));
  };
  // Whatever else may lie there must not keep us waiting.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
  if (fd < 0) {
    const int error = errno;
    if (error == ENOENT) return refuse(Code::kUnavailable, "there is none");
    if (error != EACCES) return refuse(Code::kInternal, std::strerror(error));
    return refuse(
        Code::kPermissionDenied,
        fmt::format("uid {} may not read it: ask as the daemon's user or group, or as root",
                    geteuid()));
  }
  struct stat status {};
  const bool regular = fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
  const auto read_at = [fd](uint64_t offset, std::span<std::byte> to) {
    while (!to.empty()) {
      const ssize_t n = pread(fd, to.data(), to.size(), static_cast<off_t>(offset));
      if (n <= 0) return false;
      offset += static_cast<uint64_t>(n);
      to = to.subspan(static_cast<size_t>(n));
    }
    return true;
  };
  auto life = regular ? read_flight(static_cast<uint64_t>(status.st_size), read_at)
                      : tl::unexpected(std::string("it is not a file"));
  close(fd);
  if (!life) return refuse(Code::kInternal, life.error());
  return std::move(*life);
}

}  // namespace gradring::tools
