#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "daemon/data/job_executor.h"
#include "daemon/data/messages.h"
#include "daemon/thread_owner.h"
#include "transport/transport.h"

namespace gradring::daemon {

// For final slices of one job: as many of the largest as can be on their way round when an op
// completes here, within what is left of the job's limit.
uint64_t kept_bytes(const core::EngineOptions& engine, uint64_t staging_limit);

// Owns the transport, the engines of all jobs and their staging memory. Everything but the
// constructor and run() is for the thread that is in run().
class DataThread final : private transport::Events {
 public:
  struct Options {
    core::EngineOptions engine;
    uint64_t staging_limit = 0;  // bytes a job
    core::Time pulse = 250 * core::kMillisecond;
    FlightRing* flight = FlightRing::off();
    // Sessions outlive the daemon, and their trainers may ask the next one how their ops ended.
    bool remember_ends = false;
  };

  DataThread(std::unique_ptr<transport::Transport> transport, const Options& options,
             CommandBox* commands, EventBox* events);
  ~DataThread() override;

  // Until StopData.
  void run();

 private:
  using Jobs = std::map<JobId, std::unique_ptr<JobExecutor>>;

  int do_work(core::Time now);
  void rest(core::Time now);

  // apply_command.cc
  int take_commands();
  void apply(InstallJob& install);
  void apply(const Submit& submit);
  void apply(const LeaveRank& leave);
  void apply(const FailJob& fail);
  void apply(const MemberGone& gone);
  void apply(const FreezeJob& freeze);
  void apply(const AdoptView& adopt);
  void apply(const SetGrows& set);
  void apply(const RemoveJob& remove);
  void apply(const ExpectPeer& expect);
  void apply(const ConnectPeer& connect);
  void apply(const DisconnectPeer& disconnect);
  void apply(const DescribeJob& describe);
  void apply(const StopData&) { running_ = false; }

  // arrive.cc
  Landing on_header(std::span<const std::byte> header, size_t payload_bytes) override;
  void on_message(std::span<const std::byte> header, uint64_t cookie) override;
  void on_aborted(uint64_t cookie) override;
  void on_sent(PeerId peer, uint64_t token, bool ok) override;
  void on_lost(PeerId peer, const std::string& why) override;
  std::optional<PeerId> sender_of(const Frame& frame);
  void lose_damaged(std::span<const std::byte> header);
  void deliver_frame(PeerId from, JobExecutor* job, const Frame& frame);
  void deliver_early_frame(const Frame& frame);
  int deliver_early_frames();

  int retry_sends();
  void give_back(const std::vector<uint64_t>& loans);
  int pump_jobs();
  void free_removed_jobs();
  void pulse(core::Time now);
  void close_transport();
  JobExecutor* find(const JobId& id);
  bool slices_under_way() const;

  const Options options_;
  CommandBox* const commands_;
  EventBox* const events_;
  const std::unique_ptr<transport::Transport> transport_;
  ThreadOwner owner_;

  DataShared shared_;
  Jobs jobs_;
  // No longer anybody's, but pieces of their staging memory are still with the transport.
  std::vector<std::unique_ptr<JobExecutor>> removed_;
  std::vector<Command> taken_;  // kept for its capacity

  // Frames of a job, or with a token, that we do not know, but whose InstallJob or ExpectPeer may
  // lie in the mailbox at this very moment: looked at once more when that has been emptied.
  std::vector<Frame> early_;
  std::vector<Frame> strange_;

  bool running_ = true;
  core::Time now_ = 0;  // of this turn
  core::Time last_work_ = 0;
  core::Time next_pulse_ = 0;
  uint64_t turns_ = 0;
  uint64_t heartbeats_ = 0;
  uint64_t frames_forged_ = 0;
  uint64_t frames_malformed_ = 0;
  uint64_t frames_damaged_ = 0;
  uint64_t frames_stale_ = 0;
};

}  // namespace gradring::daemon
