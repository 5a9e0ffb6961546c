#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/core/job_engine.h"
#include "daemon/core/membership.h"
#include "tests/sim/events.h"

namespace gradring::sim {

class World;
class SimNode;
class Trainer;

// The executor of one job on one node: real memory, plain arithmetic.
class SimJob : public core::EngineActions, public std::enable_shared_from_this<SimJob> {
 public:
  SimJob(World* world, SimNode* node, const core::View& view, std::vector<Trainer*> locals);

  core::JobEngine& engine() { return engine_; }
  void on_data(uint32_t from_node, const Frame& frame, const std::vector<std::byte>& payload);
  void wake();
  void close() { closed_ = true; }
  bool closed() const { return closed_; }

  void fold(const core::FoldOrder& order) override;
  void deliver(const core::Op& op, uint32_t slice, core::Staging from) override;
  void send(uint32_t member, const Frame& frame) override;
  void send_slice(uint32_t member, const Frame& frame, core::Staging from) override;
  void complete(uint32_t rank, uint64_t ticket, const core::Outcome& outcome) override;
  void fail_job(const Failure& failure) override;

 private:
  std::byte* staging(core::Staging at);
  Trainer* local(uint32_t rank) const;
  void wire(uint32_t member, const Frame& frame, core::Staging from);
  void pump();

  World* const world_;
  SimNode* const node_;
  const std::vector<Trainer*> locals_;
  core::JobEngine engine_;
  std::vector<std::vector<std::byte>> slots_;
  std::vector<std::vector<std::byte>> starts_;
  bool pump_due_ = false;
  bool told_drained_ = false;
  bool closed_ = false;
};

// One daemon: its membership, its jobs, and two mailboxes between the planes, as the real one has.
class SimNode : public core::MembershipActions {
 public:
  SimNode(World* world, uint32_t index);

  const std::string& name() const { return name_; }
  uint32_t index() const { return index_; }
  bool alive() const { return alive_; }
  void crash() { alive_ = false; }
  core::Membership& membership() { return membership_; }
  size_t engines() const { return jobs_.size(); }

  void submit(const JobId& job, const core::Submission& submission);
  void to_control(std::function<void()> what);
  void to_data(std::function<void()> what);
  void on_data(uint32_t from, const Frame& frame, const std::vector<std::byte>& payload);
  void tick();

  void send(const std::string& node, const core::JobMessage& message) override;
  void install(const core::View& view, const std::vector<core::SessionId>& sessions) override;
  void admit(core::SessionId session, const core::View& view) override;
  void refuse(core::SessionId session, const Status& why) override;
  void leave_engine(const JobId& job, uint32_t rank) override;
  void fail_engine(const JobId& job, const Failure& failure) override;
  void member_gone(const JobId& job, uint32_t member, const Failure& failure) override;
  void close(core::SessionId session, const JobId& job, const Failure& failure) override;
  void remove(const JobId& job) override;
  std::string unreachable_peers() const override { return ""; }

 private:
  World* const world_;
  const uint32_t index_;
  const std::string name_;
  bool alive_ = true;
  core::Membership membership_;
  std::map<JobId, std::shared_ptr<SimJob>> jobs_;
  Fifo control_mail_;
  Fifo data_mail_;
};

}  // namespace gradring::sim
