#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "daemon/core/epoch_gate.h"
#include "daemon/core/job_engine.h"
#include "daemon/core/step_times.h"
#include "daemon/core/weights.h"
#include "daemon/data/checksums.h"
#include "daemon/data/error_feedback.h"
#include "daemon/data/gpu_ops.h"
#include "daemon/data/gpu_ring.h"
#include "daemon/data/kept_slices.h"
#include "daemon/data/ledger.h"
#include "daemon/data/messages.h"
#include "daemon/data/nonfinite.h"
#include "daemon/data/op_times.h"
#include "daemon/data/outbox.h"
#include "daemon/data/pass.h"
#include "daemon/data/passing_parts.h"
#include "daemon/data/peer_table.h"
#include "daemon/data/staging.h"
#include "daemon/flight/job_flight.h"
#include "transport/transport.h"

namespace gradring::daemon {

// What all jobs of the data thread share.
struct DataShared {
  DataShared(const Lanes* lanes, EventBox* box, uint32_t helpers, size_t bundle_bytes,
             std::shared_ptr<transport::Gpus> of_this_node)
      : outbox(lanes, bundle_bytes), events(box), passes(helpers), gpus(std::move(of_this_node)) {}

  Outbox outbox;
  EventBox* const events;
  FlightRing* flight = FlightRing::off();
  bool remember_ends = false;       // trainers may ask again for the ends of their submissions
  bool time_sums = false;           // somebody looks for better tables
  bool time_sends = false;          // somebody reads metrics
  bool wires_to_share = false;      // a job with a weight begins to send, after a while
  core::Time gpus_rest_within = 0;  // DataThread::Options
  PeerTable peers;
  Ledger ledger;
  PassRunner passes;
  GpuDesk gpus;
  uint64_t gradients_sent = 0;  // bytes, to all peers there ever were
  uint64_t gradients_received = 0;
  std::vector<std::vector<uint8_t>> lanes_near_gpu;  // by GPU; empty until it is known
};

// The hands of one job's engine: adds, copies and sends what the engine decides, in its staging
// memory and its trainers' buffers. Data thread only.
class JobExecutor final : private core::EngineActions {
 public:
  // `kept_max`: bytes of final slices that may be kept after completion. `feedback_max`: bytes of
  // what rounding took away.
  JobExecutor(InstallJob install, const core::EngineOptions& options, StagingMemory staging,
              uint64_t kept_max, uint64_t feedback_max, DataShared* shared);

  // Before the first op: a driver is pinning memory(), and until have_memory() no op begins, nor is
  // the job freed. Refused: a lane does not take it.
  void await_memory() { awaits_memory_ = true; }
  Status have_memory(std::unique_ptr<transport::Registration> pinned, const Lanes& lanes);
  std::span<std::byte> memory() const { return staging_.memory(); }

  // Likewise: slices of what lies on GPUs may go round the ring there, and until there is memory
  // for that, or known to be none (null), no such op begins. So all go the same way.
  void await_ride() { awaits_ride_ = true; }
  void let_ride(std::unique_ptr<GpuStaging> staging);

  // ---- commands ----
  // Whether its GPU has brought what it takes to begin, and GPUs are done with what its rank was
  // before, and have memory for it. What is written down is brought whole.
  bool may_begin(const Submit& command) const;
  void submit(const Submit& command, core::Time now);
  void leave(uint32_t rank, const Failure& why);
  void fail(const Failure& failure) { engine_.fail(failure); }
  // This node cannot take part.
  void refuse(const std::string& why);
  void member_gone(uint32_t member, const Failure& failure) {
    engine_.member_gone(member, failure);
  }
  void freeze(uint64_t epoch);
  void adopt(const core::Proposal& proposal, core::Time now);
  void set_grows(bool grows) { engine_.set_grows(grows); }
  void weigh(uint32_t weight) { weight_ = weight; }
  // What it counts beside others of this node: the least while it leaves the wire to them.
  uint32_t weight() const { return wire_use_.wants() ? weight_ : core::kWeightLeast; }
  void look_at_wire_use() { wire_use_.look(engine_.counters().payload_bytes_sent, loans_ > 0); }
  // `most`: the weight of the weightiest of this node.
  void share_wires(uint32_t most) {
    engine_.set_window(core::window_of(weight_, most, engine_.slots()));
  }
  void tick(core::Time now) { engine_.tick(now); }
  // Now and then, as long as may_be_freed() does not hold: has a GPU stopped to work?
  void look_at_gpus(core::Time now);
  std::vector<core::LateChange> take_late(core::Time now) { return steps_.take_changes(now); }
  OpsTimed take_times() { return {id(), engine_.view().epoch, times_.take()}; }
  JobDescription describe(uint64_t query) const;
  JobFigures figures() const;
  const BytesMoved& moved() const { return stats_.bytes; }

  // ---- from the transport ----
  // The member that this peer is in the job, if it is one.
  std::optional<uint32_t> member_of(PeerId peer) const;
  // From anybody whose token is good; false when it is nobody of this job.
  bool on_frame(PeerId from, const Frame& frame, core::Time now);
  struct Landing {
    std::byte* to = nullptr;
    uint64_t loan = 0;
    std::byte* on_host = nullptr;  // as transport::Events::Landing has it
  };
  // The header of what has a payload.
  std::optional<Landing> on_payload(PeerId from, const Frame& frame);
  // Before that: the payload is at Landing::on_host.
  void on_landed_on_host(core::Staging at);
  void on_landed(core::Staging at);
  void on_aborted(core::Staging at);
  void on_sent(core::Staging at);

  // ---- from the GPUs ----
  void on_gpu_ended(const GpuDesk::Ended& ended) {
    flight_->gpu_ended(ended.work.key, ended.work.number, ended.status.ok());
    if (ended.nonfinite) look(ended.work, *ended.nonfinite);
    if (ended.work.rides) gpu_ring_->on_ended(ended.work, ended.status.ok());
    gpu_ops_.on_ended(ended.work, ended.status, &engine_);
    if (ended.work.rides) send_ready();
  }

  // At most `budget` slices; returns the amount of work done.
  uint32_t pump(uint32_t budget);
  // When to pump() although nothing happened, as far as anybody here knows.
  core::Time next_look(core::Time now) const { return parts_.next_look(now); }

  const core::JobEngine& engine() const { return engine_; }
  const JobId& id() const { return engine_.view().incarnation; }
  uint64_t staging_bytes() const { return staging_.bytes(); }
  uint64_t feedback_bytes() const { return feedback_.bytes(); }
  // Nothing of its memory is with the transport or a GPU: it may be unmapped.
  bool may_be_freed() const {
    return loans_ == 0 && !awaits_memory_ && !gpu_ops_.under_way() &&
           (gpu_ring_ == nullptr || !gpu_ring_->busy());
  }
  // Then, as the last thing that is asked of it: what GPUs have had of its memory. Null: nothing.
  struct MemoryOfGpus {
    StagingMemory host;
    std::unique_ptr<GpuStaging> theirs;
  };
  std::unique_ptr<MemoryOfGpus> take_memory_of_gpus();
  bool busy() const { return loans_ > 0 || engine_.open_ops() > 0; }

 private:
  struct Lent {
    SessionId session = 0;
    OpKey key;
    const std::byte* input = nullptr;
    std::byte* output = nullptr;
    SessionRing* ring = nullptr;  // the way it came, if not by message
    StreamWord ended = {};
    OpenTicket segments = {};
    Collective collective = Collective::kBarrier;
    uint64_t bytes = 0;
    core::Time since = 0;
  };
  struct LocalRank {
    uint32_t rank = 0;
    SessionId session = 0;  // of its last submission
    core::Time last_submission = 0;
    std::unordered_map<uint64_t, Lent> lent;  // by ticket, until complete
    bool gone = false;                        // left, and none of its number has come in since
    uint64_t submitted_before = 0;            // by those that had its number
  };
  struct Arriving {
    PeerId from = 0;
    SliceBody slice;
    OpKey key;
  };

  void fold(const core::FoldOrder& order) override;
  void sum(const core::SumOrder& order) override;
  void deliver(const core::Op& op, uint32_t slice, core::Staging from) override;
  std::optional<uint32_t> keep(const core::Op& op, uint32_t slice) override;
  void drop(uint32_t kept) override;
  void fetch(const core::Op& op, uint32_t slice, core::Staging to) override;
  std::optional<core::ResultDigest> digest(const core::Op& op) override;
  void absent(const core::Absence& absence) override;
  void at_join_point() override;
  void stand_in(uint32_t rank, const OpKey& key,
                const std::optional<Signature>& signature) override;
  void condemned(const Failure& failure) override;
  void send(uint32_t member, const Frame& frame) override;
  void send_slice(uint32_t member, const Frame& frame, core::Staging from) override;
  void send_direct(uint32_t member, const Frame& frame, core::Staging from) override;
  void moves(const core::Op& op) override;
  void complete(uint32_t rank, uint64_t ticket, const core::Outcome& outcome) override;
  void tell_end(uint32_t rank, uint64_t ticket, const core::Outcome& outcome);
  Failure refused_here(const std::string& why) const;
  void gpu_failed(const std::string& why);
  void give_up_gpus(std::string_view what_waits);
  void freeze_when_at_rest();
  void fail_job(const Failure& failure) override;

  void go_on_from(const EngineMemory& before, const std::vector<InstallJob::Lent>& lent);
  void count_again(const std::vector<InstallJob::Lent>& lent);
  void remember_told(SessionId session, uint64_t ticket, const core::Outcome& outcome);
  core::Outcome refusal(uint32_t rank, const std::string& why) const;
  void end_unopened(const Submit& command, const core::Outcome& outcome);
  LocalRank& local(uint32_t rank);
  const Lent& lent_to(const core::Submission& submission) const;
  const Lent* first_lent_to(const core::Op& op) const;
  void meet_members();
  bool of_this_epoch(PeerId from, const Frame& frame);
  uint32_t pump_alone(uint32_t budget);
  void settle();
  void before_long_work(uint64_t bytes);
  uint32_t checksum_of(core::Staging at, uint32_t length);
  void made(core::Staging at, uint32_t length);
  void look(const core::Op& op, uint64_t offset, uint64_t first, uint64_t bytes,
            const transport::FoldFindings& found);
  void look(const GpuWork& work, const transport::Gpus::Nonfinite& found);
  std::byte* memory_at(core::Staging at);
  const std::byte* kept_at(uint32_t kept) const;
  bool may_be_kept(const SlotBuffers::Value& value) const;
  std::optional<Landing> on_slice(PeerId from, uint32_t member, const Frame& frame);
  void send_now(uint32_t member, const Frame& frame, core::Staging from);
  void send_ready();
  std::optional<uint8_t> lane_to(const DataPeer& peer, uint32_t turn, core::Staging from) const;
  bool rides(const core::Op& op) const { return gpu_ring_ != nullptr && gpu_ops_.rides(op.key); }
  void put_on_host(core::Staging at) {
    if (gpu_ring_ != nullptr) gpu_ring_->put_on_host(at);
  }
  bool lend(uint8_t lane, PeerId to, const Frame& frame, core::Staging from);

  DataShared* const shared_;
  uint32_t weight_ = core::kWeightLeast;
  core::WireUse wire_use_;
  StagingMemory staging_;
  core::JobEngine engine_;
  std::optional<JobFlight> flight_;  // made anew in each epoch
  std::unique_ptr<KeptSlices> kept_;
  std::shared_ptr<JobMemory> memory_;  // none: nothing outlives the daemon
  ToldOutcomes told_;
  std::optional<EngineLog> log_;
  const bool checksum_;
  Checksums checksums_;
  std::vector<Arriving> arriving_;  // by slot
  std::vector<LocalRank> locals_;   // all that this node ever had in the job
  OpTimes times_;
  core::StepTimes steps_;
  OpStats stats_;
  NonfiniteWatch nonfinite_;
  ErrorFeedback feedback_;
  PassingParts parts_;
  GpuOrders gpu_orders_;
  GpuOps gpu_ops_;
  std::unique_ptr<GpuRing> gpu_ring_;  // null: slices go from the host's memory alone
  bool awaits_ride_ = false;
  bool awaits_memory_ = false;
  // Once GPUs have come to rest.
  struct ToFreeze {
    uint64_t epoch = 0;
    core::Time since = 0;
  };
  std::optional<ToFreeze> to_freeze_;
  std::vector<std::optional<PeerId>> peer_of_;  // by member; none for ourselves
  std::vector<const void*> inputs_;             // of the fold under way; kept for its capacity
  std::vector<double> factors_;                 // that they are multiplied by
  std::vector<uint32_t> folded_;                // whose they are
  std::vector<std::byte*> outputs_;             // likewise
  std::vector<std::byte> rounded_;              // likewise, of a sum that is rounded at each step
  core::EpochGate<PeerId> gate_;
  // To be given back to the engine: what went as a copy, or cannot go since there is no connection.
  std::vector<core::Staging> done_with_;
  std::vector<core::Staging> settling_;  // kept for its capacity
  uint64_t loans_ = 0;
  uint64_t folded_bytes_ = 0;  // of the pump() under way
  bool told_drained_ = false;
};

}  // namespace gradring::daemon
