#pragma once

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/core/membership_town.h"

namespace gradring::core {

// One daemon: its membership, and what an engine and a session would make of its wishes.
class Town::Daemon : public MembershipActions {
 public:
  struct Engine {
    std::set<uint32_t> ranks;  // not left
    std::vector<SessionId> sessions;
    std::vector<Member> members;
    uint64_t epoch = 1;
    bool running = false;  // somebody was admitted
    bool failed = false;
    bool drained = false;
    bool idle = false;  // drained, perhaps in an earlier epoch, and nobody came in since
    bool frozen = false;
    bool grows = false;
  };

  Daemon(Town* town, std::string name, uint64_t seed)
      : town_(town), name_(std::move(name)), membership(name_, town->options_, seed, this) {}

  void send(const std::string& node, const JobMessage& message) override {
    EXPECT_NE(node, name_);
    if (town_->connected_.count({name_, node}) > 0) town_->link(name_, node).push_back(message);
  }

  void install(const View& view, const std::vector<SessionId>& sessions) override {
    EXPECT_EQ(fault_of(view), "");
    Engine engine;
    const Member& self = view.members.at(view.index_of(name_).value());
    EXPECT_EQ(sessions.size(), self.ranks.size());
    for (size_t i = 0; i < sessions.size(); ++i) {
      EXPECT_EQ(town_->trainers_.at(sessions[i]).request.rank, self.ranks[i].rank);
      engine.ranks.insert(self.ranks[i].rank);
    }
    engine.sessions = sessions;
    engine.members = view.members;
    engine.epoch = view.epoch;
    EXPECT_TRUE(engines.emplace(view.incarnation, engine).second) << "installed once";
  }

  void admit(SessionId session, const View& view) override {
    Trainer& who = town_->trainers_.at(session);
    EXPECT_FALSE(who.gone) << "nobody is there";
    EXPECT_FALSE(who.admitted_to || who.refusal) << "a join is answered once";
    EXPECT_EQ(engines.count(view.incarnation), 1u) << "admitted before there is an engine";
    who.admitted_to = view.incarnation;
    if (engines.count(view.incarnation) > 0) engines.at(view.incarnation).running = true;
  }

  void refuse(SessionId session, const Status& why) override {
    Trainer& who = town_->trainers_.at(session);
    EXPECT_FALSE(who.gone) << "nobody is there";
    EXPECT_FALSE(who.admitted_to || who.refusal) << "a join is answered once: " << why.message();
    EXPECT_FALSE(why.ok());
    EXPECT_NE(why.message(), "") << "errors are for people";
    who.refusal = why;
  }

  void leave_engine(const JobId& job, uint32_t rank, const Failure& why) override {
    ASSERT_EQ(engines.count(job), 1u) << "no such engine";
    EXPECT_EQ(engines.at(job).ranks.erase(rank), 1u) << "a rank leaves once";
    EXPECT_EQ(why.blame.rank, rank);
  }

  void fail_engine(const JobId& job, const Failure& failure) override {
    ASSERT_EQ(engines.count(job), 1u) << "no such engine";
    EXPECT_FALSE(engines.at(job).failed) << "a job fails once";
    engines.at(job).failed = true;
    failures.push_back(failure);
  }

  void member_gone(const JobId& job, uint32_t member, const Failure&) override {
    ASSERT_EQ(engines.count(job), 1u) << "no such engine";
    gone.push_back(member);
  }

  // The report comes when the engine's own thread gets to it.
  void freeze_engine(const JobId& job, uint64_t epoch) override {
    ASSERT_EQ(engines.count(job), 1u) << "no such engine";
    Engine& engine = engines.at(job);
    EXPECT_FALSE(engine.failed) << "asked for a report although it is over";
    EXPECT_FALSE(std::exchange(engine.frozen, true)) << "frozen once in an epoch";
    EXPECT_EQ(engine.epoch, epoch);
    reports_due_.emplace_back(job, epoch);
  }

  void adopt_engine(const JobId& job, const Proposal& proposal,
                    const std::vector<SessionId>& sessions) override {
    ASSERT_EQ(engines.count(job), 1u) << "no such engine";
    const View& view = proposal.view;
    EXPECT_EQ(fault_of(view), "");
    Engine& engine = engines.at(job);
    EXPECT_TRUE(engine.epoch < view.epoch) << "epochs count up";
    EXPECT_TRUE(town_->agrees(view)) << "another view of the same epoch was adopted elsewhere";
    const Member& self = view.members.at(view.index_of(name_).value());
    ASSERT_EQ(sessions.size(), self.ranks.size());
    engine.epoch = view.epoch;
    engine.members = view.members;
    engine.frozen = engine.drained = engine.grows = false;
    engine.running = true;
    std::set<uint32_t> ranks;
    for (size_t i = 0; i < sessions.size(); ++i) {
      const uint32_t rank = self.ranks[i].rank;
      const bool entered = self.ranks[i].since == view.epoch;
      if (entered) engine.idle = false;
      if (entered || engine.ranks.count(rank) > 0) ranks.insert(rank);
      if (sessions[i] == 0) continue;  // came in, and is gone already
      EXPECT_EQ(town_->trainers_.at(sessions[i]).request.rank, rank);
    }
    engine.ranks = std::move(ranks);
  }

  Tuning tuning_for(const View&, bool deterministic) override {
    Tuning table;
    table.fixed = deterministic;
    return table;
  }

  void set_grows(const JobId& job, bool grows) override {
    ASSERT_EQ(engines.count(job), 1u) << "no such engine";
    engines.at(job).grows = grows;
  }

  void view_changed(SessionId session, const View& view) override {
    const Trainer& who = town_->trainers_.at(session);
    EXPECT_FALSE(who.gone) << "nobody is there";
    EXPECT_EQ(who.admitted_to, std::optional<JobId>(view.incarnation)) << "was never in that job";
    EXPECT_FALSE(who.closed);
  }

  void close(SessionId session, const JobId& job, const Failure& failure) override {
    Trainer& who = town_->trainers_.at(session);
    EXPECT_FALSE(who.gone) << "nobody is there";
    EXPECT_EQ(who.admitted_to, std::optional<JobId>(job)) << "was never in that job";
    EXPECT_FALSE(who.closed) << "told once";
    EXPECT_NE(failure.cause, Cause::kNone);
    who.closed = failure;
  }

  void remove(const JobId& job) override {
    const auto it = engines.find(job);
    ASSERT_NE(it, engines.end()) << "removed once";
    if (it->second.running && !it->second.failed) {
      EXPECT_TRUE(it->second.idle || cut_off(it->second)) << "removed while it may be needed";
    }
    engines.erase(it);
  }

  std::string unreachable_peers() const override { return town_->unreachable; }

  void drain() {
    std::vector<JobId> empty;
    for (auto& [job, engine] : engines) {
      if (!engine.running || !engine.ranks.empty() || engine.drained || engine.frozen) continue;
      engine.drained = engine.idle = true;
      empty.push_back(job);
    }
    for (const JobId& job : empty) membership.engine_drained(job);
  }

  // False: no report is due.
  bool report() {
    if (reports_due_.empty()) return false;
    const auto [job, epoch] = reports_due_.front();
    reports_due_.pop_front();
    const auto engine = engines.find(job);
    if (engine == engines.end() || engine->second.failed) return true;
    Report report;
    if (town_->at_join_points) {
      OpReport& op = report.ops.emplace_back();
      op.key = {OpKey::kJoinSpace, 0};
      op.signature.emplace().collective = Collective::kJoinPoint;
      op.contributions = 1;
    }
    membership.engine_frozen(job, epoch, std::move(report));
    return true;
  }

 private:
  // From some member, so that it may wait in vain for the word that drains it.
  bool cut_off(const Engine& engine) const {
    return std::any_of(engine.members.begin(), engine.members.end(), [this](const Member& member) {
      return member.node != name_ && town_->connected_.count({name_, member.node}) == 0;
    });
  }

  Town* const town_;
  const std::string name_;
  std::deque<std::pair<JobId, uint64_t>> reports_due_;

 public:
  Membership membership;
  std::map<JobId, Engine> engines;
  std::vector<Failure> failures;
  std::vector<uint32_t> gone;
};

}  // namespace gradring::core
