// The membership of a large cluster over few links: a job over all of its nodes forms, nodes die,
// the others agree on the next view. GRADRING_TOWN_NODES=1024 for more nodes than a test has time
// for.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>

#include "daemon/core/membership.h"
#include "tests/core/membership_town.h"
#include "tests/core/peer_town.h"
#include "tests/sanitized.h"

namespace gradring::core {
namespace {

uint32_t nodes_of_town() {
  const char* said = std::getenv("GRADRING_TOWN_NODES");
  if (said == nullptr) return kSanitized ? 80 : 128;
  return static_cast<uint32_t>(std::strtoul(said, nullptr, 10));
}

class Cluster {
 public:
  explicit Cluster(uint32_t count) : town(count, {}) {
    for (uint32_t place = 0; place < count; ++place) {
      daemons.push_back(std::make_unique<Daemon>(this, place));
    }
    town.on_up = [this](uint32_t at, uint32_t peer) {
      daemons[at]->membership.peer_up(name(peer));
    };
    town.on_down = [this](uint32_t at, const PeerTown::Loss& loss) {
      const Cause cause = loss.silent ? Cause::kPeerSilent : Cause::kPeerLost;
      daemons[at]->membership.peer_lost(name(loss.peer), cause, loss.why);
    };
    town.on_message = [this](uint32_t at, uint32_t from, const std::string& body) {
      const auto it = letters.find(std::stoull(body));
      ASSERT_NE(it, letters.end()) << "delivered twice";
      const JobMessage message = std::move(it->second);
      letters.erase(it);
      daemons[at]->membership.on_message(name(from), message, town.now);
    };
  }

  const std::string& name(uint32_t place) const { return town.overlay().name_at(place); }

  void run(Time span) {
    for (const Time end = town.now + span; town.now < end;) {
      town.run(kMillisecond);
      for (uint32_t place = 0; place < town.count(); ++place) {
        if (!town.alive(place)) continue;
        Daemon& daemon = *daemons[place];
        daemon.report();
        const Time due = daemon.membership.next_deadline();
        const bool beat = town.now % (250 * kMillisecond) == 0;
        if (beat || (due != 0 && due <= town.now)) daemon.membership.tick(town.now);
      }
    }
  }
  // False: it never came to be.
  bool wait(Time most, const std::function<bool()>& done) {
    for (const Time end = town.now + most; town.now < end;) {
      if (done()) return true;
      run(10 * kMillisecond);
    }
    return done();
  }
  bool all_in(uint64_t epoch_least, uint32_t size) const {
    for (uint32_t place = 0; place < town.count(); ++place) {
      const Daemon& daemon = *daemons[place];
      if (!town.alive(place)) continue;
      if (!daemon.view || daemon.view->epoch < epoch_least || daemon.view->members.size() != size)
        return false;
    }
    return true;
  }

  // For people: how many nodes are in which view, and what they were refused for.
  std::string where_all_are() const {
    std::map<std::string, uint32_t> seen;
    for (uint32_t place = 0; place < town.count(); ++place) {
      const Daemon& daemon = *daemons[place];
      if (!town.alive(place)) continue;
      const std::string in = daemon.view
                                 ? "epoch " + std::to_string(daemon.view->epoch) + " with " +
                                       std::to_string(daemon.view->members.size()) + " members, " +
                                       daemon.view->explanation
                                 : "no view";
      ++seen[in + (daemon.refusal.empty() ? "" : ", refused: " + daemon.refusal)];
    }
    std::string text;
    for (const auto& [what, nodes] : seen) text += std::to_string(nodes) + " in " + what + "\n";
    return text;
  }

  struct Daemon : MembershipActions {
    Daemon(Cluster* in, uint32_t at)
        : cluster(in), place(at), membership(in->name(at), MembershipOptions{}, 900 + at, this) {}
    void send(const std::string& node, const JobMessage& message) override {
      const uint64_t number = ++cluster->written;
      ++sent;
      if (std::holds_alternative<Claims>(message)) ++claims;
      cluster->letters.emplace(number, message);
      const uint32_t to = *cluster->town.overlay().place_of(node);
      if (!cluster->town.send(place, to, std::to_string(number))) cluster->letters.erase(number);
    }
    void install(const View&, const std::vector<SessionId>&) override {}
    void admit(SessionId, const View& entered) override { view = entered; }
    void refuse(SessionId, const Status& why) override { refusal = why.message(); }
    void leave_engine(const JobId&, uint32_t, const Failure&) override {}
    void fail_engine(const JobId&, const Failure& failure) override { refusal = describe(failure); }
    void member_gone(const JobId&, uint32_t, const Failure&) override {}
    void freeze_engine(const JobId& job, uint64_t epoch) override { due.emplace_back(job, epoch); }
    void adopt_engine(const JobId&, const Proposal& proposal,
                      const std::vector<SessionId>&) override {
      view = proposal.view;
    }
    void set_grows(const JobId&, bool) override {}
    void view_changed(SessionId, const View&) override {}
    void close(SessionId, const JobId&, const Failure& failure) override {
      refusal = describe(failure);
    }
    void remove(const JobId&) override {}
    std::string unreachable_peers() const override { return ""; }
    void report() {
      while (!due.empty()) {
        const auto [job, epoch] = due.front();
        due.pop_front();
        membership.engine_frozen(job, epoch, Report{});
      }
    }

    Cluster* const cluster;
    const uint32_t place;
    std::deque<std::pair<JobId, uint64_t>> due;
    std::optional<View> view;
    std::string refusal;
    uint64_t sent = 0, claims = 0;
    Membership membership;
  };

  // Of each node the most.
  struct Figures {
    uint64_t messages = 0, claims = 0, parcels = 0, notices = 0, heartbeats = 0;
  };
  Figures figures() {
    Figures most;
    for (uint32_t place = 0; place < town.count(); ++place) {
      Daemon& daemon = *daemons[place];
      most.messages = std::max(most.messages, std::exchange(daemon.sent, 0));
      most.claims = std::max(most.claims, std::exchange(daemon.claims, 0));
      most.parcels = std::max(most.parcels, town.sent(place).parcels);
      most.notices = std::max(most.notices, town.sent(place).notices);
      most.heartbeats = std::max(most.heartbeats, town.sent(place).heartbeats);
    }
    town.forget_sent();
    return most;
  }
  void print(const char* what) {
    const Figures most = figures();
    std::printf(
        "%s: at most %lu messages a node, %lu of them claims; %lu parcels with those passed "
        "on, %lu notices, %lu heartbeats\n",
        what, most.messages, most.claims, most.parcels, most.notices, most.heartbeats);
  }

  PeerTown town;
  std::vector<std::unique_ptr<Daemon>> daemons;
  std::unordered_map<uint64_t, JobMessage> letters;
  uint64_t written = 0;
};

TEST(PeerNetMembership, AJobOverAllNodesFormsAndOutlivesDeaths) {
  const uint32_t count = nodes_of_town();
  Cluster cluster(count);
  ASSERT_FALSE(cluster.town.overlay().full_mesh());
  ASSERT_TRUE(cluster.wait(5 * kSecond, [&] { return cluster.town.all_up(); }));
  cluster.print("nodes meet");

  for (uint32_t place = 0; place < count; ++place) {
    JoinRequest request = trainer(place, count);
    request.policy = "elastic";
    request.session = place + 1;
    request.pid = 1000;
    ASSERT_TRUE(cluster.daemons[place]->membership.join(request, cluster.town.now).ok());
  }
  const Time joined = cluster.town.now;
  ASSERT_TRUE(cluster.wait(10 * kSecond, [&] { return cluster.all_in(1, count); }));
  std::printf("formed in %.3f s\n", static_cast<double>(cluster.town.now - joined) / kSecond);
  cluster.print("the job forms");

  // One closes, two fall silent, and then the one that would propose closes as well.
  const Time died = cluster.town.now;
  cluster.town.kill(count / 2);
  cluster.town.kill(count / 3, true);
  cluster.town.kill(count - 2, true);
  cluster.town.kill(0);
  ASSERT_TRUE(cluster.wait(20 * kSecond, [&] { return cluster.all_in(2, count - 4); }))
      << cluster.where_all_are();
  const double took = static_cast<double>(cluster.town.now - died) / kSecond;
  std::printf("the rest goes on after %.3f s\n", took);
  EXPECT_LT(took, 5.0) << "within the bound of the contract";
  cluster.print("four nodes die");
  for (uint32_t place = 0; place < count; ++place) {
    if (!cluster.town.alive(place)) continue;
    EXPECT_EQ(cluster.daemons[place]->refusal, "");
  }
}

}  // namespace
}  // namespace gradring::core
