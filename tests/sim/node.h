#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/core/epoch_gate.h"
#include "daemon/core/job_engine.h"
#include "daemon/core/membership.h"
#include "tests/sim/events.h"
#include "tests/sim/oracle.h"
#include "tests/sim/peers.h"

namespace gradring::sim {

class World;
class SimNode;
class Trainer;

// The executor of one job on one node: real memory, plain arithmetic.
class SimJob : public core::EngineActions, public std::enable_shared_from_this<SimJob> {
 public:
  SimJob(World* world, SimNode* node, const core::View& view, std::vector<Trainer*> locals);
  // As the next life of the daemon finds it.
  SimJob(World* world, SimNode* node, const SimJob& before);

  core::JobEngine& engine() { return engine_; }
  const core::JobEngine& engine() const { return engine_; }
  // Since when it is in this epoch.
  Time entered() const { return entered_; }
  void on_data(uint32_t from_node, const Frame& frame, const Payload& payload);
  void submit(Trainer* trainer, const core::Submission& submission);
  void adopt(const core::Proposal& proposal, std::vector<Trainer*> locals);
  void wake();
  void check_nothing_kept() const;

  void fold(const core::FoldOrder& order) override;
  void sum(const core::SumOrder& order) override;
  void deliver(const core::Op& op, uint32_t slice, core::Staging from) override;
  std::optional<uint32_t> keep(const core::Op& op, uint32_t slice) override;
  void drop(uint32_t kept) override;
  void fetch(const core::Op& op, uint32_t slice, core::Staging to) override;
  std::optional<core::ResultDigest> digest(const core::Op& op) override;
  void send(uint32_t member, const Frame& frame) override;
  void send_slice(uint32_t member, const Frame& frame, core::Staging from) override;
  void send_direct(uint32_t member, const Frame& frame, core::Staging from) override;
  void moves(const core::Op&) override {}
  void complete(uint32_t rank, uint64_t ticket, const core::Outcome& outcome) override;
  void fail_job(const Failure& failure) override;
  void absent(const core::Absence& absence) override;
  void at_join_point() override;
  void stand_in(uint32_t rank, const OpKey& key, const std::optional<Signature>&) override;
  void condemned(const Failure& failure) override;

 private:
  // A submission's buffers are lent until it ends, even if its trainer is dead by then.
  struct Lent {
    Trainer* trainer = nullptr;
    core::SessionId session = 0;
    std::shared_ptr<std::vector<std::byte>> memory;
  };
  Value& staging(core::Staging at);
  void deliver_value(const core::Op& op, uint32_t slice, const Value& value);
  void on_parcel(uint32_t member, const Frame& frame, const Payload& payload);
  void made(Value* value, size_t length) const;
  const Lent& lent(const core::Submission& submission) const {
    return lent_.at(key_of(submission));
  }
  static std::pair<uint32_t, uint64_t> key_of(const core::Submission& submission) {
    return {submission.rank, submission.ticket};
  }
  OpId identity(const core::Op& op) const;
  void tear(const Frame& frame, const Value& payload);
  void wire(const std::string& to, Frame frame, core::Staging from);
  void pump();
  void tell_control(std::function<void(core::Membership&)> what);

  World* const world_;
  SimNode* const node_;
  std::map<uint32_t, Trainer*> locals_;  // by rank
  core::JobEngine engine_;
  Time entered_ = 0;
  std::vector<Value> slots_;
  std::vector<Value> starts_;
  std::deque<Value> units_;
  std::map<uint32_t, Value> kept_;
  std::map<std::pair<uint32_t, uint64_t>, Lent> lent_;
  std::map<std::pair<OpId, uint32_t>, Passes> passes_;  // of finals that lie in outputs
  core::EpochGate<uint32_t> gate_;
  uint32_t next_kept_ = 0;
  core::EngineRecord journal_;
  std::map<std::pair<uint32_t, uint64_t>, core::Outcome> told_;  // by rank and ticket
  bool pump_due_ = false;
  bool told_drained_ = false;
};

// One daemon: its membership, its jobs, and two mailboxes between the planes, as the real one has.
class SimNode : public core::MembershipActions {
 public:
  SimNode(World* world, uint32_t index, uint64_t life);

  const std::string& name() const { return name_; }
  uint32_t index() const { return index_; }
  bool alive() const { return alive_; }
  void crash(bool comes_back) {
    alive_ = false;
    comes_back_ = comes_back;
  }
  // Another life of the daemon is to follow, for the same trainers.
  bool comes_back() const { return comes_back_; }
  void remember(const SimNode& before);
  // Knows what the last life has promised, and nothing else.
  void testify(const SimNode& before);
  bool testifies(const JobId& job) const { return has_record(job) && !has_engine(job); }
  // Sessions of the last life.
  bool has_record(const JobId& job) const { return records_.count(job) > 0; }
  std::vector<core::SessionId> known_sessions() const;
  // By the records of the last life, as a daemon does: somebody to be met again.
  bool expects(const std::string& node) const;
  void pause() { paused_ = true; }
  void resume();
  bool paused() const { return paused_; }
  Time woken() const { return woken_; }
  core::Membership& membership() { return membership_; }
  // Null where everybody is linked with everybody.
  SimPeers* peers() { return peers_ ? &*peers_ : nullptr; }
  size_t engines() const { return jobs_.size(); }
  const SimJob* job(const JobId& id) const {
    const auto it = jobs_.find(id);
    return it == jobs_.end() ? nullptr : it->second.get();
  }
  bool has_engine(const JobId& job) const { return jobs_.count(job) > 0; }
  std::string doing() const;  // for people

  // Does it on this node: now, when the node goes on, or never.
  void run(const std::function<void()>& what);
  void retune(const core::Tuning& tuning);
  void submit(const JobId& job, Trainer* trainer, const core::Submission& submission);
  void input_came(const JobId& job, Trainer* trainer, const core::Submission& submission);
  void to_control(std::function<void()> what);
  void to_data(std::function<void()> what);
  void on_data(uint32_t from, const Frame& frame, const Payload& payload);
  void tick();

  void send(const std::string& node, const core::JobMessage& message) override;
  void install(const core::View& view, const std::vector<core::SessionId>& sessions) override;
  void admit(core::SessionId session, const core::View& view) override;
  void refuse(core::SessionId session, const Status& why) override;
  void leave_engine(const JobId& job, uint32_t rank, const Failure& why) override;
  void fail_engine(const JobId& job, const Failure& failure) override;
  void member_gone(const JobId& job, uint32_t member, const Failure& failure) override;
  void freeze_engine(const JobId& job, uint64_t epoch) override;
  void adopt_engine(const JobId& job, const core::Proposal& proposal,
                    const std::vector<core::SessionId>& sessions) override;
  void set_grows(const JobId& job, bool grows) override;
  core::Tuning tuning_for(const core::View& view, bool) override;
  // One that ended in the midst of an act writes down no more of it.
  void record(const core::JobRecord& record) override {
    if (alive_) records_[record.view.incarnation] = record;
  }
  void forget(const JobId& job) override {
    if (alive_) records_.erase(job);
  }
  void view_changed(core::SessionId session, const core::View& view) override;
  void close(core::SessionId session, const JobId& job, const Failure& failure) override;
  void remove(const JobId& job) override;
  std::string unreachable_peers() const override { return ""; }

 private:
  void testify(const core::JobRecord& record);
  std::vector<Trainer*> trainers_of(const std::vector<core::SessionId>& sessions) const;
  void with_job(const JobId& job, std::function<void(SimJob&)> what);
  void to_trainer(core::SessionId session, std::function<void(Trainer&)> what);
  void schedule_tick();
  void tick_peers();
  void need_members(const core::View& view);
  void report(SimJob* sim, const JobId& job, uint64_t epoch);

  World* const world_;
  const uint32_t index_;
  const std::string name_;
  bool alive_ = true;
  bool comes_back_ = false;
  bool paused_ = false;
  Time woken_ = -core::kSecond;
  std::deque<std::function<void()>> backlog_;
  Time tick_at_ = 0;
  Time peers_at_ = 0;
  std::optional<SimPeers> peers_;
  core::Membership membership_;
  std::map<JobId, std::shared_ptr<SimJob>> jobs_;
  std::map<JobId, core::JobRecord> records_;
  Fifo control_mail_;
  Fifo data_mail_;
};

}  // namespace gradring::sim
