#pragma once

// A town of daemons in one process, for stories about membership: messages wait in one queue for
// each direction of each connection, and the test decides what arrives when. Nodes are called a, b,
// c, ... What a trainer may rely on at every moment is checked here, so that no story needs to.

#include <gtest/gtest.h>

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "daemon/core/membership.h"

namespace gradring::core {

// Rank `rank` of `size` in job "train", launch "t", uid 1000. The session and the pid are the
// town's.
JoinRequest trainer(uint32_t rank, uint32_t size);
// The same in a job that goes on with one rank, and grows to eight.
JoinRequest elastic(uint32_t rank, uint32_t size);
// "Claims(0 2)", "Claims()", "Propose", "Reject(why)", ...
std::string name_of(const JobMessage& message);

inline std::string node_of(uint32_t rank) { return std::string(1, static_cast<char>('a' + rank)); }

class Town {
 public:
  // All daemons are connected with one another, unless told.
  explicit Town(uint32_t nodes, bool connected = true, const MembershipOptions& options = {});
  ~Town();

  Membership& at(const std::string& node);
  std::vector<std::string> nodes() const;

  // ---- connections ----
  void connect(const std::string& a, const std::string& b);
  // Both notice, and what was under way is lost.
  void cut(const std::string& a, const std::string& b);
  // The same, and each waits for the other to come back.
  void part(const std::string& a, const std::string& b);
  // Only `node` notices yet that `lost` is gone; what `node` had sent is still under way.
  void notice_loss(const std::string& node, const std::string& lost);
  bool connected(const std::string& node, const std::string& to) const;  // as node sees it
  // The daemon stops without a word: everybody loses it. A new one of the same name takes its
  // place, not connected yet.
  void crash(const std::string& node);

  // ---- trainers ----
  SessionId join(const std::string& node, JoinRequest request);
  std::optional<SessionId> try_join(const std::string& node, JoinRequest request);
  Status refused_join(const std::string& node, JoinRequest request);
  void leave(SessionId session);
  void die(SessionId session, const std::string& evidence = "killed by signal 9");
  int64_t pid_of(SessionId session) const;
  const JoinRequest& request_of(SessionId session) const { return trainers_.at(session).request; }
  const std::string& node_of(SessionId session) const { return trainers_.at(session).node; }

  // What became of a session.
  bool gone(SessionId session) const { return trainers_.at(session).gone; }
  bool waits(SessionId session) const;
  bool admitted(SessionId session) const;                  // and not closed since
  std::string refusal(SessionId session) const;            // why its join failed; "" if it did not
  std::optional<Failure> closed(SessionId session) const;  // why its job failed
  JobId job_of(SessionId session) const;                   // of the view it was admitted to

  // ---- messages ----
  bool deliver(const std::string& from, const std::string& to);  // the oldest; false: none
  void hold(const std::string& from, const std::string& to) { held_.insert({from, to}); }
  void release(const std::string& from, const std::string& to) { held_.erase({from, to}); }
  // Delivers everything that is not held, until nothing is under way. Engines report and are
  // drained meanwhile. Time stands still.
  void run();
  // The same, and time passes as far as view changes need it.
  void settle();
  std::vector<std::string> under_way(const std::string& from, const std::string& to) const;
  size_t under_way() const;
  const JobMessage& peek(const std::string& from, const std::string& to) const;

  // ---- engines ----
  // With this off, an engine whose trainers have left is drained when the test says so.
  bool drains_at_once = true;
  void drain(const std::string& node);
  // With this on, all engines that report stand at a join point.
  bool at_join_points = false;
  // One report that a view change has asked for; false: none is due.
  bool report(const std::string& node);
  size_t engines(const std::string& node) const;  // installed and not removed
  // Whether its one engine was told that somebody is to come in at the next join point.
  bool grows(const std::string& node) const;
  // Causes with which fail_engine was called on the node, in order.
  const std::vector<Failure>& failed_engines(const std::string& node) const;
  // Members that the engines of the node were told are gone.
  const std::vector<uint32_t>& gone_members(const std::string& node) const;

  void tick(Time by);       // lets time pass at all nodes
  std::string unreachable;  // what unreachable_peers() answers, everywhere
  Time now = 100 * kSecond;

 private:
  class Daemon;
  struct Trainer {
    std::string node;
    JoinRequest request;
    std::optional<JobId> admitted_to;
    std::optional<Status> refusal;
    std::optional<Failure> closed;
    bool gone = false;  // left or dead
  };
  Daemon& daemon(const std::string& node) const { return *daemons_.at(node); }
  bool agrees(const View& view);  // with whoever adopted this epoch before
  std::deque<JobMessage>& link(const std::string& from, const std::string& to) {
    return links_[{from, to}];
  }

  const MembershipOptions options_;
  std::map<std::string, std::unique_ptr<Daemon>> daemons_;
  std::map<std::pair<std::string, std::string>, std::deque<JobMessage>> links_;
  std::set<std::pair<std::string, std::string>> connected_;  // as the first notices
  std::set<std::pair<std::string, std::string>> held_;
  std::map<SessionId, Trainer> trainers_;
  std::map<std::pair<JobId, uint64_t>, View> views_;  // by job and epoch
  uint64_t seed_ = 1;
};

}  // namespace gradring::core
