#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "daemon/core/messages.h"
#include "daemon/core/report.h"
#include "daemon/core/time.h"
#include "daemon/core/view.h"

namespace gradring::core {

struct ViewChangeOptions {
  Time stagger = 30 * kMillisecond;  // the lowest node proposes at once, each other so much later
  Time answer_wait = 1 * kSecond;    // for members that may yet answer, once a quorum has
  Time retry = 1 * kSecond;          // a ballot that leads nowhere
  Time fail_patience = 500 * kMillisecond;  // policy fail, from the first decided loss
  Time quorum_wait = 60 * kSecond;          // policy elastic
  // The same, where no quorum can come of those that have not left for good: time for one that has
  // left and votes for its last life (rule R2).
  Time left_patience = 4 * kSecond;
  // Once a network brings a quorum back: time for its last connections. For so long afterwards it
  // has no other chance, since it may carry our words and no data.
  Time healing = 3 * kSecond;
  Time healed_pause = 60 * kSecond;
};

// What a node must not forget between two of its own lives (rule R1).
struct AcceptorRecord {
  uint64_t epoch = 0;
  Ballot promised;
  std::optional<Vote> accepted;
  std::optional<Report> report;
  std::optional<change::Commit> last_commit;

  bool operator==(const AcceptorRecord&) const = default;
};

// What a view change wants done. Calls come from inside its events and must not call back into it.
class ViewChangeActions {
 public:
  virtual ~ViewChangeActions() = default;

  virtual void send(const std::string& node, const JobMessage& message) = 0;
  // Stop this epoch's data plane and say what it knows: on_report() follows.
  virtual void freeze(uint64_t epoch) = 0;
  // The epoch is decided, and this node is a member of the next view, or it is not.
  virtual void adopt(const Proposal& proposal) = 0;
  virtual void exclude(const Proposal& proposal) = 0;
  // No quorum in time: this node must leave the job for good.
  virtual void give_up(const Failure& failure) = 0;
  // record() must be safe before the next send.
  virtual void record() = 0;
};

// How the members of a job agree on its next view: acceptor and proposer of one Paxos instance for
// each epoch, one after the other (docs/failure-protocol.md). Pure; one thread.
class ViewChange {
 public:
  ViewChange(std::string node, View view, const ViewChangeOptions& options,
             ViewChangeActions* actions);
  // Goes on from there after a restart of the daemon; before anything else.
  void restore(const AcceptorRecord& record);
  const AcceptorRecord& record() const { return record_; }

  // ---- reasons ----
  // A member is lost to this node, or (`for_good`) has left the job.
  void lost(const std::string& node, const Failure& failure, bool for_good, Time now);
  void found(const std::string& node, Time now);
  // It was done with the job before it was lost: nobody misses it, but it answers no more.
  void gone(const std::string& node) {
    gone_.insert(node);
    away_.erase(node);  // nor does it come back
    // Else a view for a table alone, which leaves nobody out, would wait for it for ever.
    pressing_ = pressing_ || wanted_ || frozen();
  }
  // A lane to this member broke and others go on: what was under way on it is lost. `why` is for
  // people.
  void lane_lost(const std::string& node, const std::string& why, Time now);
  // Is restarting: waited for, until found() or lost().
  void away(const std::string& node) { away_.insert(node); }
  // It does not come back, and is no member.
  void not_away(const std::string& node) { away_.erase(node); }
  // Silent for now: not waited for.
  void suspect(const std::string& node, bool suspected);
  // Something else asks for a new view. `at_once`: nobody else knows of it.
  void want(bool at_once, Time now);
  // All stand at a join point, and somebody waits to come in. Only the lowest member knows who: a
  // view that another proposes has the same members again, so the others give it time.
  void want_growth(Time now);
  // Another table for the same nodes; nobody is left out for that (rule V11).
  void want_tuning(const Tuning& tuning, Time now);
  void set_joiners(std::vector<Member> joiners) { joiners_ = std::move(joiners); }

  // ---- events ----
  void on_report(uint64_t epoch, Report report, Time now);
  void on_message(const std::string& from, const change::Prepare& message, Time now);
  void on_message(const std::string& from, const change::Promise& message, Time now);
  void on_message(const std::string& from, const change::Accept& message, Time now);
  void on_message(const std::string& from, const change::Accepted& message, Time now);
  void on_message(const std::string& from, const change::Commit& message, Time now);
  void on_message(const std::string& from, const change::Refuse& message, Time now);
  void on_message(const std::string& from, const change::Ask& message, Time now);
  void tick(Time now);

  // ---- questions ----
  // When tick() must be called at the latest; 0: nothing is due.
  Time next_deadline() const;
  const View& view() const { return view_; }
  bool frozen() const { return record_.report.has_value() || freezing_; }
  bool wanted() const { return wanted_; }
  bool is_lost(const std::string& node) const { return lost_.count(node) > 0; }
  const std::optional<change::Commit>& last_commit() const { return record_.last_commit; }
  // For people: what is being waited for.
  std::string doing() const;

 private:
  enum class Phase : uint8_t { kIdle, kPreparing, kAccepting };

  bool of_this_epoch(const std::string& from, uint64_t epoch);
  bool quorum(const std::set<std::string>& nodes, const View& next) const;
  template <typename Answers>
  bool quorum_of(const Answers& answers) const;
  bool quorum_possible() const;
  bool quorum_is_left() const;  // of members that may answer some day
  void want_by(Time turn, Time now);
  // V2b: a network that was away for all of us leaves nobody out once it is back.
  void note_cut_off(Time now);
  void renew_reachable();
  void tell_who_is_back(Time now);
  bool heals(Time now) const;
  bool has_all_back() const;
  std::map<std::string, Failure> losses_seen() const;
  size_t place() const;  // among the members that are not lost, by node id
  Time our_turn(Time from) const;
  void propose(Time now);
  void give_up_beaten();
  void ask_again(const std::string& node);
  void check_promises(Time now);
  void commit(const Vote& vote, Time now);
  void apply(const change::Commit& commit, Time now);
  // D7: false if the ballot is too old, or of another epoch; then that has been answered.
  bool promise(const std::string& from, uint64_t epoch, const Ballot& ballot, Time now);
  void answer_pending();
  void promise_to(const std::string& to, const Ballot& ballot);
  void accepted_to(const std::string& to, const Ballot& ballot);
  void postpone(Time now);
  void end_attempt(Time now);
  bool has_quorum() const;  // of promises
  void give_up_if_hopeless(Time now);
  void send_to_all(const JobMessage& message, const View& view);
  void send(const std::string& node, JobMessage message);
  bool awaits_some() const;
  Failure hopeless() const;

  const std::string node_;
  const ViewChangeOptions options_;
  ViewChangeActions* const actions_;
  View view_;
  AcceptorRecord record_;
  bool freezing_ = false;  // asked for a report
  // To be answered when the report is there.
  std::optional<std::pair<std::string, Ballot>> owed_promise_;
  std::optional<std::pair<std::string, change::Accept>> owed_accepted_;

  std::map<std::string, Failure> lost_;
  std::set<std::string> left_;  // for good
  Time left_since_ = 0;         // the last of them that was heard of
  std::set<std::string> gone_;
  std::set<std::string> suspected_;
  std::set<std::string> away_;
  bool cut_off_ = false;    // in this epoch no quorum could be reached
  Time healing_since_ = 0;  // a quorum is there again
  Time healed_ = 0;         // when that last led to a view
  std::vector<Member> joiners_;
  std::optional<Tuning> tuning_;  // wanted, for the same nodes
  bool pressing_ = false;         // somebody wants this epoch to end for more than a table
  std::string lanes_lost_;        // in this epoch, for people
  bool wanted_ = false;
  Time wanted_since_ = 0;
  Time lost_since_ = 0;
  Time propose_at_ = 0;  // not 0: an attempt of our own is due then

  Phase phase_ = Phase::kIdle;
  Time phase_since_ = 0;
  Time waiting_since_ = 0;  // for our turn: the last attempt of ours, or the first of another one
  int fruitless_ = 0;       // attempts of ours that reached no quorum, since the network changed
  Ballot highest_;          // heard of, in this epoch
  Ballot ballot_;
  std::map<std::string, change::Promise> promises_;
  std::set<std::string> accepted_by_;
  std::optional<Proposal> proposal_;
  std::vector<std::pair<std::string, JobMessage>> to_self_;
  bool delivering_ = false;
  bool over_ = false;  // gave up, or excluded
  Time now_ = 0;
};

}  // namespace gradring::core
