#pragma once

#include <poll.h>

#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <tl/expected.hpp>
#include <utility>
#include <vector>

#include "daemon/data/job_executor.h"
#include "daemon/data/messages.h"
#include "daemon/data/prober.h"
#include "daemon/data/session_ring.h"
#include "daemon/data/stream_gate.h"
#include "daemon/look_on.h"
#include "daemon/loop_watch.h"
#include "daemon/thread_owner.h"
#include "daemon/worker.h"
#include "transport/transport.h"

namespace gradring::daemon {

// For final slices of one job: as many of the largest as can be on their way round when an op
// completes here, within what is left of the job's limit.
uint64_t kept_bytes(const core::EngineOptions& engine, uint64_t staging_limit);

// Owns the transports, one a lane, the engines of all jobs and their staging memory. Everything but
// the constructor and run() is for the thread that is in run().
class DataThread final {
 public:
  struct Options {
    core::EngineOptions engine;
    uint64_t staging_limit = 0;   // bytes a job
    uint64_t feedback_limit = 0;  // likewise
    core::Time pulse = 250 * core::kMillisecond;
    FlightRing* flight = FlightRing::off();
    // Sessions outlive the daemon, and their trainers may ask the next one how their ops ended.
    bool remember_ends = false;
    bool time_sums = false;       // Somebody looks for better tables: see OpTimes.
    uint32_t reduce_threads = 0;  // that help this one
    uint64_t bundle_bytes = 0;    // of small frames that go to a peer together; 0: each by itself
    bool metrics = false;         // somebody reads DataFigures
    std::shared_ptr<transport::Gpus> gpus = {};  // null: none sums for trainers
    bool gpu_direct = false;                     // their slices go from there, where they can
    // What they overwrite is to be whole before a view changes; later than that they have failed.
    // Sums take a GPU milliseconds, and a trainer's kernels that it waits for some more.
    core::Time gpus_rest_within = 10 * core::kSecond;
    core::Time gpu_memory_within = 10 * core::kSecond;  // a driver that is asked for it has none
    // JobEngine::places_taken() of all jobs of one user; each may have a 512th, whatever others do.
    // Nobody is charged for that memory, some 500 MiB. And all of these jobs may end at once, which
    // takes the control thread some 3 us for each op.
    uint64_t places_per_user = 2 << 20;
  };

  DataThread(Lanes lanes, const Options& options, CommandBox* commands, EventBox* events);
  ~DataThread();

  // Until StopData.
  void run();
  // After that: whether GPUs are still at work with memory that was lent to them.
  bool gpus_hang() const { return shared_.gpus.busy(); }

 private:
  using Jobs = std::map<JobId, std::unique_ptr<JobExecutor>>;

  // What one lane tells, with its number.
  class Ear final : public transport::Events {
   public:
    Ear(DataThread* thread, uint8_t lane) : thread_(thread), lane_(lane) {}
    Landing on_header(std::span<const std::byte> header, size_t payload_bytes) override {
      return thread_->on_header(lane_, header, payload_bytes);
    }
    void on_message(std::span<const std::byte> header, uint64_t cookie) override {
      thread_->on_message(lane_, header, cookie);
    }
    void on_landed_on_host(uint64_t cookie) override { thread_->on_landed_on_host(cookie); }
    void on_aborted(uint64_t cookie) override { thread_->on_aborted(cookie); }
    void on_sent(PeerId, uint64_t token, bool) override { thread_->on_sent(token); }
    void on_lost(PeerId peer, const std::string& why) override {
      thread_->on_lost(lane_, peer, why);
    }

   private:
    DataThread* const thread_;
    const uint8_t lane_;
  };

  std::shared_ptr<const void> enter_gpus() const;
  int do_work(core::Time now);
  void rest(core::Time now);

  // apply_command.cc
  int take_commands();
  void apply(InstallJob& install);
  // rings.cc
  void apply(OpenRing& open);
  void apply(LendSegment& lend);
  void apply(const LetGoOfGpuMemory& let_go);
  void apply(const TakeBackSegment& back);
  void apply(const CloseRing& close);
  SessionRing* ring_of(SessionId session);
  int serve_rings();
  int take_submissions(SessionId session, SessionRing& ring);
  bool rest_rings();
  void rise_rings(std::span<const pollfd> bells);
  // apply_command.cc
  bool has_room(const core::JobEngine& job) const;
  void apply(const Submit& submit);
  void refuse(const Submit& submit, const std::string& why);
  void end(const Submit& submit, const core::Outcome& outcome);
  int pass_gate();
  void submit_held(const JobId& id, JobExecutor& job);
  void end_held(const Failure& why, const std::function<bool(const Submit&)>& wanted);
  void apply(const LeaveRank& leave);
  void apply(const FailJob& fail);
  void apply(const MemberGone& gone);
  void apply(const FreezeJob& freeze);
  void apply(const AdoptView& adopt);
  void apply(const SetGrows& set);
  void apply(const RemoveJob& remove);
  void apply(const SetWeight& set);
  void share_wires();
  // await_memory.cc
  void pin_memory(JobExecutor& job);
  void apply(const MemoryPinned& pinned) { have_memory(pinned.job); }
  void have_memory(const JobId& id);
  void refuse_job(const JobId& id, const std::string& why);
  void prepare_ride(JobExecutor& job, const core::EngineOptions& engine);
  void apply(const GpuStagingMade& made) { let_ride(made.job); }
  void let_ride(const JobId& id);
  void go_by_host(const JobId& id);
  void look_at_awaited_memory(core::Time now);
  void let_ride_now(const std::function<bool(const Submit&)>& wanted);
  // apply_command.cc
  void apply(const SetGpuLanes& set) { shared_.lanes_near_gpu = set.near; }
  void apply(const SetTrace& trace) { shared_.flight->trace(trace.to); }
  void apply(const ExpectPeer& expect);
  void apply(const ConnectPeer& connect);
  void apply(const DisconnectPeer& disconnect);
  void apply(const SetLane& set);
  void apply(const DescribeJob& describe);
  void apply(const StartProbe& start) {
    prober_.start(start, options_.engine.plan.slice_bytes_max, !jobs_.empty());
  }
  void apply(const RefuseProbes& refuse) { prober_.refuse(refuse.all); }
  void apply(const StopData&) { running_ = false; }

  // arrive.cc
  using Landing = transport::Events::Landing;
  Landing on_header(uint8_t lane, std::span<const std::byte> header, size_t payload_bytes);
  void on_message(uint8_t lane, std::span<const std::byte> header, uint64_t cookie);
  void on_landed_on_host(uint64_t cookie);
  void on_aborted(uint64_t cookie);
  void on_sent(uint64_t token);
  void on_lost(uint8_t lane, PeerId peer, const std::string& why);
  std::optional<PeerId> sender_of(uint8_t lane, const Frame& frame);
  void count_strange(uint64_t token);
  void hear(PeerId peer, uint8_t lane);
  void lose_damaged(uint8_t lane, std::span<const std::byte> header);
  void deliver_frame(PeerId from, uint8_t lane, JobExecutor* job, const Frame& frame);
  void deliver_early_frame(uint8_t lane, const Frame& frame);
  int deliver_early_frames();
  // unbundle.cc
  Landing on_bundle(uint8_t lane, std::span<const std::byte> header, size_t payload_bytes);
  void take_apart(uint8_t lane, std::span<const std::byte> header, uint64_t number);

  int retry_sends();
  void give_back(const std::vector<uint64_t>& loans);
  int end_gpu_work();
  int pump_jobs();
  void free_removed_jobs();
  // A driver may wait for all that GPUs have to do before it gives anything back, and for ever
  // where one of them hangs, which is not to keep other jobs.
  template <typename T>
  void let_go(std::unique_ptr<T> memory_of_gpus) {
    if (memory_of_gpus == nullptr) return;
    makes_staging_.put([last = memory_of_gpus.release()] { delete last; });
  }
  void pulse(core::Time now);
  void tell_of_gpus();
  std::shared_ptr<const DataFigures> take_figures(core::Time now);
  void connect(PeerId peer, uint8_t lane);
  void close(PeerId peer, uint8_t lane);
  void close_transports();
  JobExecutor* find(const JobId& id);
  bool slices_under_way() const;

  const Options options_;
  CommandBox* const commands_;
  EventBox* const events_;
  const Lanes lanes_;
  std::vector<Ear> ears_;  // by lane
  ThreadOwner owner_;

  DataShared shared_;
  Prober prober_{&shared_};
  std::map<SessionId, std::unique_ptr<SessionRing>> rings_;
  Jobs jobs_;
  StreamGate gate_;
  using StagingMade = tl::expected<std::unique_ptr<GpuStaging>, Status>;
  struct AwaitedStaging {
    std::future<StagingMade> made;
    core::Time since = 0;
  };
  std::map<JobId, AwaitedStaging> staging_made_;  // by job, which may be over by then
  Worker makes_staging_;                          // on GPUs, and gives it back
  using Pinned = tl::expected<std::unique_ptr<transport::Registration>, Status>;
  struct AwaitedPin {
    std::future<Pinned> made;
    core::Time since = 0;
    bool late = false;  // and its job was told
  };
  std::map<JobId, AwaitedPin> pins_made_;  // likewise
  Worker pins_;  // by itself, since what gives memory back may wait for a GPU for ever
  // No longer anybody's, but pieces of their staging memory are still with the transport.
  std::vector<std::unique_ptr<JobExecutor>> removed_;
  std::vector<Command> taken_;  // kept for its capacity
  std::vector<pollfd> fds_;     // likewise

  // Frames of a job, or with a token, that we do not know, but whose InstallJob or ExpectPeer may
  // lie in the mailbox at this very moment: looked at once more when that has been emptied.
  std::vector<std::pair<uint8_t, Frame>> early_;  // with the lane
  std::vector<std::pair<uint8_t, Frame>> strange_;
  BundleMemory bundles_{kBundleBytesMax};  // that arrive

  bool running_ = true;
  core::Time now_ = 0;  // of this turn
  LookOn look_on_;
  LookOn look_on_streams_;  // from what is held at the gate until one of it passes
  core::Time next_pulse_ = 0;
  core::Time next_figures_ = 0;
  std::vector<JobFigures> ended_;  // for the next figures
  LoopWatch watch_;
  const bool under_mps_;        // as long as they work; then nobody may say
  bool gpus_given_up_ = false;  // and that was told
  uint64_t turns_ = 0;
  uint64_t heartbeats_ = 0;
  uint64_t ring_submissions_ = 0;
  uint64_t frames_forged_ = 0;
  uint64_t frames_malformed_ = 0;
  uint64_t frames_damaged_ = 0;
  uint64_t frames_stale_ = 0;
};

}  // namespace gradring::daemon
