// Everything at once, in orders drawn from a seed: trainers come and go, daemons crash, connections
// break on one side first, messages take their time. When the storm is over, nobody may be left
// waiting, nobody may be told what is not so, and nothing may be left behind.

#include <algorithm>

#include "daemon/core/random.h"
#include "tests/core/membership_town.h"

namespace gradring::core {
namespace {

MembershipOptions options_of(uint64_t seed) {
  MembershipOptions options;
  options.claims_pause = seed % 2 == 0 ? 20 * kMillisecond : 0;
  return options;
}

class Storm {
 public:
  explicit Storm(uint64_t seed, const std::string& policy = "fail", bool groups = false)
      : random_(seed),
        policy_(policy),
        groups_(groups),
        town_(static_cast<uint32_t>(2 + seed % 3), true, options_of(seed)),
        names_(town_.nodes()) {}

  void rage(int steps) {
    for (int step = 0; step < steps; ++step) {
      const uint64_t what = random_.below(100);
      if (what < 60) {
        for (int tries = 0; tries < 8 && !town_.deliver(any_node(), any_node()); ++tries) {
        }
        town_.report(any_node());
      } else if (what < 70) {
        town_.tick(10 * kMillisecond);
      } else if (groups_ && what < 78) {
        rank_wants_a_group();
      } else if (what < 86) {
        trainer_comes();
      } else if (what < 89) {
        trainer_goes(true);
      } else if (what < 91) {
        trainer_goes(false);
      } else if (what < 93) {
        lose(any_node(), any_node());
      } else if (policy_ != "fail" && what < 94) {
        part(any_node(), any_node());
      } else if (policy_ != "fail" && what < 95) {
        comes_to_a_join_point();
      } else if (what < 97) {
        meet(any_node(), any_node());
      } else if (what < 98) {
        engine_fails();
      } else if (what < 99) {
        crash(any_node(), random_.below(2) == 0);
      } else {
        const Time unit = random_.below(2) == 0 ? kSecond : 20 * kMillisecond;
        town_.tick(static_cast<Time>(random_.below(50)) * unit);
      }
    }
  }

  // Faults are over: all meet again and everything under way arrives.
  void calm() {
    for (const std::string& a : names_) {
      for (const std::string& b : names_) {
        if (a >= b) continue;
        if (town_.connected(a, b) != town_.connected(b, a)) {
          lose(a, b);
          lose(b, a);
        }
        meet(a, b);
      }
    }
    town_.settle();
  }

  void check_nobody_was_told_what_is_not_so() {
    for (const SessionId session : sessions_) {
      if (!town_.admitted(session) || town_.gone(session)) continue;
      for (const SessionId other : sessions_) {
        if (town_.job_of(other) != town_.job_of(session)) continue;
        EXPECT_FALSE(town_.closed(other)) << "closed for one, open for another";
        EXPECT_EQ(dead_.count(other), 0u) << "a member is dead and this one was not told";
      }
      const View* view = town_.at(town_.node_of(session)).view_of(session);
      ASSERT_NE(view, nullptr);
      const auto admitted = std::count_if(sessions_.begin(), sessions_.end(), [&](SessionId other) {
        return town_.job_of(other) == view->incarnation;
      });
      EXPECT_EQ(static_cast<uint32_t>(admitted), view->size) << "admitted to a part of a job";
    }
  }

  // For nothing: all ranks of a job are there, and no job of that name.
  void check_who_is_complete_has_begun() {
    town_.tick(1 * kSecond);  // a guest asks whether it is still expected
    town_.settle();
    std::set<uint32_t> waiting;
    for (const SessionId session : sessions_) {
      if (!in_groups_.contains(session) && town_.admitted(session) && !town_.gone(session)) return;
      const JoinRequest& as = town_.request_of(session);
      if (as.within) continue;
      if (town_.waits(session) && as.size == 3) waiting.insert(as.rank);
    }
    EXPECT_LT(waiting.size(), 3u);
  }

  // For a rank that its job has lost no group waits.
  void check_no_group_waits_in_vain() {
    for (const auto& [session, rank] : in_groups_) {
      if (!town_.waits(session) || town_.gone(rank)) continue;  // who left may wait as it likes
      const Within& within = *town_.request_of(session).within;
      const View* view = town_.at(town_.node_of(session)).view_of(within.job);
      ASSERT_TRUE(view != nullptr && !view->closed) << "session " << session << " waits";
      for (const uint32_t needed : within.ranks) {
        EXPECT_TRUE(view->has(needed) && view->info_of(needed).since <= within.grown)
            << "session " << session << " of rank " << rank << " waits for rank " << needed;
      }
    }
  }

  // Nor does one whose ranks are all there.
  void check_complete_groups_have_begun() {
    std::map<std::pair<JobId, std::string>, uint32_t> waiting;
    for (const auto& [session, rank] : in_groups_) {
      const JoinRequest& as = town_.request_of(session);
      if (!town_.waits(session)) continue;
      EXPECT_LT((++waiting[{as.within->job, as.job + " " + as.token}]), as.size) << as.job;
    }
  }

  void check_nobody_waits_for_ever() {
    town_.tick(1000 * kSecond);
    town_.settle();
    for (const SessionId session : sessions_) {
      EXPECT_FALSE(town_.waits(session))
          << "session " << session << " on " << town_.node_of(session);
    }
  }

  void check_nothing_is_left_behind() {
    for (const SessionId session : sessions_) {
      if (!town_.gone(session)) town_.leave(session);
    }
    town_.settle();
    for (const std::string& node : names_) {
      EXPECT_EQ(town_.engines(node), 0u);
      EXPECT_EQ(town_.at(node).busy_jobs(), 0u);
      for (const JobInfo& info : town_.at(node).jobs()) {
        EXPECT_TRUE(info.state == JobState::kEnded || info.state == JobState::kFailed);
      }
    }
    // The name is free for a job of another size, elsewhere.
    std::vector<SessionId> last;
    const auto size = static_cast<uint32_t>(names_.size());
    for (uint32_t rank = 0; rank < size; ++rank) {
      last.push_back(town_.join(names_[size - 1 - rank], trainer(rank, size)));
    }
    town_.settle();
    for (const SessionId session : last) {
      EXPECT_TRUE(town_.admitted(session)) << town_.refusal(session);
    }
  }

  bool anybody_was_admitted() const {
    return std::any_of(sessions_.begin(), sessions_.end(),
                       [this](SessionId session) { return town_.job_of(session) != JobId{}; });
  }

 private:
  const std::string& any_node() { return names_[random_.below(names_.size())]; }

  // A launcher's view: each rank of a job of three has its usual node, but may be started anywhere,
  // sometimes twice, rarely with the wrong size. Who was refused or closed has left first.
  void trainer_comes() {
    for (const SessionId session : sessions_) {
      if (town_.closed(session) && !town_.gone(session)) town_.leave(session);
    }
    const auto rank = static_cast<uint32_t>(random_.below(3));
    const bool usual = random_.below(10) > 0;
    const std::string& node = usual ? names_[rank % names_.size()] : any_node();
    const uint32_t size = random_.below(50) == 0 ? 4 : 3;
    JoinRequest request = trainer(rank, size);
    request.policy = policy_;
    const auto session = town_.try_join(node, request);
    if (session) sessions_.push_back(*session);
  }

  void trainer_goes(bool in_good_order) {
    if (sessions_.empty()) return;
    const SessionId session = sessions_[random_.below(sessions_.size())];
    if (town_.gone(session)) return;
    if (in_good_order && town_.admitted(session)) return town_.leave(session);
    const SessionId rank = in_groups_.contains(session) ? in_groups_[session] : session;
    die(rank);
    for (const auto& [inner, outer] : in_groups_) {  // of the same process
      if (outer == rank) die(inner);
    }
  }

  void die(SessionId session) {
    if (town_.gone(session)) return;
    dead_.insert(session);
    town_.die(session);
  }

  // A rank of a job is to be one of a pair of its ranks.
  void rank_wants_a_group() {
    if (sessions_.empty()) return;
    const SessionId rank = sessions_[random_.below(sessions_.size())];
    if (in_groups_.contains(rank) || !town_.admitted(rank) || town_.gone(rank)) return;
    const std::string node = town_.node_of(rank);
    const View* view = town_.at(node).view_of(rank);
    const uint32_t self = town_.request_of(rank).rank;
    if (view == nullptr || !view->has(self) || view->size < 2) return;
    const auto other = static_cast<uint32_t>(random_.below(3));
    if (other == self || !view->has(other)) return;
    const std::vector<uint32_t> ranks = {std::min(self, other), std::max(self, other)};
    JoinRequest request = trainer(self == ranks[0] ? 0 : 1, 2);
    request.job = "train[" + std::to_string(ranks[0]) + ":" + std::to_string(ranks[1]) + "]";
    request.policy = policy_;
    request.within = Within{view->incarnation, view->grown, ranks};
    for (const auto& [inner, outer] : in_groups_) {  // one that it waits for, or is in, already
      if (outer == rank && !town_.gone(inner) && town_.request_of(inner).job == request.job) return;
    }
    if (const auto session = town_.try_join(node, request)) {
      in_groups_[*session] = rank;
      sessions_.push_back(*session);
    }
  }

  void lose(const std::string& node, const std::string& lost) {
    if (node != lost) town_.notice_loss(node, lost);
  }

  void part(const std::string& a, const std::string& b) {
    if (a != b && town_.connected(a, b) && town_.connected(b, a)) town_.part(a, b);
  }

  void meet(const std::string& a, const std::string& b) {
    if (a != b && !town_.connected(a, b) && !town_.connected(b, a)) town_.connect(a, b);
  }

  void comes_to_a_join_point() {
    if (sessions_.empty()) return;
    const SessionId session = sessions_[random_.below(sessions_.size())];
    if (!town_.admitted(session)) return;
    town_.at_join_points = random_.below(4) > 0;
    town_.at(town_.node_of(session)).engine_at_join_point(town_.job_of(session));
  }

  void engine_fails() {
    if (sessions_.empty()) return;
    const SessionId session = sessions_[random_.below(sessions_.size())];
    if (!town_.admitted(session)) return;
    town_.at(town_.node_of(session)).engine_failed(town_.job_of(session), {Cause::kProtocol, {}});
  }

  // With a last word to everybody it is a stop in good order.
  void crash(const std::string& node, bool last_word) {
    if (last_word) {
      town_.at(node).shut_down({Cause::kDrained, {}});
      for (const std::string& other : names_) {
        while (town_.deliver(node, other)) {
        }
      }
    }
    for (const SessionId session : sessions_) {
      if (town_.node_of(session) == node && !town_.gone(session)) dead_.insert(session);
    }
    town_.crash(node);
  }

  Random random_;
  const std::string policy_;
  const bool groups_;
  Town town_;
  const std::vector<std::string> names_;
  std::vector<SessionId> sessions_;
  std::map<SessionId, SessionId> in_groups_;  // and the rank of the job that they are within
  std::set<SessionId> dead_;
};

TEST(MembershipStorm, LeavesEverythingInOrder) {
  int with_jobs = 0;
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Storm storm(seed);
    storm.rage(150);
    storm.calm();
    storm.check_nobody_was_told_what_is_not_so();
    storm.check_nobody_waits_for_ever();
    storm.check_nothing_is_left_behind();
    with_jobs += storm.anybody_was_admitted() ? 1 : 0;
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(with_jobs, 250) << "the storm is so strong that nothing happens";
}

TEST(MembershipStorm, ElasticJobsToo) {
  for (uint64_t seed = 1; seed <= 4000; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Storm storm(seed, seed % 2 == 0 ? "elastic" : "elastic min=2");
    storm.rage(150);
    storm.calm();
    storm.check_who_is_complete_has_begun();
    storm.check_nobody_waits_for_ever();
    storm.check_nothing_is_left_behind();
    if (testing::Test::HasFailure()) return;
  }
}

TEST(MembershipStorm, GroupsWithinElasticJobsToo) {
  for (uint64_t seed = 1; seed <= 4000; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Storm storm(seed, seed % 2 == 0 ? "elastic" : "elastic min=2", true);
    storm.rage(250);
    storm.calm();
    storm.check_who_is_complete_has_begun();
    storm.check_no_group_waits_in_vain();
    storm.check_complete_groups_have_begun();
    storm.check_nobody_waits_for_ever();
    storm.check_nothing_is_left_behind();
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace gradring::core
