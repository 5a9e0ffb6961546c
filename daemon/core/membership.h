#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "daemon/core/departed.h"
#include "daemon/core/job_engine.h"
#include "daemon/core/job_info.h"
#include "daemon/core/job_record.h"
#include "daemon/core/messages.h"
#include "daemon/core/random.h"
#include "daemon/core/time.h"
#include "daemon/core/view.h"
#include "daemon/core/view_change.h"
#include "daemon/core/witness.h"
#include "proto/status.h"
#include "proto/verdict.h"

namespace gradring::core {

// Of a job that has some ranks of another one, as that one was when it took ranks in last.
struct Within {
  JobId job{};
  uint64_t grown = 0;  // epoch
  std::vector<uint32_t> ranks;
};

// A trainer asks to be one rank of a job. uid and pid come from the kernel.
struct JoinRequest {
  SessionId session = 0;
  std::string job;
  std::string token;
  uint32_t rank = 0;
  uint32_t size = 0;
  uint32_t local_rank = 0;
  std::string policy;
  bool deterministic = false;  // for the whole job, whichever rank asks for it
  uint32_t uid = 0;
  int64_t pid = 0;
  Time timeout = 0;
  std::optional<Within> within;
};

// What membership wants done; calls come from inside its events and must not call back into it.
class MembershipActions {
 public:
  virtual ~MembershipActions() = default;

  virtual void send(const std::string& node, const JobMessage& message) = 0;
  // Make the data plane of the job; frames of it may arrive from now on. `sessions` in the order of
  // this node's ranks in the view.
  virtual void install(const View& view, const std::vector<SessionId>& sessions) = 0;
  // The view is complete everywhere: this session may submit.
  virtual void admit(SessionId session, const View& view) = 0;
  // The session's join failed; it claims nothing any more and may try again.
  virtual void refuse(SessionId session, const Status& why) = 0;
  // The rank submits nothing more: it left, or is dead.
  virtual void leave_engine(const JobId& job, uint32_t rank, const Failure& why) = 0;
  virtual void fail_engine(const JobId& job, const Failure& failure) = 0;
  // A member that had said it is done is lost: the engine's business only if somebody still needs
  // it.
  virtual void member_gone(const JobId& job, uint32_t member, const Failure& failure) = 0;
  // End the epoch: engine_frozen() is to follow.
  virtual void freeze_engine(const JobId& job, uint64_t epoch) = 0;
  // Begin the next one. `sessions` in the order of this node's ranks in the view.
  virtual void adopt_engine(const JobId& job, const Proposal& proposal,
                            const std::vector<SessionId>& sessions) = 0;
  // Whether ranks wait to be taken in at the next join point.
  virtual void set_grows(const JobId& job, bool grows) = 0;
  // The table that a job of ours begins with; a deterministic one keeps it, whatever it is.
  virtual Tuning tuning_for(const View&, bool) { return {}; }
  // Must be safe before anything else is sent (rule R1). Of no worth any more once the engine is
  // failed or the job removed.
  virtual void record(const JobRecord&) {}
  virtual bool keeps_records() const { return true; }  // else record() does nothing
  // Of a job without a data plane here: what was recorded of it is of no worth any more.
  virtual void forget(const JobId&) {}
  // Tells a trainer that it is in another view now.
  virtual void view_changed(SessionId session, const View& view) = 0;
  // Tells a member of a failed job, unasked.
  virtual void close(SessionId session, const JobId& job, const Failure& failure) = 0;
  // The data plane may go. Nothing of this job will be asked for again.
  virtual void remove(const JobId& job) = 0;
  // "10.0.0.2:7000 (connection refused)", for the text of a formation that ran out of time.
  virtual std::string unreachable_peers() const = 0;
};

struct MembershipOptions {
  Time form_deadline = 300 * kSecond;
  Time form_deadline_most = 0;  // for who asks for more; below form_deadline: that
  uint32_t jobs_max = 256;      // forming and live, on this node
  uint32_t job_size_max = 1 << 20;
  uint32_t history = 32;  // ended jobs that can still be asked about
  // Claims that follow others sooner are told together, as they are then: trainers may come and go
  // as fast as they like.
  Time claims_pause = 0;
  ViewChangeOptions change;
};

// Who is in which job. Gathers claims of ranks from all nodes, lets the daemon of rank 0 mint the
// incarnation and commit view 1 once (protocol rule J0), and ends a job everywhere when one part of
// it is lost. No coordinator: each node knows all claims and decides by the same rules. Pure; one
// thread.
class Membership {
 public:
  Membership(std::string node, const MembershipOptions& options, uint64_t seed,
             MembershipActions* actions);
  ~Membership();

  // ---- local trainers ----
  // A refusal is final for this request; else admit() or refuse() will follow.
  Status join(const JoinRequest& request, Time now);
  void leave(SessionId session);
  // The process is gone without leaving. `evidence`: "killed by signal 9", "exited with status 1".
  // Or it is of no more use, as one whose GPU is lost; `device` is that.
  void session_lost(SessionId session, const std::string& evidence, const std::string& device = "");

  // ---- peers: messages of a peer may come before peer_up (the other side was connected first),
  // never after peer_lost until its next hello ----
  void peer_up(const std::string& node);
  // kExcluded: it has given this node up, which is to blame.
  void peer_lost(const std::string& node, Cause cause, const std::string& evidence);
  // Its daemon ended and may come back with what it knew: then peer_up() follows, else peer_lost().
  void peer_away(const std::string& node);
  // A lane to it broke, and what was under way on it is lost; others go on. `why` is for people.
  void lane_lost(const std::string& node, const std::string& why);
  // Silent, but not lost yet.
  void peer_suspect(const std::string& node, bool suspected);
  void on_message(const std::string& from, const JobMessage& message, Time now);

  // ---- this node's data plane ----
  void engine_failed(const JobId& job, const Failure& failure);
  // All local trainers have left and nothing is under way here.
  void engine_drained(const JobId& job);
  void engine_frozen(const JobId& job, uint64_t epoch, Report report);
  void engine_absent(const JobId& job, const Absence& absence);
  void engine_at_join_point(const JobId& job);
  // Only another view than this one can say what becomes of one of its ops.
  void engine_condemned(const JobId& job, uint64_t epoch);
  // A member speaks in a later epoch on the data plane.
  void engine_behind(const JobId& job, const std::string& node);
  // A node speaks in an earlier one.
  void engine_ahead(const JobId& job, const std::string& node, uint64_t its_epoch);

  // Another table for a job that has nothing else to agree on; false if it has. Whether it came
  // about the next view tells. Every member must know what a table is.
  bool tune(const JobId& job, const Tuning& tuning);

  // ---- another life of this daemon (rule R1) ----
  // Before anything else happens, for each job recorded by the last one; its engine is there, in
  // this epoch. For each other member peer_up() or peer_lost() must follow.
  void restore(const JobRecord& record, uint64_t engine_epoch, Time now);
  // The same where the job's data plane did not outlive it: its ranks are lost, as `failure` says,
  // and of an elastic job the vote is left, for those who go on.
  void bear_witness(const JobRecord& record, const Failure& failure, Time now);

  void tick(Time now);
  // When tick() should be called again because of a view change, or of claims that wait to be told;
  // 0: nothing is due.
  Time next_deadline() const;

  // Fails every job and refuses every join from now on (the daemon stops).
  void shut_down(const Failure& failure);

  // ---- questions ----
  std::vector<JobInfo> jobs() const;
  // Forming and live jobs with trainers that have not left, or whose others may need these yet.
  size_t busy_jobs() const;
  // The names of those of them that are live.
  std::vector<std::string> live_jobs() const;
  // Whether this user has had jobs here since the daemon began, and nobody else has.
  bool all_jobs_ever_of(uint32_t uid) const { return first_uid_ == uid && !several_uids_; }
  // The live job a session is in.
  const View* view_of(SessionId session) const;
  const View* view_of(const JobId& job) const;

 private:
  struct GatheringKey {
    std::string job;
    std::string token;
    auto operator<=>(const GatheringKey&) const = default;
  };
  struct LocalClaim {
    JoinRequest request;
    uint64_t claim = 0;
    Time deadline = 0;
  };
  struct Gathering {
    uint32_t size = 0;  // as the first local claim says; 0 while only peers claim
    uint32_t uid = 0;
    std::string policy;
    Time since = 0;
    std::vector<LocalClaim> local;
    std::map<std::string, Claims> remote;  // by node
    std::set<uint32_t> went;               // ranks that claimed to be there, and did so no more
    JobId withdrawn{};                     // the last proposal that came back to gathering
    std::string explanation;
    std::pair<std::string, std::string> unwelcome;  // to the job that runs, as a node says, and why
  };
  struct Live;
  // What a view change decided inside a call to it; carried out when that has returned.
  using Decision = std::function<void(Live&)>;
  class Hands;
  struct Live {
    View view;
    std::string token;
    JobState state = JobState::kProposed;
    Time since = 0;
    std::vector<LocalClaim> local;  // in the order of our ranks in the view
    std::set<SessionId> present;    // neither left nor lost
    bool proposer = false;
    std::set<std::string> awaited;    // proposer: accepts still to come
    std::set<std::string> done;       // members that said JobDone; our own name when we said it
    std::set<std::string> left = {};  // of the others those whose ranks left in good order
    bool drained = false;
    std::optional<Failure> failure;  // over here
    std::string explanation;

    std::unique_ptr<Hands> hands;
    std::unique_ptr<ViewChange> change;  // from when the job runs
    std::deque<Decision> decisions;
    bool held = false;           // by an act that goes on with it: it does not end meanwhile
    std::vector<LostRank> lost;  // ranks of this node that the view still has
    std::map<std::string, Failure> lost_members = {};  // while it formed
    Time last_rank_lost = 0;  // of an elastic job: what it left behind may yet complete
    bool joining = false;     // proposed to us by a job that runs
    std::string inviter;      // by this member of it
    Time ask_at = 0;          // joining: whether we are still expected
    std::set<std::string> invited;
    std::map<std::string, Member> joiners;  // have accepted
    bool returned = false;  // from an earlier life, and not all members have been met yet
    std::optional<uint32_t> size_at_end = {};  // ranks before the view that is closed
  };

  bool lose_while_forming(const JobId& job, const std::string& node);
  void ask_if_committed(const std::string& proposer);
  bool awaits_commit_of(const Live& live, const std::string& node) const;

  // claim.cc
  Status check_join(const JoinRequest& request) const;
  void publish(const GatheringKey& key, const Gathering& gathering);
  void say_claims();
  void send(const std::string& node, const JobMessage& message);
  void on_claims(const std::string& from, const Claims& claims, Time now);
  bool in_conflict(const Gathering& gathering) const;
  std::string conflict_of(const GatheringKey& key, const Gathering& gathering) const;
  void fail_gathering(const GatheringKey& key, const Status& why);
  void drop_claim(const GatheringKey& key, SessionId session);
  void settle(const GatheringKey& key);
  void settle_all();
  static std::string who(uint32_t rank, const std::string& node, int64_t pid);
  static std::vector<bool> present_ranks(const Gathering& gathering);
  static MissingRanks missing_ranks(const Gathering& gathering);
  static std::string say_missing(const Gathering& gathering);  // there are some
  std::string describe_missing(const GatheringKey& key, const Gathering& gathering) const;
  std::string of_other_launch(const GatheringKey& key, const Gathering& gathering) const;
  static void note_who_went(const std::string& node, const Claims& now, Gathering* gathering);

  // form.cc
  static bool is_deterministic(const Gathering& gathering);
  // What of it a job that forms takes: ranks beyond its size are guests, once it runs.
  static std::vector<LocalClaim> claims_within(const Gathering& gathering);
  static void keep_beyond(Gathering* gathering);
  void propose_if_complete(const GatheringKey& key);
  void on_propose(const std::string& from, const Propose& propose);
  enum class Fit { kYes, kNever, kStale, kNotYet };
  Fit fits(const std::string& from, const Propose& propose, std::string* why) const;
  void retry_deferred();
  void expire_proposals();
  void on_accept(const std::string& from, const Accept& accept);
  void on_reject(const std::string& from, const Reject& reject);
  void on_commit(const std::string& from, const Commit& commit);
  void install(const View& view, const GatheringKey& key, bool proposer);
  void run(Live& live);
  void retire_claims(const GatheringKey& key);
  void return_to_gathering(const JobId& job);
  void refuse_proposed(const JobId& job, const Status& why);

  // change.cc
  void begin_changes(Live& live);
  template <typename Act>
  void with_change(const JobId& job, Act act);
  void carry_out(const JobId& job);
  void hold(const JobId& job, const Decision& act);
  void leave_excluded(Live& live, const Proposal& proposal);
  void adopt(Live& live, const Proposal& proposal);
  void lose_rank(Live& live, uint32_t rank, const Failure& failure);
  void want_change(const JobId& job, bool at_once);
  void lose_unconnected(const JobId& job);
  void tick_changes();
  template <typename Message>
  void on_change(const std::string& from, const Message& message);
  void on_left(const std::string& from, const Left& left);
  const change::Commit* retell(const std::string& from, const JobId& job, uint64_t epoch);
  bool takes_part(const std::string& from, Live* live, const JobId& job, uint64_t epoch);

  // join.cc
  void invite(Live& live);
  Live* grows_with(const GatheringKey& key);
  std::vector<RankInfo> welcome_ranks(const Live& live, const std::vector<RankInfo>& ranks) const;
  Fit fits_join(const std::string& from, const Propose& propose, std::string* why) const;
  void take_back_guests(const GatheringKey& key);
  // Whether a view has all of the claims as these ranks, and no other.
  static bool are_all_of(const std::vector<LocalClaim>& claims, const std::vector<RankInfo>& ranks);
  void on_join_accept(Live& live, const std::string& from, const Accept& accept);
  void invite_anew(const GatheringKey& key);
  void on_join_commit(Live& live, const change::Commit& commit);
  void decline(const change::Commit& commit, const std::string& evidence);
  void on_invitation(const std::string& from, const Propose& propose);
  void ask_if_joining();
  void on_guest_asks(const std::string& from, const Live* live, const JobId& job);
  void set_joiners(Live& live);

  void forget_claims_of(const std::string& node);

  // membership_welcome.cc
  std::string why_not_welcome(const GatheringKey& key, const Gathering& gathering);
  void tell_unwelcome(const GatheringKey& key);
  void on_unwelcome(const std::string& from, const Unwelcome& unwelcome);

  // membership_within.cc
  // Not ok: a rank that this one needs is not in the job any more that it is within.
  Status fit_within(const JoinRequest& request) const;
  bool has_left(const Live& live, const Member& member, const RankInfo& info) const;
  bool fail_if_unfit(const GatheringKey& key);
  void fail_unfit_within(const JobId& job);
  void remember_failed(const Live& live, const Failure& failure);
  void tell_missed(const GatheringKey& key);
  void on_missed(const Propose& failed);

  // membership_restore.cc
  // Of our ranks in the view, in its order; 0: that one is gone.
  std::vector<SessionId> sessions_of(const Live& live) const;
  JobRecord record_of(const Live& live) const;
  void save(const Live& live);
  void lose_strangers(Live& live);
  void go_on_if_met(const JobId& job);
  void go_on_where_met();
  // Whether the message is about a job of which only the vote is left here.
  bool testify(const std::string& from, const JobMessage& message);
  void forget_witnesses();

  // end.cc
  enum class Tell { kAll, kLeft, kNobody };
  void fail_job(Live& live, const Failure& cause, const std::string& heard_from,
                Tell tell = Tell::kAll);
  void on_job_failed(const std::string& from, const JobFailed& message);
  void end_withdrawn(const JobId& job, const std::optional<Failure>& failure);

  // end.cc
  void gone(const JobId& job, SessionId session);
  static JobDone done_of(const Live& live);
  void say_done_again(const std::string& to, const Live* live, uint64_t epoch);
  void on_job_done(const std::string& from, const JobDone& done);
  void say_done_if_over(const JobId& job);
  void end_if_over(const JobId& job);
  void remember(const Live& live);
  void has_a_job(uint32_t uid);

  void tell_members(const Live& live, const JobMessage& message, const std::string& except);
  Live* live_of(SessionId session);

  const std::string node_;
  const MembershipOptions options_;
  MembershipActions* const actions_;
  Random random_;
  Time now_ = 0;
  uint64_t revision_ = 0;  // of our own Claims
  std::map<GatheringKey, Claims> unsaid_;
  std::set<GatheringKey> said_;                                           // and not withdrawn since
  std::map<GatheringKey, std::map<std::string, std::string>> unwelcome_;  // told so, by node: why
  Time say_at_ = 0;
  std::optional<Failure> shut_down_;

  std::set<std::string> peers_;    // up
  std::set<std::string> awaited_;  // restarting, or not met yet since we did
  std::map<GatheringKey, Gathering> gatherings_;
  std::map<JobId, std::pair<std::string, Propose>> deferred_;  // for a connection of ours; by whom
  std::map<JobId, Live> live_;
  std::map<JobId, Witness> witnesses_;
  std::vector<JobInfo> history_;
  std::optional<uint32_t> first_uid_;  // of whoever had the first job here
  bool several_uids_ = false;          // others have had some, too
  Departed departed_;
};

}  // namespace gradring::core
