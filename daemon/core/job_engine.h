#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "daemon/core/credits.h"
#include "daemon/core/eager.h"
#include "daemon/core/engine_actions.h"
#include "daemon/core/engine_options.h"
#include "daemon/core/engine_progress.h"
#include "daemon/core/engine_record.h"
#include "daemon/core/key_set.h"
#include "daemon/core/op.h"
#include "daemon/core/plan.h"
#include "daemon/core/plan_steps.h"
#include "daemon/core/ready_tree.h"
#include "daemon/core/report.h"
#include "daemon/core/resend.h"
#include "daemon/core/staging.h"
#include "daemon/core/start_line.h"
#include "daemon/core/time.h"
#include "daemon/core/view.h"
#include "proto/frame.h"
#include "proto/status.h"
#include "proto/verdict.h"

namespace gradring::core {

// The data plane of one job on one node: matches submissions, says READY, moves slices along the
// plan under the rule of two, completes, and keeps what others may still lack. It lives through the
// job's epochs: freeze() ends one with a report, adopt() begins the next. Pure: events in, actions
// out, no clock, no memory of its own but descriptors. One thread.
class JobEngine {
 public:
  // A view of epoch 0 is one that this node may soon enter: the engine is frozen until adopt().
  JobEngine(View view, uint32_t me, const EngineOptions& options, EngineActions* actions);

  // ---- lives of the daemon (rule R1) ----
  // From now on told of what must not be forgotten; it must outlive the engine.
  void write_to(EngineJournal* journal) { journal_ = journal; }
  EngineRecord record() const;  // all of that, as of now
  // Goes on from there, in the view of the record, which the engine was made with: frozen, since
  // what was under way is lost. Before anything else.
  void restore(const EngineRecord& record);

  // ---- events from local trainers. `rank` must be one of ours. ----
  // A refusal concerns it alone. The very same (its ticket tells) is known already.
  Status submit(const Submission& submission, Time now);
  // So many bytes of what was submitted with fewer are there by now. Not where a journal is kept.
  void input_came(uint32_t rank, const OpKey& key, uint64_t bytes);
  // Nothing of it is there any more, nor comes again: its rank is about to leave.
  void input_lost(uint32_t rank, const OpKey& key);
  // Between freeze() and adopt(): all of them, as where their sum came and one counts no more.
  void inputs_come_again(const OpKey& key);
  void keep_to_ring(const OpKey& key);  // whatever another view plans
  // The trainer left, in good order or not: it submits nothing more, nor does more of its inputs
  // come. An op that others wait for without it is told by absent().
  void leave(uint32_t rank, const Failure& why);
  // A member that was done with the job is gone: an op without its READY is told by absent().
  void member_gone(uint32_t member, const Failure& failure);
  // Ranks want to come in here, or no longer: said in the READY of the next join point.
  void set_grows(bool grows) { grows_ = grows; }
  // No slice begins here while so many are under way to the successor; in all epochs from now on.
  void set_window(uint32_t slices) {
    window_ = slices;
    credits_.limit(slices);
  }

  // ---- events from peers; `from` is the member that sent the frame ----
  // All but SLICE, and READY with its data.
  void on_frame(uint32_t from, const Frame& frame, Time now);
  // A SLICE header has arrived: the slot where its payload must land, or nothing if it is to be
  // thrown away (repeated, stale, or against the rules: then the job fails).
  std::optional<uint32_t> on_slice(uint32_t from, const Frame& frame);
  void on_slice_landed(uint32_t slot);
  // The payload is complete, but not what its checksum says. The slot goes on waiting for it.
  void on_slice_damaged(uint32_t slot);
  // The payload will not come: the connection broke.
  void on_slice_aborted(uint32_t slot);
  // The header of a READY with its data, or of a slice of Phase::kDirect, has arrived: the unit
  // where its payload must land, or nothing if it is to be thrown away.
  std::optional<uint32_t> on_parcel(uint32_t from, const Frame& frame);
  void on_parcel_landed(uint32_t unit, Time now);
  void on_parcel_aborted(uint32_t unit);
  const EagerUnits::Parcel& parcel(uint32_t unit) const { return units_.parcel(unit); }
  // Staging memory lent by send_slice is ours again.
  void on_sent(Staging from);

  // ---- epochs ----
  // From now on nothing of this epoch is taken or sent (rule V2).
  Report freeze();
  bool frozen() const { return frozen_; }
  // The next epoch has been agreed on, and this node is a member.
  void adopt(const Proposal& proposal);

  // ---- time and failure ----
  void tick(Time now);
  // Leaves for good: what is open ends FAILED, what comes later is refused. The first cause wins.
  void fail(const Failure& failure);

  // Folds what has landed, forwards, starts new slices; at most `budget` slices. Returns how many
  // were worked on: 0 means that only an event can give more to do.
  uint32_t pump(uint32_t budget);

  // ---- questions ----
  const View& view() const { return view_; }
  uint32_t me() const { return me_; }
  // Frames that tell this node of who is ready, for each op.
  uint32_t awaited() const {
    return tree_ ? tree_.children() + (tree_.is_root() ? 0 : 1) : members() - 1;
  }
  bool failed() const { return failure_.has_value(); }
  const std::optional<Failure>& failure() const { return failure_; }
  // All local trainers have left, nothing is open or in use, and nobody can want a copy of us.
  bool drained() const;
  const EngineCounters& counters() const { return counters_; }
  uint32_t staging_bytes() const { return options_.plan.slice_bytes_max; }
  // Of units, which are numbered from 0 as they are needed; 0: none is.
  uint32_t unit_bytes() const;
  uint32_t units() const { return units_.count(); }  // there were so far
  uint32_t slots() const { return options_.slots; }
  uint32_t start_buffers() const { return options_.start_buffers; }
  uint32_t slots_in_use() const { return options_.slots - receive_slots_.free(); }
  size_t open_ops() const { return open_; }
  // By all of its ops, in places for one rank's submission (250 bytes); an op takes four itself.
  uint64_t places_taken() const { return ops_.size() * (4 + locals_.size()); }
  // Completed, and some member may still lack a slice.
  size_t kept_ops() const { return ops_.size() - open_ - failed_open_; }
  std::vector<OpProgress> progress(size_t most) const;  // of open ops, oldest first
  const Op* find(const OpKey& key) const;               // null: there is none
  const OpNames& names() const { return names_; }
  uint64_t submitted(uint32_t rank) const;  // accepted, of a rank that is or was of this node
  // Whether a rank of this node has no more data, so that its values are none of its own.
  bool joined(uint32_t rank) const { return locals_[local_index(rank)].joined; }

 private:
  struct Local {
    uint32_t rank = 0;
    bool member = true;  // of the current view
    bool told = false;   // that it is absent
    std::optional<Failure> left;
    uint64_t submitted = 0;
    uint32_t open = 0;
    uint64_t join_points = 0;
    bool joined = false;  // it has no more data, and its join is open
  };
  struct Slot {
    Op* op = nullptr;  // null once the value is folded and delivered, or when its epoch is over
    uint32_t slice = 0;
    ValueId value;   // contributions in it, and for a final one its epoch
    Frame outgoing;  // what goes on, once a credit is there
    OpKey key;       // of what arrived, and as it arrived
    SliceBody body;  // unchecked as well once its epoch is over
  };
  struct Gone {
    Failure failure;
    bool told = false;
  };

  // engine_seats.cc
  void take_seats(Op& op, const Signature& signature) const;
  Status check_seat(const Submission& submission, const Op* known) const;

  // engine_match.cc
  Op& op_of(const OpKey& key);
  Op* submitted_as(uint32_t index, const Submission& submission) const;
  void meet(Op& op, uint32_t rank, const Signature& signature);
  // `from`: who told us; nobody if it was found here.
  void mismatch(Op& op, const MismatchBody& body, std::optional<uint32_t> from = {});
  bool moved(const Op& op) const;
  bool all_local(const Op& op) const;
  uint32_t locals_here(const Op& op) const;
  uint32_t contributions_here(const Op& op) const;
  void line_up(Op& op);
  void on_mismatch(uint32_t from, const Frame& frame);

  // engine_ready.cc
  void begin_ready(Op& op) const;
  void arrived(Op& op, std::optional<uint32_t> index, uint32_t late_us) const;
  void say_ready(Op& op);
  void check_ready(Op& op);
  void on_ready(uint32_t from, const Frame& frame, std::optional<uint32_t> unit);
  uint32_t speaker_of(const Op& op) const;

  // engine_inputs.cc
  bool can_fold(const Op& op, uint32_t slice, const Step& step) const;
  bool input_is_here(const Op& op) const;
  Op* next_to_start();
  void give_up_unfinished();

  // engine_absent.cc
  bool is_final_here(const Op& op) const;
  void check_absent(const Op& op);
  void check_absent(const Op& op, size_t local);
  std::vector<uint32_t> missing_members(const Op& op) const;

  // engine_tree.cc
  bool subtree_is_ready(const Op& op) const;
  void pass_ready(Op& op);
  void tell_all_ready(Op& op, uint32_t contributions);
  void on_all_ready(uint32_t from, const Frame& frame);
  void want(Op& op, uint32_t rank, std::optional<uint32_t> from = {});
  void want_all();
  void on_wanted(uint32_t from, const Frame& frame);
  bool anybody_joined() const;
  void send_to_neighbours(const Frame& frame, std::optional<uint32_t> except);
  Time patience(const Op& op) const;

  // engine_join.cc
  Status check_join(const Submission& submission, const Local& local) const;
  void join(Local& local, const OpKey& key, Time now);
  void ask_joined(Op& op);
  void take_back_joins();
  bool waits_for_others(const Op& op) const;
  bool waits_for_answers(const Op& op) const;
  void check_alone();

  // engine_slices.cc
  void on_credit(uint32_t from, const Frame& frame);
  std::span<const Step> steps_of(const Op& op, uint32_t slice) const;
  uint32_t ranks_expected(const Op& op, const SliceBody& body) const;
  bool work_landed();
  bool work_forward();
  bool work_hand();
  bool work_start();
  void start_slice(Op& op, uint32_t slice, uint32_t buffer);
  // Takes the step's fold, division and delivery; returns what is now in the value.
  ValueId take_step(Op& op, uint32_t slice, const Step& step, ValueId value, Staging at);
  Frame slice_frame(const Op& op, uint32_t slice, const Step& step, ValueId value) const;
  void send_slice(Frame frame, Staging from);
  void release_slot(uint32_t slot);
  void tell_credits();

  // engine_eager.cc
  bool may_be_direct(const Op& op) const;
  bool may_be_eager(const Op& op) const;
  bool eager_begins(uint32_t from, const Frame& ready);
  void send_eager(Op& op, Frame ready);
  std::optional<uint32_t> on_eager(uint32_t from, const Frame& frame);
  std::optional<uint32_t> on_direct(uint32_t from, const Frame& frame);
  void done_with(uint32_t from, const Frame& ready, std::optional<uint32_t> unit);
  void take_parcel(Op& op, uint32_t from, const Frame& ready, std::optional<uint32_t> unit);
  void start_direct(Op& op);
  bool work_parcel();
  bool work_sum();
  void sum_direct(Op& op, uint32_t slice);
  void hold_final(Op& op, uint32_t slice, ValueId value);
  void on_done(uint32_t from, const DoneBody& done);
  void drop_if_everywhere(Op& op);
  void tell_done(bool all);
  bool all_left() const;
  void let_go(Op& op, bool tell);
  void end_eager();

  // engine_rise.cc
  bool rises(const Op& op) const;
  void let_rise(Op& op, uint32_t contributions);
  void start_rising(Op& op);
  void rise_if_whole(Op& op);
  std::optional<uint32_t> on_rising(uint32_t from, const Frame& frame);
  void take_rising(uint32_t unit);
  void sum_subtree(Op& op);
  void hand_down(const Op& op, uint32_t unit);
  void rise_next();

  // engine_resend.cc
  std::optional<uint32_t> on_slice_again(uint32_t from, const Frame& frame);
  void on_nack(uint32_t from, const Frame& frame);
  void send_again(Staging from);
  void condemn(const Frame& frame, uint8_t lane);
  void release(Staging staging);
  void end_sending();

  // engine_verify.cc
  void verify(const Op& op);
  void on_digest(uint32_t from, const Frame& frame);
  void compare(const OpKey& key);

  // engine_keep.cc
  void complete_if_final(Op& op);
  void settle(const Op& op, Outcome* outcome) const;
  bool may_tell_decided(Op& op);
  bool keep_finals(Op& op);
  void retry_waiting();
  void set_dropped(Op& op, uint32_t slice);
  void set_elsewhere(Op& op, uint32_t slice, ValueId value);
  bool done_here(const Op& op) const;
  void say_stable(Op& op, uint32_t slice);
  void tell_stable();
  void on_stable(uint32_t from, const Frame& frame);
  void on_confirm(Op& op, uint32_t from, const Frame& frame);
  void on_everywhere(Op& op, uint32_t from);
  void on_stable_slices(Op& op, uint32_t from, const StableBody& stable);
  void pass_confirm(Op& op);
  void pass_stable(Op& op);
  void forget_if_dropped(const OpKey& key);
  uint32_t last_member(const Op& op, uint32_t slice) const;

  // engine_epoch.cc
  OpReport report_of(const Op& op) const;
  void enter(const Proposal& proposal);
  void begin_anew(Op& op);
  void begin_anew(Local& local);
  void plant_tree();
  void apply(const OpFate& fate);
  void contradicted(const Op& op, const std::string& what);
  void recover(Op& op, const OpFate& fate);
  void go_on(Op& op);

  // engine_restore.cc
  LocalRecord record_of(const Local& local) const;
  void restore(const OpRecord& entry);

  // job_engine.cc
  std::string title(const Op& op) const;
  PlanOptions plan_options(const OpKey& key, const Signature& signature) const;
  void plan(Op& op);
  void protocol_fault(uint32_t from, const std::string& what);
  void tell_locals(Op& op, const Outcome& outcome);
  void fail_op(Op& op, const Failure& failure);
  void set_state(Op& op, OpState state);
  void forget(Op& op);
  void request_failure(const Failure& failure);
  Frame frame(FrameType type, const OpKey& key) const;
  void send_to_others(const Frame& frame);
  Outcome failed_outcome(const Failure& failure) const;
  Failure deadline_failure(const Op& op) const;
  Blame blame_of(uint32_t rank, std::string evidence) const;
  bool stale(const Frame& frame);
  uint32_t successor() const { return (me_ + 1) % members(); }
  uint32_t predecessor() const { return (me_ + members() - 1) % members(); }
  uint32_t members() const { return static_cast<uint32_t>(view_.members.size()); }
  uint32_t local_index(uint32_t rank) const;

  View view_;
  uint32_t me_;
  ReadyTree tree_;                      // of large views
  std::vector<uint32_t> ranks_before_;  // there: of members 0 .. i-1
  std::vector<RankPlace> places_;       // of the view
  SharedStepLists step_lists_;
  const EngineOptions options_;
  EngineActions* const actions_;
  EngineJournal* journal_ = EngineJournal::none();
  std::map<OpKey, std::unique_ptr<Op>> ops_;
  size_t open_ = 0;         // gathering or moving
  size_t failed_open_ = 0;  // failed, and some local rank has yet to be told
  KeySet ended_keys_;
  OpNames names_;
  std::map<OpKey, Failure> failed_;  // for reports; the oldest are let go of
  std::deque<OpKey> failed_order_;
  std::map<OpKey, OpFate> carried_;  // ops open elsewhere before this epoch, not yet seen here
  std::vector<Local> locals_;
  std::vector<std::optional<Gone>> gone_;  // by member
  Time now_ = 0;                           // of the latest event that told it
  SendCredits credits_;
  uint32_t window_;
  ReceiveSlots receive_slots_;
  std::vector<Slot> slots_;
  std::deque<uint32_t> landed_;   // slots whose payload is complete
  std::deque<uint32_t> forward_;  // slots whose value waits for a credit
  std::deque<Op*> handing_;       // with slices that we give out
  StartLine starting_;            // ready, and slices start here
  std::set<OpKey> waiting_;       // final, but no room to keep their slices, or no answers yet
  struct StableSlice {
    OpKey key;
    uint32_t slice = 0;
    auto operator<=>(const StableSlice&) const = default;
  };
  std::vector<StableSlice> stable_;   // to be told of
  std::vector<StableSlice> telling_;  // kept for its capacity
  uint64_t copies_dropped_ = 0;       // kept ones, ever
  std::vector<uint32_t> free_starts_;
  uint64_t credits_told_ = 0, confirmed_told_ = 0;
  SentSlices sent_;
  ReceivedSlices received_;
  EagerUnits units_;
  EagerSent eager_sent_;
  std::vector<EagerReceived> eager_received_;  // by member
  std::vector<bool> heard_;       // by member: it is in this epoch, and has a place for parcels
  std::deque<uint32_t> parcels_;  // units with finals that have landed
  std::deque<Op*> summing_;       // ops with a slice that we sum, which is all there
  uint32_t rising_ = 0;           // at the root: ops on their way up the tree
  std::deque<OpKey> to_rise_;     // there: ready everywhere, and wait for their turn
  std::map<OpKey, Condemned> condemned_;
  struct Digests {
    std::optional<uint32_t> ours, theirs;
  };
  std::map<OpKey, Digests> digests_;  // of this epoch, until both are known
  bool grows_ = false, frozen_ = false, failure_requested_ = false;  // fail_job is asked for once
  std::optional<Failure> failure_;
  EngineCounters counters_;
};

}  // namespace gradring::core
