#pragma once

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
    bool running = false;  // somebody was admitted
    bool failed = false;
    bool drained = false;
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

  void leave_engine(const JobId& job, uint32_t rank) override {
    ASSERT_EQ(engines.count(job), 1u) << "no such engine";
    EXPECT_EQ(engines.at(job).ranks.erase(rank), 1u) << "a rank leaves once";
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
      EXPECT_TRUE(it->second.drained) << "removed while it may be needed";
    }
    engines.erase(it);
  }

  std::string unreachable_peers() const override { return town_->unreachable; }

  void drain() {
    std::vector<JobId> empty;
    for (auto& [job, engine] : engines) {
      if (!engine.running || !engine.ranks.empty() || engine.drained) continue;
      engine.drained = true;
      empty.push_back(job);
    }
    for (const JobId& job : empty) membership.engine_drained(job);
  }

 private:
  Town* const town_;
  const std::string name_;

 public:
  Membership membership;
  std::map<JobId, Engine> engines;
  std::vector<Failure> failures;
  std::vector<uint32_t> gone;
};

}  // namespace gradring::core
