#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "daemon/core/job_engine.h"
#include "daemon/core/membership.h"
#include "daemon/core/probe_sender.h"
#include "daemon/core/step_times.h"
#include "daemon/core/tuner.h"
#include "daemon/data/job_figures.h"
#include "daemon/data/nonfinite_origin.h"
#include "daemon/data/ring_messages.h"
#include "daemon/data/shared_gpu_memory.h"
#include "daemon/fd.h"
#include "daemon/flight/ring.h"
#include "daemon/mailbox.h"
#include "daemon/records/job_memory.h"
#include "proto/stream_word.h"
#include "transport/gpus.h"
#include "transport/shm/segment.h"
#include "transport/transport.h"

// Everything that crosses between the control thread and the data thread.
namespace gradring::daemon {

using core::SessionId;
using transport::PeerId;

// ---- to the data thread ----

class SessionRing;

// The segments that an open submission was lent. 0: none.
struct OpenTicket {
  uint64_t input_segment = 0;
  uint64_t output_segment = 0;
  uint64_t counts = 0;  // of its blocks, where the control thread keeps account of them
};
inline OpenTicket segments_of(const core::Submission& submission) {
  return {submission.input.segment, submission.output.segment};
}

// Make the data plane of a job.
struct InstallJob {
  core::View view;
  uint32_t me = 0;
  std::shared_ptr<JobMemory> memory = {};  // none: the job does not outlive this daemon

  // After a restart, what the last daemon wrote of it, and the buffers of the submissions in that
  // which have not ended.
  struct Lent {
    SessionId session = 0;
    uint32_t rank = 0;
    uint64_t ticket = 0;
    OpKey key;
    const std::byte* input = nullptr;
    std::byte* output = nullptr;
  };
  std::shared_ptr<const EngineMemory> before = {};
  std::vector<Lent> lent = {};
};
// The memory stays mapped until the Completed of this ticket: submit lends it, that returns it.
struct Submit {
  SessionId session = 0;
  JobId job{};
  core::Submission submission;
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::vector<uint64_t> seen = {};  // tickets of this rank whose end the trainer has taken in
  SessionRing* ring = nullptr;      // the way it came, if not by message
  StreamWord reached = {};          // it counts when the first part of that has come
  StreamWord ended = {};            // to be set when it has ended
  uint64_t part_bytes = 0;          // of both
  // Where the daemon's GPUs bring it and take it back: what `input` and `output` stand for.
  transport::GpuRange gpu_input = {}, gpu_output = {};
  bool given_on_gpu() const { return gpu_input.memory != nullptr; }
  bool on_gpu() const { return given_on_gpu() || gpu_output.memory != nullptr; }
};
struct LeaveRank {
  JobId job{};
  uint32_t rank = 0;
  Failure why;
};
struct FailJob {
  JobId job{};
  Failure failure;
};
// A member that was done with the job is not there any more.
struct MemberGone {
  JobId job{};
  uint32_t member = 0;
  Failure failure;
};
// End the epoch, and say what this node knows of it: JobFrozen is the answer.
struct FreezeJob {
  JobId job{};
  uint64_t epoch = 0;
};
// Begin the next one.
struct AdoptView {
  JobId job{};
  std::shared_ptr<const core::Proposal> proposal;
};
// Whether ranks wait to be taken in at the next join point.
struct SetGrows {
  JobId job{};
  bool grows = false;
};
struct RemoveJob {
  JobId job{};
};
// Its share of a wire that several jobs want.
struct SetWeight {
  JobId job{};
  uint32_t weight = 1;
};
// Write down what happens there as well; null: no more.
struct SetTrace {
  FlightSlots* to = nullptr;
};
// For each GPU, the lanes that are nearest to it.
struct SetGpuLanes {
  std::vector<std::vector<uint8_t>> near;
};
// Frames that carry `token` come from this peer. Known before the peer can send the first one.
struct ExpectPeer {
  PeerId peer = 0;
  uint64_t token = 0;
};
// `link` numbers the life of a connection, so that news of an old one are not taken for the new
// one's.
struct ConnectPeer {
  PeerId peer = 0;
  uint64_t link = 0;
  std::string node;
  std::vector<std::string> addresses;  // of its lanes
  uint64_t token = 0;                  // goes into every frame to this peer
  uint64_t bundle_bytes = 0;           // that it takes at most; 0: frames one by one alone
  bool probes = false;                 // it answers them
};
struct DisconnectPeer {
  PeerId peer = 0;
};
// What is to become of one lane to a peer.
struct SetLane {
  enum class To : uint8_t {
    kClosed,   // broken, or one end does not hear the other
    kTried,    // connected anew, for heartbeats alone
    kCarries,  // slices and all
  };
  PeerId peer = 0;
  uint64_t link = 0;
  uint8_t lane = 0;
  To to = To::kClosed;
};
struct DescribeJob {
  uint64_t query = 0;
  JobId job{};
};
// Measure a lane: ProbeEnded is the answer, within core::probe_time_max().
struct StartProbe {
  uint64_t query = 0;
  std::string to;
  uint8_t lane = 0;
  bool latency = false;
  uint32_t bytes = 0;  // of a message; 0: of a slice, or for latency none
  core::Time measure = 0;
  bool forced = false;  // also beside jobs
  std::string node;     // that is to send, as its refusals name it
};
// This daemon drains: no probes; or it serves again.
struct RefuseProbes {
  bool all = true;
};
struct StopData {};
// From the data thread's own workers: a driver has pinned the memory of this job, or would not.
struct MemoryPinned {
  JobId job{};
};
// Likewise: what GPUs need for slices of this job is there, or cannot be had.
struct GpuStagingMade {
  JobId job{};
};

using Command =
    std::variant<OpenRing, LendSegment, TakeBackSegment, LetGoOfGpuMemory, CloseRing, InstallJob,
                 Submit, LeaveRank, FailJob, MemberGone, FreezeJob, AdoptView, SetGrows, RemoveJob,
                 SetTrace, SetGpuLanes, SetWeight, ExpectPeer, ConnectPeer, DisconnectPeer, SetLane,
                 DescribeJob, StartProbe, RefuseProbes, StopData, MemoryPinned, GpuStagingMade>;

// ---- to the control thread ----

// One for each Submit; of one that came by a ring only if it failed.
struct Completed {
  SessionId session = 0;
  uint64_t ticket = 0;
  core::Outcome outcome;
  // It was submitted through the session's ring: no ticket that the control thread knows, though
  // it may be called the same.
  bool by_ring = false;
};
struct EngineFailed {
  JobId job{};
  Failure failure;
};
struct EngineDrained {
  JobId job{};
};
struct JobFrozen {
  JobId job{};
  uint64_t epoch = 0;
  std::shared_ptr<core::Report> report;
};
struct EngineAbsent {
  JobId job{};
  core::Absence absence;
};
struct EngineAtJoinPoint {
  JobId job{};
};
// A rank of ours that has joined is to stand in for itself in this op; without a signature it has
// failed.
struct EngineAsksToStandIn {
  JobId job{};
  SessionId session = 0;
  OpKey key;
  std::optional<Signature> signature;
};
struct EngineCondemned {
  JobId job{};
  uint64_t epoch = 0;
};
// A node speaks in another epoch of the job: a later one, or `its_epoch`, an earlier one.
struct EpochDiffers {
  JobId job{};
  std::string node;
  bool later = false;
  uint64_t its_epoch = 0;
};
struct PeerDataLost {
  PeerId peer = 0;
  uint64_t link = 0;
  uint8_t lane = 0;
  std::string why;
};

struct LaneTraffic {
  bool heard = false;  // any frame since the last pulse
  uint64_t sent_bytes = 0;
  uint64_t received_bytes = 0;
  uint64_t sends = 0;
  core::Time send_time = 0;
};
struct PeerTraffic {
  uint64_t link = 0;
  std::vector<LaneTraffic> lanes;
  uint64_t dropped_frames = 0;
  uint64_t damaged = 0;  // slices and frames that came from it so

  uint64_t sent_bytes() const {
    uint64_t sum = 0;
    for (const LaneTraffic& lane : lanes) sum += lane.sent_bytes;
    return sum;
  }
  uint64_t received_bytes() const {
    uint64_t sum = 0;
    for (const LaneTraffic& lane : lanes) sum += lane.received_bytes;
    return sum;
  }
};
struct JobTraffic {
  JobId job{};
  uint64_t ops_completed = 0;
  uint32_t ops_open = 0;
  BytesMoved moved{};
};
// Every Config::pulse(): that the data thread lives, whom it heard, and what it counted.
struct Pulse {
  core::Time at = 0;               // when all of it was counted
  uint64_t progress = 0;           // turns of the data thread
  std::vector<PeerTraffic> peers;  // by PeerId
  std::vector<JobTraffic> jobs;
  transport::Counters transport;
  uint64_t gradients_sent = 0;  // bytes; the transport also counts heads in bundles, and probes
  uint64_t gradients_received = 0;
  uint64_t bundles_sent = 0;    // messages of several frames
  uint64_t frames_bundled = 0;  // in them
  GpuTraffic gpus;
  uint64_t ring_submissions = 0;  // that came by rings, refused ones too
  uint64_t frames_forged = 0;     // no peer of ours was given that token
  uint64_t frames_malformed = 0;
  uint64_t frames_damaged = 0;
  uint64_t frames_stale = 0;        // of a job that is not here, or a connection that was before
  uint64_t staging_bytes_most = 0;  // of the job that has most, each
  uint64_t feedback_bytes_most = 0;
  std::shared_ptr<const DataFigures> figures;  // once a second, where somebody reads metrics
};

// Sums that ended since the last pulse, where somebody looks for a better table.
struct OpsTimed {
  JobId job{};
  uint64_t epoch = 0;
  std::vector<core::OpTime> times;
};

// Once a job.
struct NonfiniteFound {
  JobId job{};
  NonfiniteOrigin origin;
};

// A rank of this node that others wait for, or do not any more.
struct RankLate {
  JobId job{};
  core::LateChange change;
};

struct RankActivity {
  uint32_t rank = 0;
  uint64_t submitted = 0;
  core::Time last_submission = 0;  // 0: none yet
  uint64_t nonfinite = 0;          // values of its inputs that were NaN or infinite
  uint32_t held = 0;  // ops that it has handed over, and its GPU has not brought all of the input
};
struct JobDescription {
  uint64_t query = 0;
  bool found = false;
  std::vector<core::OpProgress> ops;
  std::vector<RankActivity> ranks;
  std::vector<core::StepReport> steps;
  uint64_t ops_completed = 0;
  uint32_t ops_open = 0;
  uint64_t staging_bytes = 0;
};

struct ProbeEnded {
  uint64_t query = 0;
  Status status;
  uint8_t lane = 0;
  uint32_t bytes = 0;  // of a message
  core::ProbeFigures figures;
};

// Not of the data thread: what discover names by now.
struct PeersFound {
  std::vector<std::string> addresses;
};

using Event = std::variant<PeersFound, GpuMemoryOpened, SegmentFreed, Completed, SegmentTakenBack,
                           GpuMemoryLetGo, RingClosed, RingBroken, EngineFailed, EngineDrained,
                           JobFrozen, EngineAbsent, EngineAtJoinPoint, EngineAsksToStandIn,
                           EngineCondemned, EpochDiffers, PeerDataLost, NonfiniteFound, RankLate,
                           OpsTimed, Pulse, JobDescription, ProbeEnded>;

using CommandBox = Mailbox<Command>;
using EventBox = Mailbox<Event>;

}  // namespace gradring::daemon
