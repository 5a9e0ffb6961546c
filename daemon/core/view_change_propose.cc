// The proposer's part of a view change: rules V1, V3, V5.

#include <algorithm>
#include <limits>
#include <utility>

#include "daemon/core/planted.h"
#include "daemon/core/recovery.h"
#include "daemon/core/view_change.h"

namespace gradring::core {

void ViewChange::propose(Time now) {
  now_ = now;
  propose_at_ = 0;
  highest_ = std::max(highest_, record_.promised);
  if (highest_.round == std::numeric_limits<uint64_t>::max()) return give_up_beaten();
  phase_ = Phase::kPreparing;
  phase_since_ = waiting_since_ = now;
  ballot_ = highest_ = {highest_.round + 1, node_};
  promises_.clear();
  accepted_by_.clear();
  proposal_.reset();
  // R1: in another life of this daemon no other proposal may go by this ballot, which the members
  // may have heard of before our own report is there.
  if (!planted(Bug::kBallotUsedAgain)) {
    record_.promised = ballot_;
    actions_->record();
  }
  send_to_all(change::Prepare{view_.incarnation, view_.epoch, ballot_, !pressing_}, view_);
}

// Nobody can ask after that, and whoever began anew with low numbers would break his promise.
void ViewChange::give_up_beaten() {
  Failure failure{Cause::kProtocol, {}};
  failure.blame.node = highest_.node;
  failure.blame.evidence = "asked for a new view with the last number that there is (" +
                           std::to_string(highest_.round) + "), so that nobody can ask after it";
  over_ = true;
  actions_->give_up(failure);
}

// A member that may not have heard what we ask for at the moment.
void ViewChange::ask_again(const std::string& node) {
  if (over_ || !view_.index_of(node)) return;
  if (phase_ == Phase::kPreparing && promises_.count(node) == 0) {
    actions_->send(node, change::Prepare{view_.incarnation, view_.epoch, ballot_, !pressing_});
  }
  if (phase_ == Phase::kAccepting && accepted_by_.count(node) == 0) {
    actions_->send(node, change::Accept{view_.incarnation, view_.epoch, ballot_, *proposal_});
  }
}

void ViewChange::on_message(const std::string& from, const change::Promise& m, Time now) {
  if (!of_this_epoch(from, m.epoch)) return;
  if (left_.count(from) > 0) left_since_ = now;  // it still votes
  if (phase_ != Phase::kPreparing || m.ballot != ballot_ || !view_.index_of(from)) return;
  promises_[from] = m;
  check_promises(now);
}

// Members that are away, and have not answered.
bool ViewChange::awaits_some() const {
  return std::any_of(view_.members.begin(), view_.members.end(), [this](const Member& m) {
    return promises_.count(m.node) == 0 && lost_.count(m.node) == 0 && away_.count(m.node) > 0;
  });
}

// Others may hear a node that is silent to us, and wonder.
std::map<std::string, Failure> ViewChange::losses_seen() const {
  std::map<std::string, Failure> losses = lost_;
  for (auto& [node, failure] : losses) {
    if (failure.cause != Cause::kPeerSilent || failure.blame.node != node) continue;
    failure.blame.evidence += ", seen from node " + node_;
  }
  return losses;
}

void ViewChange::check_promises(Time now) {
  now_ = now;
  if (phase_ != Phase::kPreparing || over_) return;
  const auto& answered = promises_;
  const bool all = std::all_of(view_.members.begin(), view_.members.end(), [&](const Member& m) {
    return answered.count(m.node) > 0 || lost_.count(m.node) > 0;
  });
  const bool unsuspected =
      std::all_of(view_.members.begin(), view_.members.end(), [&](const Member& m) {
        return answered.count(m.node) > 0 || lost_.count(m.node) > 0 ||
               suspected_.count(m.node) > 0;
      });
  if (awaits_some() || heals(now)) return;
  if (!all && !pressing_ && !planted(Bug::kTunedInHaste)) return;
  // A suspect that answers at once after all is worth a moment; one that is not, no more than that.
  const Time waited = now - phase_since_;
  if (!all && !(unsuspected && waited >= options_.stagger) && waited < options_.answer_wait) return;
  if (!has_quorum()) return;  // last, since of all this it takes longest, and a thousand may answer

  const Vote* highest = nullptr;
  std::map<std::string, Report> reports;
  for (const auto& [node, promise] : promises_) {
    reports[node] = promise.report;
    if (!promise.accepted || planted(Bug::kAcceptedNotAdopted)) continue;
    if (highest == nullptr || promise.accepted->ballot > highest->ballot) {
      highest = &*promise.accepted;
    }
  }
  // A node that comes back to speak for its dead must not end the job of the living.
  if (!all && highest == nullptr && choose_members(view_, reports).empty()) return;
  if (planted(Bug::kOnlyOwnReport) && record_.report) {
    for (auto& [node, report] : reports) {
      const Report theirs = report;
      report = *record_.report;
      report.node = node;
      report.ranks = theirs.ranks;
      report.lost = theirs.lost;
      report.reachable = theirs.reachable;
    }
  }
  if (highest != nullptr) {
    proposal_ = highest->proposal;
  } else {
    auto decided = decide(view_, reports, losses_seen(), joiners_, lanes_lost_, tuning_);
    if (!decided) {
      Failure failure{Cause::kProtocol, {}};
      failure.blame.node = node_;
      failure.blame.evidence = "the members' reports contradict one another: " + decided.error();
      over_ = true;
      return actions_->give_up(failure);
    }
    proposal_ = std::move(*decided);
  }
  phase_ = Phase::kAccepting;
  phase_since_ = now;
  if (planted(Bug::kCommitOnPromises)) return commit({ballot_, *proposal_}, now);
  send_to_all(change::Accept{view_.incarnation, view_.epoch, ballot_, *proposal_}, view_);
}

void ViewChange::on_message(const std::string& from, const change::Accepted& m, Time now) {
  if (!of_this_epoch(from, m.epoch)) return;
  // Also where the attempt has ended in the meantime: what a majority has accepted is decided.
  if (!proposal_ || m.ballot != ballot_ || !view_.index_of(from)) return;
  accepted_by_.insert(from);
  if (quorum(accepted_by_, proposal_->view)) commit({ballot_, *proposal_}, now);
}

void ViewChange::commit(const Vote& vote, Time now) {
  const View old = view_;
  const change::Commit commit{view_.incarnation, view_.epoch + 1, vote.ballot, vote.proposal};
  apply(commit, now);
  for (const Member& member : old.members) {
    if (member.node != node_) actions_->send(member.node, commit);
  }
  for (const Member& member : commit.proposal.view.members) {
    if (!old.index_of(member.node)) actions_->send(member.node, commit);
  }
}

void ViewChange::on_message(const std::string& from, const change::Refuse& m, Time now) {
  if (!of_this_epoch(from, m.epoch)) return;
  highest_ = std::max(highest_, m.promised);
  if (phase_ != Phase::kIdle && m.promised > ballot_) postpone(now);
}

Time ViewChange::our_turn(Time from) const {
  return from + static_cast<Time>(place()) * options_.stagger;
}

// Another one leads; if that comes to nothing it is our turn again. That comes even if there is
// always another one.
void ViewChange::postpone(Time now) {
  end_attempt(now);
  if (waiting_since_ == 0) waiting_since_ = now;
  const Time pause = options_.retry * (1 + fruitless_);
  const Time last = std::max(waiting_since_ + 2 * pause, now + options_.stagger);
  propose_at_ = our_turn(std::min(now + pause, last));
}

// Whoever asked and could not reach a quorum steps back: where only some are connected to each
// other there may be one alone who can, and the others must not keep it from asking.
void ViewChange::end_attempt(Time now) {
  constexpr int kMost = 4;
  const bool without = phase_ == Phase::kPreparing ? !has_quorum() : phase_ == Phase::kAccepting;
  const bool in_vain = without && now - phase_since_ >= options_.answer_wait;
  if (in_vain) fruitless_ = std::min(fruitless_ + 1, kMost);
  phase_ = Phase::kIdle;
}

bool ViewChange::has_quorum() const {
  std::set<std::string> answered;
  for (const auto& [node, promise] : promises_) answered.insert(node);
  return quorum(answered, {});
}

template <typename Answers>
bool ViewChange::quorum_of(const Answers& answers) const {
  std::set<std::string> nodes;
  for (const Member& member : view_.members) {
    if (answers(member.node)) nodes.insert(member.node);
  }
  return quorum(nodes, {});
}

bool ViewChange::quorum_possible() const {
  return quorum_of([this](const auto& node) { return !lost_.count(node) && !gone_.count(node); });
}

bool ViewChange::quorum_is_left() const {
  return quorum_of([this](const auto& node) { return left_.count(node) == 0; });
}

}  // namespace gradring::core
