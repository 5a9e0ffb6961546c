#include "daemon/core/view_change.h"

#include <algorithm>
#include <utility>

#include "daemon/core/planted.h"
#include "proto/policy.h"

namespace gradring::core {

ViewChange::ViewChange(std::string node, View view, const ViewChangeOptions& options,
                       ViewChangeActions* actions)
    : node_(std::move(node)), options_(options), actions_(actions), view_(std::move(view)) {
  record_.epoch = view_.epoch;
}

void ViewChange::restore(const AcceptorRecord& record) {
  record_ = record;
  if (record_.last_commit && record_.last_commit->epoch == record_.epoch) {
    view_ = record_.last_commit->proposal.view;
  }
  highest_ = record_.promised;
}

// ---- reasons ----

void ViewChange::lost(const std::string& node, const Failure& failure, bool for_good, Time now) {
  now_ = now;
  if (for_good && left_.insert(node).second) left_since_ = now;
  away_.erase(node);
  if (!lost_.emplace(node, failure).second || !view_.index_of(node)) return;
  if (lost_since_ == 0) lost_since_ = now;
  note_cut_off(now);
  want(false, now);
  check_promises(now);  // perhaps this one was all that was waited for
}

void ViewChange::found(const std::string& node, Time now) {
  now_ = now;
  const bool was_away = away_.erase(node) > 0;
  if (!was_away) ask_again(node);  // it may speak for one that is lost
  gone_.erase(node);
  fruitless_ = 0;
  propose_at_ = std::min(propose_at_, our_turn(now + options_.retry));
  if (left_.count(node) > 0) return;
  lost_.erase(node);
  suspected_.erase(node);
  tell_who_is_back(now);
  if (!was_away || over_ || !view_.index_of(node)) return;
  // Frames of this epoch were lost, so it must end. Whoever was away asks for that itself when it
  // has met all others, unless it knew less than we did.
  pressing_ = true;
  if (!wanted_) wanted_since_ = now;
  wanted_ = true;
  const Time due = our_turn(now + options_.retry);
  if (propose_at_ == 0 && phase_ == Phase::kIdle) propose_at_ = due;
  if (phase_ == Phase::kPreparing && promises_.count(node) == 0) {
    phase_since_ = now;  // its time to answer begins
  }
  ask_again(node);
}

void ViewChange::lane_lost(const std::string& node, const std::string& why, Time now) {
  if (!view_.index_of(node) || lost_.count(node) > 0) return;
  if (lanes_lost_.empty()) lanes_lost_ = why;
  want(false, now);
}

void ViewChange::suspect(const std::string& node, bool suspected) {
  if (suspected) {
    suspected_.insert(node);
  } else {
    suspected_.erase(node);
  }
}

void ViewChange::want(bool at_once, Time now) { want_by(at_once ? now : our_turn(now), now); }

void ViewChange::want_growth(Time now) {
  want_by(our_turn(place() == 0 ? now : now + options_.retry), now);
}

// Another reason for an attempt is served first, and need not bring the table.
void ViewChange::want_tuning(const Tuning& tuning, Time now) {
  const bool whole = std::none_of(view_.members.begin(), view_.members.end(),
                                  [this](const Member& m) { return lost_.count(m.node) > 0; });
  if (over_ || wanted_ || frozen() || !whole) return;
  now_ = now;
  tuning_ = tuning;
  wanted_ = true;
  wanted_since_ = now;
  propose(now);
}

void ViewChange::want_by(Time turn, Time now) {
  now_ = now;
  if (over_) return;
  pressing_ = true;
  if (!wanted_) {
    wanted_ = true;
    wanted_since_ = now;
  }
  if (phase_ != Phase::kIdle) return;
  // Somebody else is at it already: give that one its time.
  const bool under_way = frozen() && lost_.count(record_.promised.node) == 0;
  const Time due = under_way ? our_turn(now + options_.retry) : turn;
  if (propose_at_ == 0 || due < propose_at_) propose_at_ = due;
  if (propose_at_ <= now) propose(now);
}

size_t ViewChange::place() const {
  size_t place = 0;
  for (const Member& member : view_.members) {
    if (member.node < node_ && lost_.count(member.node) == 0) ++place;
  }
  constexpr size_t kMost = 10;  // who knows of what nobody below knows must not wait for ever
  return std::min(place, kMost);
}

bool ViewChange::quorum(const std::set<std::string>& nodes, const View& next) const {
  if (planted(Bug::kNoQuorum)) return !nodes.empty();
  if (planted(Bug::kWitnessIsVote) && view_.members.size() == 2) return !nodes.empty();
  const std::vector<std::string> list(nodes.begin(), nodes.end());
  if (planted(Bug::kQuorumOfNewView)) {
    return next.members.empty() ? !nodes.empty() : is_quorum(next, list);
  }
  if (planted(Bug::kAnyHalf)) {
    size_t votes = 0;
    for (const std::string& node : list) votes += view_.index_of(node) ? 1 : 0;
    return 2 * votes >= view_.members.size();
  }
  return is_quorum(view_, list);
}

// ---- acceptor ----

bool ViewChange::promise(const std::string& from, uint64_t epoch, const Ballot& ballot, Time now) {
  if (!of_this_epoch(from, epoch)) return false;
  highest_ = std::max(highest_, ballot);
  if (ballot < record_.promised && !planted(Bug::kLowerBallotsAccepted)) {
    send(from, change::Refuse{view_.incarnation, view_.epoch, record_.promised});
    return false;
  }
  now_ = now;
  if (from != node_) postpone(now);
  record_.promised = ballot;
  return true;
}

void ViewChange::on_message(const std::string& from, const change::Prepare& m, Time now) {
  if (!promise(from, m.epoch, m.ballot, now)) return;
  if (!m.patient) pressing_ = true;
  if (record_.report) return promise_to(from, m.ballot);
  owed_promise_ = {from, m.ballot};
  if (!std::exchange(freezing_, true)) actions_->freeze(view_.epoch);
}

void ViewChange::on_message(const std::string& from, const change::Accept& m, Time now) {
  if (!promise(from, m.epoch, m.ballot, now)) return;
  if (record_.report) {
    record_.accepted = Vote{m.ballot, m.proposal};
    return accepted_to(from, m.ballot);
  }
  owed_accepted_ = {from, m};
  if (!std::exchange(freezing_, true)) actions_->freeze(view_.epoch);
}

void ViewChange::on_report(uint64_t epoch, Report report, Time now) {
  now_ = now;
  if (over_ || epoch != view_.epoch || record_.report) return;
  freezing_ = false;
  record_.report = std::move(report);
  answer_pending();
}

// Only what was promised last counts.
void ViewChange::answer_pending() {
  const auto promise = std::exchange(owed_promise_, std::nullopt);
  const auto accepted = std::exchange(owed_accepted_, std::nullopt);
  if (accepted && accepted->second.ballot == record_.promised) {
    record_.accepted = Vote{accepted->second.ballot, accepted->second.proposal};
    accepted_to(accepted->first, accepted->second.ballot);
  } else if (promise && promise->second == record_.promised) {
    promise_to(promise->first, promise->second);
  }
}

void ViewChange::promise_to(const std::string& to, const Ballot& ballot) {
  renew_reachable();
  actions_->record();
  send(to,
       change::Promise{view_.incarnation, view_.epoch, ballot, record_.accepted, *record_.report});
}

void ViewChange::accepted_to(const std::string& to, const Ballot& ballot) {
  actions_->record();
  send(to, change::Accepted{view_.incarnation, view_.epoch, ballot});
}

// ---- learner ----

// V6: whoever knows of a later epoch answers every message of an older one with it.
bool ViewChange::of_this_epoch(const std::string& from, uint64_t epoch) {
  if (epoch < view_.epoch && record_.last_commit && from != node_) {
    const bool silent = planted(Bug::kNobodyRetells) || (over_ && planted(Bug::kExcludedSilent));
    if (!silent) actions_->send(from, *record_.last_commit);
    ask_again(from);  // what it was asked before, it could not understand
  } else if (epoch > view_.epoch && from != node_) {
    actions_->send(from, change::Ask{view_.incarnation, view_.epoch});
  }
  return epoch == view_.epoch && !over_;
}

void ViewChange::on_message(const std::string& from, const change::Ask& m, Time) {
  of_this_epoch(from, m.epoch);
}

void ViewChange::on_message(const std::string&, const change::Commit& m, Time now) {
  if (over_ || m.epoch <= view_.epoch) return;
  apply(m, now);
}

void ViewChange::apply(const change::Commit& commit, Time now) {
  const bool member = commit.proposal.view.index_of(node_).has_value();
  // Who comes in is not the one that left before.
  for (const Member& m : commit.proposal.view.members) {
    if (view_.index_of(m.node)) continue;
    left_.erase(m.node);
    lost_.erase(m.node);
  }
  // Two epochs behind, and a member again: that is another life of this node, which joins.
  if (member && commit.epoch != view_.epoch + 1) return;
  // Who led may be cut off from those that it left out, and they may not know to ask.
  for (const Member& m : view_.members) {
    const bool out = m.node != node_ && !commit.proposal.view.index_of(m.node);
    if (out && member && !planted(Bug::kNobodyRetells)) actions_->send(m.node, commit);
  }
  view_ = commit.proposal.view;
  record_ = {};
  record_.epoch = view_.epoch;
  record_.last_commit = commit;
  freezing_ = false;
  owed_promise_.reset();
  owed_accepted_.reset();
  proposal_.reset();
  phase_ = Phase::kIdle;
  highest_ = {};
  fruitless_ = 0;
  wanted_ = false;
  wanted_since_ = lost_since_ = propose_at_ = waiting_since_ = healing_since_ = 0;
  if (std::exchange(cut_off_, false)) healed_ = now;
  joiners_.clear();
  tuning_.reset();
  pressing_ = false;
  lanes_lost_.clear();
  actions_->record();
  if (!member) {
    over_ = true;
    return actions_->exclude(commit.proposal);
  }
  actions_->adopt(commit.proposal);
  // Lost while the view was agreed on.
  for (const Member& m : view_.members) {
    if (lost_.count(m.node) == 0) continue;
    lost_since_ = wanted_since_ = now;
    wanted_ = pressing_ = true;
    // Not at once: this epoch must have begun before it is asked to end.
    propose_at_ = our_turn(now);
    break;
  }
}

// ---- time ----

void ViewChange::tick(Time now) {
  now_ = now;
  if (over_) return;
  give_up_if_hopeless(now);
  if (over_) return;
  check_promises(now);
  if (phase_ != Phase::kIdle && now - phase_since_ >= options_.answer_wait + options_.retry) {
    end_attempt(now);
    propose_at_ = our_turn(now + options_.retry * fruitless_);
  }
  if (propose_at_ != 0 && now >= propose_at_ && phase_ == Phase::kIdle) {
    if (wanted_ || frozen()) {
      propose(now);
    } else {
      propose_at_ = 0;
    }
  }
}

void ViewChange::give_up_if_hopeless(Time now) {
  if (!wanted_ && !frozen()) return;
  const bool elastic = parse_policy(view_.policy).value_or(Policy{}).elastic;
  if (elastic) {
    // Who is away may still come back, which it has its own time for.
    if (wanted_since_ == 0 || (has_quorum() && awaits_some())) wanted_since_ = now;
    if (healing_since_ != 0 && now - healing_since_ < options_.healing + options_.retry) return;
    const bool patient = quorum_is_left() || now - left_since_ < options_.left_patience;
    if (patient && now - wanted_since_ < options_.quorum_wait) return;
  } else {
    const bool patient = lost_since_ == 0 || now - lost_since_ < options_.fail_patience;
    if (quorum_possible() && patient) return;
  }
  over_ = !planted(Bug::kGaveUpButStays);
  actions_->give_up(hopeless());
}

Failure ViewChange::hopeless() const {
  const bool elastic = parse_policy(view_.policy).value_or(Policy{}).elastic;
  std::string missing, departed;
  const Failure* first = nullptr;
  for (const Member& member : view_.members) {
    const auto lost = lost_.find(member.node);
    if (lost == lost_.end()) continue;
    if (first == nullptr) first = &lost->second;
    std::string& list = left_.count(member.node) > 0 ? departed : missing;
    list += (list.empty() ? "" : ", ") + member.node;
  }
  if (first != nullptr && (!elastic || !quorum_is_left())) return *first;
  Failure failure{Cause::kNoQuorum, {}};
  failure.blame.node = node_;
  failure.blame.evidence = "no majority of the " + std::to_string(view_.members.size()) +
                           " members could be reached for " +
                           std::to_string(options_.quorum_wait / kSecond) + " s" +
                           (missing.empty() ? "" : "; not reached: " + missing) +
                           (departed.empty() ? "" : "; left the job before: " + departed);
  return failure;
}

Time ViewChange::next_deadline() const {
  if (over_) return 0;
  Time next = propose_at_;
  const auto consider = [&](Time due) {
    if (due > now_ && (next == 0 || due < next)) next = due;
  };
  if (phase_ == Phase::kPreparing) {
    consider(phase_since_ + options_.stagger);
    consider(phase_since_ + options_.answer_wait);
  }
  if (phase_ != Phase::kIdle) consider(phase_since_ + options_.answer_wait + options_.retry);
  if (!wanted_ && !frozen()) return next;
  if (healing_since_ != 0) {
    consider(healing_since_ + options_.healing);
    consider(healing_since_ + options_.healing + options_.retry);
  }
  if (lost_since_ != 0) consider(lost_since_ + options_.fail_patience);
  if (wanted_since_ != 0) consider(wanted_since_ + options_.quorum_wait);
  if (!quorum_is_left()) consider(left_since_ + options_.left_patience);
  return next;
}

std::string ViewChange::doing() const {
  if (over_ || (!wanted_ && !frozen())) return "";
  std::string text = "agreeing on a new view";
  if (phase_ == Phase::kPreparing) {
    text += "; waits for the reports of";
    for (const Member& member : view_.members) {
      if (promises_.count(member.node) == 0) text += " " + member.node;
    }
  }
  if (quorum_possible()) return text;
  std::string between = "; too few members can be reached, lost are: ";
  for (const auto& [node, ranks] : view_.members) {
    if (lost_.count(node) + gone_.count(node) > 0) text += std::exchange(between, ", ") + node;
  }
  return text;
}

// ---- sending ----

void ViewChange::send_to_all(const JobMessage& message, const View& view) {
  for (const Member& member : view.members) {
    if (member.node != node_) actions_->send(member.node, message);
  }
  send(node_, message);
}

// To oneself one speaks like to all others, but only when the sentence before is finished.
void ViewChange::send(const std::string& node, JobMessage message) {
  if (node != node_) return actions_->send(node, message);
  to_self_.emplace_back(node, std::move(message));
  if (std::exchange(delivering_, true)) return;
  while (!to_self_.empty()) {
    const JobMessage next = std::move(to_self_.front().second);
    to_self_.erase(to_self_.begin());
    std::visit(
        [this](const auto& m) {
          if constexpr (requires { on_message(node_, m, now_); }) on_message(node_, m, now_);
        },
        next);
  }
  delivering_ = false;
}

}  // namespace gradring::core
