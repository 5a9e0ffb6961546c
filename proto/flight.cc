#include "proto/flight.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>
#include <type_traits>

namespace gradring {

static_assert(std::endian::native == std::endian::little,
              "the file is little endian and is written as it lies in memory");
static_assert(std::is_trivially_copyable_v<FlightHeader> &&
              std::is_trivially_copyable_v<FlightEvent>);

std::string_view name_of(FlightKind kind) {
  switch (kind) {
    case FlightKind::kMore:
      return "more";
    case FlightKind::kDaemonStarted:
      return "daemon started";
    case FlightKind::kDaemonStopped:
      return "daemon stopped";
    case FlightKind::kSignal:
      return "signal";
    case FlightKind::kDraining:
      return "draining";
    case FlightKind::kStopping:
      return "stopping";
    case FlightKind::kPeerUp:
      return "peer up";
    case FlightKind::kPeerLost:
      return "peer lost";
    case FlightKind::kLaneLost:
      return "lane lost";
    case FlightKind::kJobProposed:
      return "job proposed";
    case FlightKind::kJobMember:
      return "job member";
    case FlightKind::kJobRuns:
      return "job runs";
    case FlightKind::kJobFailed:
      return "job failed";
    case FlightKind::kJobEnded:
      return "job ended";
    case FlightKind::kTrainerAttached:
      return "trainer attached";
    case FlightKind::kTrainerJoins:
      return "trainer joins";
    case FlightKind::kTrainerRefused:
      return "trainer refused";
    case FlightKind::kTrainerLeft:
      return "trainer left";
    case FlightKind::kTrainerLost:
      return "trainer lost";
    case FlightKind::kTrainerDetached:
      return "trainer detached";
    case FlightKind::kOpSubmitted:
      return "op submitted";
    case FlightKind::kReadySent:
      return "ready sent";
    case FlightKind::kReadyReceived:
      return "ready received";
    case FlightKind::kMismatchSent:
      return "mismatch sent";
    case FlightKind::kMismatchReceived:
      return "mismatch received";
    case FlightKind::kOpMoves:
      return "op moves";
    case FlightKind::kOpDone:
      return "op done";
    case FlightKind::kOpFailed:
      return "op failed";
    case FlightKind::kEngineFailed:
      return "engine failed";
    case FlightKind::kSliceStarted:
      return "slice started";
    case FlightKind::kSliceLanded:
      return "slice landed";
    case FlightKind::kSliceForwarded:
      return "slice forwarded";
    case FlightKind::kSliceDelivered:
      return "slice delivered";
    case FlightKind::kSliceAborted:
      return "slice aborted";
    case FlightKind::kOpCondemned:
      return "op condemned";
    case FlightKind::kSliceDamaged:
      return "slice damaged";
    case FlightKind::kSliceResent:
      return "slice sent again";
    case FlightKind::kGpuBegan:
      return "GPUs began";
    case FlightKind::kGpuEnded:
      return "GPUs ended";
    case FlightKind::kViewFrozen:
      return "view frozen";
    case FlightKind::kViewEntered:
      return "view entered";
  }
  return "";
}

std::string_view name_of(GpuTask task) {
  switch (task) {
    case GpuTask::kBring:
      return "bring";
    case GpuTask::kStay:
      return "stay";
    case GpuTask::kSpread:
      return "spread";
    case GpuTask::kRing:
      return "ring";
  }
  return "";
}

std::string hex(const JobPrefix& prefix) {
  JobId id{};
  std::copy(prefix.begin(), prefix.end(), id.begin());
  return hex(id).substr(0, 2 * prefix.size());
}

void set_text(FlightEvent& event, std::string_view text) {
  text = text.substr(0, kFlightTextBytes);
  event.text_bytes = static_cast<uint8_t>(text.size());
  text.copy(reinterpret_cast<char*>(&event) + offsetof(FlightEvent, key), text.size());
}

std::string_view text_of(const FlightEvent& event) {
  return {reinterpret_cast<const char*>(&event) + offsetof(FlightEvent, key),
          std::min<size_t>(event.text_bytes, kFlightTextBytes)};
}

tl::expected<FlightHeader, std::string> decode_flight_header(std::span<const std::byte> head,
                                                             uint64_t file_bytes) {
  const auto refuse = [](const std::string& what) { return tl::unexpected(what); };
  if (head.size() < kFlightHeaderBytes || file_bytes < kFlightHeaderBytes) {
    return refuse("it ends within its header");
  }
  FlightHeader header;
  std::memcpy(&header, head.data(), sizeof header);
  if (header.magic != kFlightMagic) return refuse("it is no flight recorder's file");
  if (header.version != kFlightVersion) {
    return refuse("its format is version " + std::to_string(header.version) +
                  ", this program reads version " + std::to_string(kFlightVersion) +
                  "; use the gradringctl of the daemon's release");
  }
  if (header.event_bytes != kFlightEventBytes) {
    return refuse("its events have " + std::to_string(header.event_bytes) +
                  " bytes, this program reads those of " + std::to_string(kFlightEventBytes) +
                  ": it is damaged");
  }
  if (header.ring_count > kFlightRingsMax) {
    return refuse("it says it has " + std::to_string(header.ring_count) + " rings");
  }
  for (uint32_t i = 0; i < header.ring_count; ++i) {
    const FlightRingPlace& ring = header.rings[i];
    const bool credible = ring.events >= 1 &&
                          ring.events <= kFlightRingBytesMax / kFlightEventBytes &&
                          ring.offset >= kFlightHeaderBytes && ring.offset <= file_bytes &&
                          ring.events * kFlightEventBytes <= file_bytes - ring.offset;
    if (!credible) return refuse("ring " + std::to_string(i) + " does not lie within it");
  }
  return header;
}

std::optional<uint64_t> start_in_stat(std::string_view stat) {
  // The second field, the name in parentheses, may hold blanks and parentheses of its own.
  constexpr int kFieldsBetween = 20;  // the start is field 22
  size_t at = stat.rfind(')');
  for (int i = 0; i < kFieldsBetween && at != std::string_view::npos; ++i) {
    at = stat.find(' ', at + 1);
  }
  if (at == std::string_view::npos) return std::nullopt;
  uint64_t start = 0;
  const auto [rest, error] =
      std::from_chars(stat.data() + at + 1, stat.data() + stat.size(), start);
  if (error != std::errc()) return std::nullopt;
  return start;
}

}  // namespace gradring
