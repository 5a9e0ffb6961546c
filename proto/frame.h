#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <tl/expected.hpp>

#include "proto/types.h"

namespace gradring {

// The fixed header in front of everything on the data transport. 144 bytes, little endian:
//
//    0        4     5     6       8               16                      32
//    +--------+-----+-----+-------+---------------+-----------------------+
//    | "GRDF" | ver | type|  0    | session token | job incarnation       |
//    +--------+-----+-----+-------+---------------+-----------------------+
//   32              40              48              56
//    +---------------+---------------+---------------+
//    | epoch         | key.space     | key.sequence  |
//    +---------------+---------------+---------------+
//   56                                                                  144
//    +--------------------------------------------------------------------+
//    | body of the type (84 bytes, unused bytes zero)            | seal   |
//    +--------------------------------------------------------------------+
//
// A SLICE is followed by its payload, and a READY and a PROBE may be; every other type has none.
// The seal is the CRC32C of the 140 bytes before it. encode() leaves it zero and decode() does not
// look at it: who puts it there and who checks it is the data thread (daemon/data/seal.h).
inline constexpr size_t kFrameBytes = 144;
using FrameBytes = std::array<std::byte, kFrameBytes>;

inline constexpr uint8_t kFrameVersion = 7;

enum class FrameType : uint8_t {
  kReady = 1,
  kSlice = 2,
  kCredit = 3,
  kStable = 4,
  kMismatch = 5,
  kNack = 6,
  kHeartbeat = 7,
  kDigest = 8,
  kDone = 9,
  kAllReady = 10,
  kWanted = 11,
  kProbe = 12,
};
inline constexpr uint8_t kFrameTypeLast = 12;

// The first turn of a slice gathers a partial sum, the second hands out the final value. kDirect: a
// final value straight from a member that has it. kRising: the sum of the sender and all below it
// in the tree of a large job.
enum class Phase : uint8_t { kPartial = 1, kFinal = 2, kDirect = 3, kRising = 4 };
inline constexpr uint8_t kPhaseLast = 4;

// Of the ops that one member has said READY for with their data, those that the other is done with:
// all up to `upto`, and upto + 1 + i for each bit i of `beyond`. Cumulative within an epoch.
struct DoneBody {
  uint64_t upto = 0;
  uint64_t beyond = 0;
  bool operator==(const DoneBody&) const = default;
};

// All local trainers of the sender have submitted the op; in large jobs also those of all members
// below it in a tree (daemon/core/ready_tree.h). `rank` is the sender's lowest rank: the one to
// name when signatures differ.
//
//   56        60                64                          100       101      102
//    +---------+-----------------+----------------------------+---------+--------+
//    | rank    | contributions   | signature                  | grows   | eager  |
//    +---------+-----------------+----------------------------+---------+--------+
//  102       106              114              122              130
//    +---------+-----------------+----------------+----------------+
//    | length  | serial          | done.upto      | done.beyond    |
//    +---------+-----------------+----------------+----------------+
//  130     131       135          139
//    +--------+---------+------------+
//    | rises  | late_us | waited_ms  |
//    +--------+---------+------------+
struct ReadyBody {
  uint32_t rank = 0;
  uint32_t contributions = 0;  // of how many ranks, dead ones that had submitted included; never 0
  Signature signature;
  bool grows = false;  // join point: the sender knows of ranks that want to come in
  // Whether every READY of the sender for this op carries what its receiver is to sum: `length`
  // bytes, perhaps none. Such ops are counted by `serial`, from 1 in each epoch; else it is 0.
  bool eager = false;
  uint32_t length = 0;
  uint64_t serial = 0;
  DoneBody done;       // with the receiver's ops
  bool rises = false;  // in large jobs: the sender and all below it can sum it along their tree
  // How far behind the first that is known the last of these ranks submitted it; says nothing of
  // when that was. Older releases say 0.
  uint32_t late_us = 0;
  // Since the first of them submitted it, perhaps in an epoch before. Older releases say 0.
  uint32_t waited_ms = 0;
  bool operator==(const ReadyBody&) const = default;
};

struct SliceBody {
  uint32_t slice = 0;
  Phase phase = Phase::kPartial;
  uint8_t lane = 0;          // that it comes by; from the engine, its turn (Plan::turn_of)
  uint16_t hop = 0;          // hops travelled in this phase, counted at the receiver: 1 .. n-1
  uint32_t ranks = 0;        // ranks whose contributions are in the value
  uint32_t length = 0;       // payload bytes that follow
  uint64_t value_epoch = 0;  // epoch in which a final value was computed
  // Whether the payload has a checksum. Such a slice is confirmed by CREDIT, or NACK asks for it
  // again; what follows means something only then.
  bool checked = false;
  uint8_t attempt = 0;  // the first time 1, one more each time that it is sent again
  uint64_t serial = 0;  // counts the checked slices of the sender since the epoch began, from 1
  uint32_t crc32c = 0;  // of the payload; any value may be one
  bool operator==(const SliceBody&) const = default;
};

// Receive slots freed since the epoch began, and up to which serial every checked slice
// came undamaged. Cumulative, so that a repeated or late CREDIT does no harm.
struct CreditBody {
  uint8_t lane = 0;
  uint64_t freed_total = 0;
  uint64_t confirmed_total = 0;
  bool operator==(const CreditBody&) const = default;
};

// About finals, so that their copies may be dropped (protocol rules D5, T2). kStable: every member
// holds the slices `first` + i for each bit i; of an op without slices, that all have completed it.
// kConfirm, for an op without slices: every member from the first to the sender has completed it,
// with bits[0] contributions.
//
//   56        60     61    64                                                     120
//    +---------+------+-----+------------------------------------------------------+
//    | first   | kind |  0  | bits: 448, the lowest of the first word is `first`   |
//    +---------+------+-----+------------------------------------------------------+
enum class StableKind : uint8_t { kStable = 1, kConfirm = 2 };
struct StableBody {
  StableKind kind = StableKind::kStable;
  uint32_t first = 0;
  std::array<uint64_t, 7> bits{};
  bool operator==(const StableBody&) const = default;
};
inline constexpr uint32_t kStableSlices = 448;  // in one frame

struct MismatchBody {
  uint32_t rank_a = 0;
  uint32_t rank_b = 0;
  Signature a;
  Signature b;
  bool operator==(const MismatchBody&) const = default;
};

// This attempt of a slice came damaged: send it again into the same slot (protocol rule D9).
struct NackBody {
  uint32_t slice = 0;
  Phase phase = Phase::kPartial;
  uint8_t lane = 0;
  uint16_t hop = 0;
  uint8_t attempt = 0;
  uint64_t serial = 0;
  bool operator==(const NackBody&) const = default;
};

// What the op's result is at the sender: to be the same at the receiver.
struct DigestBody {
  uint32_t crc32c = 0;  // of one rank's output
  bool operator==(const DigestBody&) const = default;
};

// All members are ready for the op: from the first of a large job, down its tree.
struct AllReadyBody {
  uint32_t contributions = 0;  // of how many ranks, never 0
  bool grows = false;          // as some member's READY had it
  bool rises = false;          // all members' had it: so it is summed along the tree
  uint32_t late_us = 0;        // the most of all READYs
  bool operator==(const AllReadyBody&) const = default;
};

// Rank `rank` has submitted the op, and its node waits for others. To all members of a large job,
// along its tree.
struct WantedBody {
  uint32_t rank = 0;
  uint64_t waited = 0;  // nanoseconds since the op was submitted first, where this began
  Signature signature;
  bool operator==(const WantedBody&) const = default;
};

// A measurement of one lane, beside all jobs (daemon/core/probe_sender.h). Only to who said in its
// hello that it knows probes.
//
//   56     57       58       59    60       64      72      80      88           96
//    +------+--------+--------+-----+--------+-------+-------+-------+------------+
//    | kind | refusal| forced |  0  | length | probe | count | at    | jobs_bytes |
//    +------+--------+--------+-----+--------+-------+-------+-------+------------+
enum class ProbeKind : uint8_t {
  kAsk = 1,      // may I? From the sender, as kData and kEnd
  kGranted = 2,  // from the receiver, as kRefused and kEcho
  kRefused = 3,
  kData = 4,  // `length` bytes that mean nothing follow
  kEcho = 5,  // one for each kData
  kEnd = 6,
};
inline constexpr uint8_t kProbeKindLast = 6;
enum class ProbeRefusal : uint8_t {
  kNone = 0,
  kJobs = 1,      // jobs have trainers here, and it was not forced
  kDraining = 2,  // this daemon is to stop
  kBusy = 3,      // another probe ends here
};
inline constexpr uint8_t kProbeRefusalLast = 3;
// More is not in one message of a probe, so that the receiver needs no more memory.
inline constexpr uint32_t kProbeBytesMax = 4 << 20;
struct ProbeBody {
  ProbeKind kind = ProbeKind::kAsk;
  ProbeRefusal refusal = ProbeRefusal::kNone;  // of kRefused alone
  bool forced = false;                         // also beside jobs
  uint32_t length = 0;                         // of kData alone
  uint64_t probe = 0;                          // the sender's number for it
  uint64_t count = 0;                          // of kData, from 1; of kEcho: so many have come
  uint64_t at = 0;                             // of kEcho: when, by the receiver's clock in ns
  uint64_t jobs_bytes =
      0;  // of kEcho: of slices that the receiver got from the sender by this lane
  bool operator==(const ProbeBody&) const = default;
};

// Sent on every lane by the thread that moves its slices; `progress` counts that thread's turns.
struct HeartbeatBody {
  uint64_t sequence = 0;
  uint64_t progress = 0;
  bool operator==(const HeartbeatBody&) const = default;
};

// One decoded frame. Only the body of `type` is meaningful.
struct Frame {
  FrameType type = FrameType::kHeartbeat;
  uint64_t token = 0;  // agreed over the control channel; names and authenticates the sender
  JobId job{};
  uint64_t epoch = 0;
  OpKey key;

  ReadyBody ready;
  SliceBody slice;
  CreditBody credit;
  StableBody stable;
  MismatchBody mismatch;
  NackBody nack;
  HeartbeatBody heartbeat;
  DigestBody digest;
  DoneBody done;
  AllReadyBody all_ready;
  WantedBody wanted;
  ProbeBody probe;
};

// Whether it has data that does not go along the ring.
bool is_direct(const Frame& frame);
// Bytes that follow the header.
uint32_t payload_of(const Frame& frame);

FrameBytes encode(const Frame& frame);

// Checks magic, version, type, every enumeration and that `payload_bytes` is what the type says;
// the error is a sentence for a log. Never trusts, never allocates for good input.
tl::expected<Frame, std::string> decode(std::span<const std::byte> header, size_t payload_bytes);

}  // namespace gradring
