#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tl/expected.hpp>

#include "proto/types.h"
#include "proto/verdict.h"

namespace gradring {

// The flight recorder's file in the runtime directory, which gradringd maps and writes and
// gradringctl reads, while the daemon lives or after it died. Little endian:
//
//    0             4096
//    +-------------+------------------------+------------------------+--
//    | header      | ring of one thread     | ring of the next       | ...
//    +-------------+------------------------+------------------------+--
//
// A ring is an array of 64-byte events. Its one writer numbers them 1, 2, 3 ..., and number n lies
// at index (n - 1) % events. It sets the number of a slot to 0, writes the rest, and writes the
// number last: whoever finds the same number before and after it has copied an event has a whole
// one.
inline constexpr const char* kFlightFile = "flight-recorder";
inline constexpr const char* kFlightFileBefore = "flight-recorder.1";  // of the life before
inline constexpr const char* kTraceFile = "trace";                     // while one is wanted

inline constexpr uint32_t kFlightVersion = 1;
inline constexpr size_t kFlightHeaderBytes = 4096;
inline constexpr size_t kFlightEventBytes = 64;
inline constexpr size_t kFlightRingsMax = 8;
// A reader believes no more of a header, and the daemon is told to make no more.
inline constexpr uint64_t kFlightRingBytesMax = 64 << 20;

// The numbers stay in files: append, never renumber, and add a line to name_of() in flight.cc. Each
// group has room. What the fields of an event mean for each is said here; `job`, `epoch` and `key`
// always are what they are called. An event may have a name and words, see kMore.
enum class FlightKind : uint16_t {
  kMore = 1,  // the event before it in the ring goes on: 32 bytes of name, NUL, words

  kDaemonStarted = 16,  // name: product version
  kDaemonStopped = 17,
  kSignal = 18,  // code: its number
  kDraining = 19,
  kStopping = 20,

  kPeerUp = 32,    // name: node
  kPeerLost = 33,  // code: cause; name: node; words: evidence
  kLaneLost = 34,  // name: node; words: which, and why

  kJobProposed = 48,  // name: job; value: ranks; index: members
  kJobMember = 49,    // index: member; rank: its lowest; value: how many ranks; name: node
  kJobRuns = 50,
  kJobFailed =
      51,  // code: cause; rank and value: rank and pid to blame; name: node; words: evidence
  kJobEnded = 52,

  kTrainerAttached = 64,  // value: pid; index: uid; name: program
  kTrainerJoins = 65,     // rank; value: pid; name: job
  kTrainerRefused = 66,   // rank; value: pid; words: why
  kTrainerLeft = 67,      // rank; value: pid
  kTrainerLost = 68,      // rank; value: pid; words: evidence
  kTrainerDetached = 69,  // value: pid; was in no job

  kOpSubmitted = 96,        // rank; value: bytes; code: collective; name: of the op, if it has one
  kReadySent = 97,          // index: member
  kReadyReceived = 98,      // index: member; rank: its spokesman
  kMismatchSent = 99,       // index: member
  kMismatchReceived = 100,  // index: member
  kOpMoves = 101,           // every rank and member is ready; value: bytes
  kOpDone = 102,            // rank; code: verdict
  kOpFailed = 103,          // rank; code: cause; index: rank to blame; words: of this op alone
  kEngineFailed = 104,      // as kJobFailed: the data plane asks for the end of the job
  kOpCondemned = 105,       // by slices that came damaged; code: cause; name: node; words: evidence

  kSliceStarted = 128,  // index: slice; these five; rank: the lane of those that came or go by one
  kSliceLanded = 129,   // code: phase; value: hop
  kSliceForwarded = 130,  // code: phase; value: hop
  kSliceDelivered = 131,
  kSliceAborted = 132,  // code: phase; value: hop
  kSliceDamaged = 133,  // landed with a wrong checksum; code: phase; value: hop
  kSliceResent = 134,   // it came damaged to the successor; code: phase; value: hop

  kGpuBegan = 144,  // GPUs have something to do for an op; index: which of the job's; code:
                    // GpuTask; value: bytes of its result
  kGpuEnded = 145,  // index: as above; code: 1: it failed

  kViewFrozen = 160,   // the epoch ends here: a new view is being agreed on
  kViewEntered = 161,  // name: job; value: ranks; index: members; words: how it came about
};
// What GPUs do.
enum class GpuTask : uint8_t {
  kBring = 1,   // inputs, summed if they are several, to the host's memory
  kStay = 2,    // inputs to outputs
  kSpread = 3,  // a result from the host's memory
  kRing = 4,    // a slice, that came from another node's GPU or goes there
};
// "bring"; empty for a number that this release does not know.
std::string_view name_of(GpuTask task);

// "op submitted"; empty for a number that this release does not know.
std::string_view name_of(FlightKind kind);

// Enough of an incarnation to tell two jobs of a node apart; zero: no job.
using JobPrefix = std::array<uint8_t, 4>;
inline JobPrefix prefix_of(const JobId& id) { return {id[0], id[1], id[2], id[3]}; }
std::string hex(const JobPrefix& prefix);

inline constexpr size_t kFlightTextBytes = 32;

struct FlightEvent {
  uint64_t sequence = 0;  // 0: being written, or never was
  int64_t time = 0;       // CLOCK_MONOTONIC, ns
  FlightKind kind = FlightKind::kMore;
  uint8_t code = 0;
  uint8_t text_bytes =
      0;  // kMore: how many of the 32 bytes behind `index`, in place of what is there
  uint32_t rank = kNoRank;
  JobPrefix job{};
  uint32_t index = 0;
  OpKey key{};
  uint64_t value = 0;
  uint64_t epoch = 0;
};
static_assert(sizeof(FlightEvent) == kFlightEventBytes && offsetof(FlightEvent, key) == 32);

// Of kMore; cuts what does not fit, and whatever a reader finds is within bounds.
void set_text(FlightEvent& event, std::string_view text);
std::string_view text_of(const FlightEvent& event);

struct FlightRingPlace {
  std::array<char, 16> thread{};
  uint64_t offset = 0;
  uint64_t events = 0;
};

// Texts end with a NUL if they are shorter than their place.
struct FlightHeader {
  std::array<char, 4> magic{};
  uint32_t version = 0;
  uint32_t event_bytes = 0;
  uint32_t ring_count = 0;
  // Who writes. A pid is taken again by somebody else, a pid with the moment of its start is not.
  int64_t pid = 0;
  uint64_t pid_start = 0;               // clock ticks since the machine started
  uint64_t pid_space = 0;               // inode of its pid namespace
  std::array<char, 40> machine_boot{};  // the kernel's boot id: within one, monotonic times compare
  int64_t started = 0;                  // CLOCK_MONOTONIC, ns
  int64_t wall_offset = 0;  // + CLOCK_MONOTONIC = wall clock, as it is set now; for people only
  std::array<char, 128> node{};
  std::array<char, 32> product{};
  std::array<FlightRingPlace, kFlightRingsMax> rings{};
};
static_assert(sizeof(FlightHeader) <= kFlightHeaderBytes);

inline constexpr std::array<char, 4> kFlightMagic = {'G', 'R', 'F', 'R'};

// Believes nothing of it: the error says what is wrong with a file of `file_bytes` that begins so.
tl::expected<FlightHeader, std::string> decode_flight_header(std::span<const std::byte> head,
                                                             uint64_t file_bytes);

template <size_t N>
std::string text_in(const std::array<char, N>& place) {
  const std::string_view all(place.data(), N);
  return std::string(all.substr(0, all.find('\0')));
}
template <size_t N>
void put_text(std::array<char, N>& place, std::string_view text) {
  place = {};
  text.copy(place.data(), N);
}

// The moment at which a process started, out of its /proc/PID/stat.
std::optional<uint64_t> start_in_stat(std::string_view stat);

}  // namespace gradring
