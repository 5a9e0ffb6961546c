#include "daemon/core/witness.h"

#include <algorithm>
#include <utility>

#include "daemon/core/membership.h"

namespace gradring::core {

Witness::Witness(std::string node, const JobRecord& record, const Failure& failure, Time now,
                 MembershipActions* actions)
    : node_(std::move(node)), actions_(actions), record_(record), heard_(now) {
  AcceptorRecord& acceptor = record_.acceptor;
  const bool ahead = acceptor.last_commit && acceptor.last_commit->epoch > record_.view.epoch;
  if (ahead) record_.view = acceptor.last_commit->proposal.view;
  acceptor.report.reset();  // what it says was lost
  for (LocalPlace& place : record_.local) place.present = false;
  if (const auto me = record_.view.index_of(node_)) {
    for (const RankInfo& info : record_.view.members[*me].ranks) {
      const bool known =
          std::any_of(record_.lost.begin(), record_.lost.end(),
                      [&info](const LostRank& lost) { return lost.rank == info.rank; });
      Failure how = failure;
      how.blame.node = node_;
      how.blame.rank = info.rank;
      how.blame.pid = info.pid;
      if (!known) record_.lost.push_back({info.rank, how});
    }
  } else {
    excluded_by_ = acceptor.last_commit;
  }
  gone_ = record_.done;
}

// The last life may have brought about a view with this node in it that only it knows of.
void Witness::meet(const std::string& node) {
  if (excluded_by_ || node == node_ || !record_.view.index_of(node)) return;
  leave(node);
  actions_->send(node, change::Ask{record_.view.incarnation, record_.view.epoch});
}

void Witness::leave(const std::string& member) {
  actions_->send(member,
                 Left{record_.view.incarnation, record_.lost.front().failure, record_.view.epoch});
}

void Witness::on_message(const std::string& from, const JobMessage& message, Time now) {
  heard_ = std::max(heard_, now);
  if (excluded_by_) return;
  std::visit([&](const auto& m) { on(from, m); }, message);
}

bool Witness::over(Time now, Time patience) const {
  if (excluded_by_ || another_life_ || now - heard_ >= patience) return true;
  const auto& members = record_.view.members;
  return std::all_of(members.begin(), members.end(), [this](const Member& member) {
    return member.node == node_ || gone_.count(member.node) > 0;
  });
}

// V2, V4 and V6: as any acceptor.
bool Witness::promise(const std::string& from, uint64_t epoch, const Ballot& ballot) {
  AcceptorRecord& acceptor = record_.acceptor;
  if (epoch < record_.view.epoch && acceptor.last_commit) {
    actions_->send(from, *acceptor.last_commit);
  } else if (epoch > record_.view.epoch) {
    actions_->send(from, change::Ask{record_.view.incarnation, record_.view.epoch});
  }
  if (epoch != record_.view.epoch) return false;
  if (ballot < acceptor.promised) {
    actions_->send(from, change::Refuse{record_.view.incarnation, epoch, acceptor.promised});
    return false;
  }
  acceptor.promised = ballot;
  return true;
}

// Of who never heard that the last life had committed the first view, and asks.
void Witness::on(const std::string& from, const core::Accept&) {
  const auto& known = record_.acceptor.last_commit;
  if (known && !record_.view.index_of(from)) actions_->send(from, *known);
}

void Witness::on(const std::string& from, const change::Prepare& m) {
  if (!promise(from, m.epoch, m.ballot)) return;
  actions_->record(record_);
  actions_->send(from, change::Promise{record_.view.incarnation, m.epoch, m.ballot,
                                       record_.acceptor.accepted, report()});
}

void Witness::on(const std::string& from, const change::Accept& m) {
  if (!promise(from, m.epoch, m.ballot)) return;
  record_.acceptor.accepted = Vote{m.ballot, m.proposal};
  actions_->record(record_);
  actions_->send(from, change::Accepted{record_.view.incarnation, m.epoch, m.ballot});
}

void Witness::on(const std::string&, const change::Commit& m) {
  if (m.epoch <= record_.view.epoch) return;
  const View& next = m.proposal.view;
  if (!next.index_of(node_)) {
    excluded_by_ = m;
    return;
  }
  // It was left out before, and has come in with other ranks: that is not this one's affair.
  if (m.epoch != record_.view.epoch + 1 || !share_ranks(record_.view, next, node_)) {
    another_life_ = true;
    return;
  }
  // Somebody had counted on what the last life reported.
  record_.view = next;
  record_.acceptor = {};
  record_.acceptor.epoch = m.epoch;
  record_.acceptor.last_commit = m;
  actions_->record(record_);
  for (const Member& member : next.members) {
    if (member.node != node_) leave(member.node);
  }
}

void Witness::on(const std::string& from, const change::Ask& m) {
  // A guest that the last life had invited: nobody expects it here any more.
  if (m.epoch == 0) return actions_->send(from, Reject{record_.view.incarnation, ""});
  const auto& known = record_.acceptor.last_commit;
  if (m.epoch < record_.view.epoch && known) actions_->send(from, *known);
  if (m.epoch > record_.view.epoch) {
    actions_->send(from, change::Ask{record_.view.incarnation, record_.view.epoch});
  } else if (record_.view.index_of(from)) {
    leave(from);  // it may have heard so before it was in this view, of which this node was none
  }
}

// Of no op anything: nothing can be recovered from here, and nothing is.
Report Witness::report() const {
  Report report;
  report.node = node_;
  report.lost = record_.lost;
  report.wants_out = true;
  return report;
}

bool share_ranks(const View& one, const View& other, const std::string& node) {
  const auto here = one.index_of(node), there = other.index_of(node);
  if (!here || !there) return false;
  return std::ranges::any_of(one.members[*here].ranks, [&](const RankInfo& info) {
    return std::ranges::any_of(other.members[*there].ranks,
                               [&info](const RankInfo& same) { return same.claim == info.claim; });
  });
}

JobId job_of(const JobMessage& message) {
  return std::visit(
      [](const auto& m) {
        if constexpr (requires { m.incarnation; }) return m.incarnation;
        return JobId{};
      },
      message);
}

}  // namespace gradring::core
