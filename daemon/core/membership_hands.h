#pragma once

#include <string>
#include <utility>

#include "daemon/core/membership.h"
#include "daemon/core/planted.h"
#include "proto/policy.h"

namespace gradring::core {

// The hands of one job's view change. What it decides is carried out only when it has returned, in
// order: that may end the job, and the view change with it.
class Membership::Hands final : public ViewChangeActions {
 public:
  Hands(Membership* membership, const JobId& job) : membership_(membership), job_(job) {}

  void send(const std::string& node, const JobMessage& message) override {
    membership_->send(node, message);
  }
  void record() override { membership_->save(membership_->live_.at(job_)); }
  void freeze(uint64_t epoch) override {
    decide([m = membership_, job = job_, epoch](Live& live) {
      live.hands->lost_when_frozen_ = live.lost.size();
      if (!live.failure) m->actions_->freeze_engine(job, epoch);
    });
  }
  void adopt(const Proposal& proposal) override {
    decide([m = membership_, proposal](Live& live) { m->adopt(live, proposal); });
  }
  void exclude(const Proposal& proposal) override {
    decide([m = membership_, proposal](Live& live) { m->leave_excluded(live, proposal); });
  }
  void give_up(const Failure& failure) override {
    decide([m = membership_, job = job_, failure](Live& live) {
      if (planted(Bug::kGaveUpButStays)) {
        m->actions_->fail_engine(job, failure);
        for (const SessionId session : live.present) m->actions_->close(session, job, failure);
        return;
      }
      const bool elastic = parse_policy(live.view.policy).value_or(Policy{}).elastic;
      // Where nobody else is there to agree with, what happened here is the reason.
      const bool alone = failure.cause == Cause::kNoQuorum && !elastic && !live.lost.empty();
      m->fail_job(live, alone ? live.lost.front().failure : failure, "",
                  elastic ? Tell::kLeft : Tell::kAll);
    });
  }

  // So many of Live::lost the engine knew of when it was to report. Whoever was lost since has
  // left it inputs that it counts on.
  size_t lost_when_frozen() const { return lost_when_frozen_; }

 private:
  template <typename Kind>
  void decide(Kind decision) {
    membership_->live_.at(job_).decisions.emplace_back(std::move(decision));
  }

  Membership* const membership_;
  const JobId job_;
  size_t lost_when_frozen_ = 0;
};

// Where the job has failed nothing is agreed on any more, whatever was under way then.
template <typename Act>
void Membership::with_change(const JobId& job, Act act) {
  const auto it = live_.find(job);
  if (it == live_.end() || !it->second.change || it->second.failure) return;
  act(*it->second.change);
  carry_out(job);
}

}  // namespace gradring::core
