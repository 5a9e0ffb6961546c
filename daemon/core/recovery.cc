#include "daemon/core/recovery.h"

#include <algorithm>
#include <utility>

#include "daemon/core/op_fates.h"
#include "daemon/core/planted.h"
#include "proto/policy.h"

namespace gradring::core {
namespace {

using Reports = std::map<std::string, Report>;

bool contains(const std::vector<std::string>& list, const std::string& item) {
  return std::find(list.begin(), list.end(), item) != list.end();
}

std::string plural(size_t count, const std::string& what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

std::string too_few(uint32_t ranks, const Policy& policy) {
  return plural(ranks, "rank") + " left, fewer than min=" + std::to_string(policy.min) +
         ", so the job ends";
}

// Rule D9: an op that some node has completed cannot fail any more. So where a slice of it came
// damaged each time, its two ends take the link between them for broken. What the first of them
// says of it, or nothing.
const Failure* damaged_link(const Reports& reports, const std::string& a, const std::string& b) {
  for (const auto& [from, to] : {std::pair(a, b), std::pair(b, a)}) {
    for (const auto& [key, condemned] : reports.at(from).condemned) {
      if (condemned.receiver != to) continue;
      for (const auto& [node, report] : reports) {
        const auto op = std::find_if(report.ops.begin(), report.ops.end(),
                                     [&key = key](const OpReport& r) { return r.key == key; });
        const bool completed = op == report.ops.end() ? report.ended.contains(key) : op->completed;
        if (completed && !planted(Bug::kCondemnedThoughComplete)) return &condemned.failure;
      }
    }
  }
  return nullptr;
}

// Which of some nodes reach each other. Of a thousand there are a million pairs, and the node that
// decides says nothing to the others meanwhile: so each pair is looked up once.
class Links {
 public:
  Links(const std::vector<std::string>& nodes, const Reports& reports)
      : nodes_(nodes), by_name_(nodes), hears_(nodes.size() * nodes.size()) {
    std::sort(by_name_.begin(), by_name_.end());
    for (size_t i = 0; i < by_name_.size(); ++i) {
      size_t next = 0;  // reports name nodes in order, most of them
      for (const std::string& node : reports.at(by_name_[i]).reachable) {
        const auto other = place_of(node, next);
        if (other) hears_[i * count() + *other] = true;
        next = other.value_or(next) + 1;
      }
    }
    for (size_t i = 0; i < by_name_.size(); ++i) {
      for (const auto& [key, condemned] : reports.at(by_name_[i]).condemned) {
        const auto to = place_of(condemned.receiver, 0);
        if (to && damaged_link(reports, by_name_[i], by_name_[*to])) {
          hears_[i * count() + *to] = false;
        }
      }
    }
  }

  // Those that are left, in their order, when one after the other went that most others miss; of
  // two the higher name.
  std::vector<std::string> joined() {
    std::vector<size_t> missing(count());
    for (size_t i = 0; i < count(); ++i) {
      for (size_t other = 0; other < count(); ++other) missing[i] += misses(i, other) ? 1 : 0;
    }
    std::vector<bool> out(count());
    for (;;) {
      size_t worst = 0;
      for (size_t i = 0; i < count(); ++i) {
        if (missing[i] >= missing[worst]) worst = i;
      }
      if (count() == 0 || missing[worst] == 0) break;
      out[worst] = true;
      missing[worst] = 0;
      for (size_t other = 0; other < count(); ++other) {
        if (!out[other] && misses(worst, other)) --missing[other];
      }
    }
    std::vector<std::string> left;
    for (const std::string& node : nodes_) {
      if (!out[place_of(node, 0).value()]) left.push_back(node);
    }
    return left;
  }

 private:
  size_t count() const { return by_name_.size(); }
  bool misses(size_t a, size_t b) const {
    return a != b && (!hears_[a * count() + b] || !hears_[b * count() + a]);
  }
  std::optional<size_t> place_of(const std::string& node, size_t guess) const {
    for (size_t i = guess; i < std::min(guess + 2, count()); ++i) {
      if (by_name_[i] == node) return i;
    }
    const auto it = std::lower_bound(by_name_.begin(), by_name_.end(), node);
    if (it == by_name_.end() || *it != node) return std::nullopt;
    return static_cast<size_t>(it - by_name_.begin());
  }

  const std::vector<std::string>& nodes_;
  std::vector<std::string> by_name_;
  std::vector<bool> hears_;  // by two places: the first the second
};

uint32_t ranks_of(const std::vector<Member>& members) {
  size_t ranks = 0;
  for (const Member& member : members) ranks += member.ranks.size();
  return static_cast<uint32_t>(ranks);
}

// Whoever starts trainers ends the others so as soon as one has died, and that may be seen first.
bool ended_on_request(const Failure& failure) {
  return failure.cause == Cause::kTrainerDied && failure.blame.evidence == kEndedOnRequest;
}

// What went, in the order of blame: a rank that died is a reason of its own, a node's is a guess,
// and a rank that was asked to end is seldom the first.
std::vector<Failure> losses(const View& old, const View& next, const Reports& reports,
                            const std::map<std::string, Failure>& lost) {
  std::vector<Failure> list;
  for (const Member& member : old.members) {
    const auto report = reports.find(member.node);
    if (report == reports.end()) continue;
    for (const LostRank& rank : report->second.lost) list.push_back(rank.failure);
  }
  for (const Member& member : old.members) {
    if (next.index_of(member.node)) continue;
    const auto known = lost.find(member.node);
    const auto report = reports.find(member.node);
    if (report != reports.end() && report->second.ranks.empty() && !report->second.lost.empty()) {
      continue;  // it has said itself how each was lost
    }
    if (known != lost.end()) {
      list.push_back(known->second);
    } else if (report == reports.end()) {
      Failure failure{Cause::kPeerSilent, {}};
      failure.blame.node = member.node;
      failure.blame.evidence = "did not answer while the others agreed on a new view";
      list.push_back(failure);
    } else if (!report->second.ranks.empty()) {
      Failure failure{Cause::kPeerLost, {}};
      failure.blame.node = member.node;
      failure.blame.evidence = "is not connected to every other member";
      for (const Member& other : next.members) {
        const auto theirs = reports.find(other.node);
        if (theirs == reports.end() || other.node == member.node) continue;
        if (const Failure* damaged = damaged_link(reports, member.node, other.node)) {
          failure = *damaged;
          break;
        }
        if (contains(theirs->second.reachable, member.node) &&
            contains(report->second.reachable, other.node)) {
          continue;
        }
        failure.blame.evidence = "the link between it and node " + other.node + " is broken";
        break;
      }
      list.push_back(failure);
    }
  }
  std::stable_partition(list.begin(), list.end(),
                        [](const Failure& failure) { return !ended_on_request(failure); });
  return list;
}

// And no member has decided it: as it is decided, it ends (rule D7), and the next one is early
// enough.
bool at_join_point(const View& next, const Reports& reports) {
  for (const Member& member : next.members) {
    const auto report = reports.find(member.node);
    if (report == reports.end()) return false;
    bool ready = false;
    for (const OpReport& op : report->second.ops) {
      if (op.completed) continue;
      const bool join = op.signature && op.signature->collective == Collective::kJoinPoint;
      if (!join || op.contributions == 0 || op.outcome.ranks != 0) return false;
      ready = true;
    }
    if (!ready) return false;
  }
  return true;
}

// Rule V11: a table holds for the nodes that it was made for.
bool retune(const View& old, const std::optional<Tuning>& wanted, View* next) {
  const auto in_old = [&](const Member& member) { return old.index_of(member.node).has_value(); };
  const bool same = next->members.size() == old.members.size() &&
                    std::all_of(next->members.begin(), next->members.end(), in_old);
  if (!same) {
    next->tuning.classes.clear();
    return false;
  }
  if (!wanted || next->closed) return false;
  next->tuning = *wanted;
  return true;
}

}  // namespace

std::vector<std::string> choose_members(const View& old, const Reports& reports) {
  const Policy policy = parse_policy(old.policy).value_or(Policy{});
  std::vector<std::string> chosen;
  for (const Member& member : old.members) {
    const auto report = reports.find(member.node);
    if (report == reports.end()) continue;
    if (policy.elastic && (report->second.wants_out || report->second.ranks.empty())) continue;
    chosen.push_back(member.node);
  }
  return Links(chosen, reports).joined();
}

tl::expected<Proposal, std::string> decide(const View& old, const Reports& reports,
                                           const std::map<std::string, Failure>& lost,
                                           const std::vector<Member>& all_joiners,
                                           const std::string& reason,
                                           const std::optional<Tuning>& tuning) {
  const Policy policy = parse_policy(old.policy).value_or(Policy{});
  Proposal proposal;
  View& next = proposal.view;
  next = old;
  next.epoch = old.epoch + 1;
  next.members.clear();
  for (const std::string& node : choose_members(old, reports)) {
    next.members.push_back({node, reports.at(node).ranks});
  }
  if (planted(Bug::kMemberWithoutReport)) {
    for (const Member& member : old.members) {
      if (reports.count(member.node) == 0 && lost.count(member.node) == 0) {
        next.members.push_back(member);
      }
    }
  }
  // On a node of the old view that has not reported, others may be alive that go on with ops of
  // their own: it has to learn first that it is left out.
  std::vector<Member> joiners;
  for (const Member& joiner : all_joiners) {
    if (!old.index_of(joiner.node) || next.index_of(joiner.node)) joiners.push_back(joiner);
  }
  const Failure* condemned = nullptr;
  for (const Member& member : next.members) {
    const auto report = reports.find(member.node);
    if (report == reports.end()) continue;
    for (const auto& [key, why] : report->second.condemned) {
      if (condemned == nullptr) condemned = &why.failure;
    }
  }
  bool grows =
      !joiners.empty() && !next.members.empty() && !old.closed && at_join_point(next, reports);
  const std::vector<Failure> gone = losses(old, next, reports, lost);
  next.size = ranks_of(next.members) + (grows ? ranks_of(joiners) : 0);
  if (!old.closed && (!gone.empty() || next.size < old.size) &&
      (!policy.elastic || next.size < policy.min)) {
    next.closed = gone.empty() ? Failure{Cause::kPeerLost, {}} : gone.front();
    // An elastic job goes on without whoever was lost, so that alone does not say why it has ended.
    if (policy.elastic) {
      std::string& evidence = next.closed->blame.evidence;
      if (!evidence.empty()) evidence += "; ";
      evidence += too_few(ranks_of(next.members), policy);
    }
    // Nobody is taken into a job that ends: who waits to come in takes part in its next life.
    grows = false;
    next.size = ranks_of(next.members);
  }
  if (grows) {
    next.grown = next.epoch;
    for (Member& joiner : joiners) {
      for (RankInfo& info : joiner.ranks) info.since = next.epoch;
      const auto known = next.index_of(joiner.node);
      if (known) {
        auto& ranks = next.members[*known].ranks;
        ranks.insert(ranks.end(), joiner.ranks.begin(), joiner.ranks.end());
      } else {
        next.members.push_back(std::move(joiner));
      }
    }
  }
  sort_into_ring(&next.members);
  const bool retuned = retune(old, tuning, &next);
  next.explanation = "epoch " + std::to_string(next.epoch) + ": ";
  if (gone.empty() && !grows) {
    std::string why = "a connection broke or was slow";
    if (retuned) why = "the tuner asked for another table";
    if (!reason.empty()) why = reason;
    next.explanation += condemned == nullptr ? "the same members, after " + why
                                             : "the same members; " + describe(*condemned);
  } else if (grows && gone.empty()) {
    next.explanation +=
        "grown to " + plural(next.size, "rank") + " on " + plural(next.members.size(), "node");
  } else {
    next.explanation += describe(gone.front());
    if (gone.size() > 1)
      next.explanation += gone.size() == 2
                              ? "; and another loss"
                              : "; and " + std::to_string(gone.size() - 1) + " other losses";
    if (!next.closed) {
      next.explanation += "; " + plural(next.size, "rank") + " of " + std::to_string(old.size) +
                          " on " + plural(next.members.size(), "node") + " go on";
    } else if (policy.elastic) {
      next.explanation += "; " + too_few(next.size, policy);
    } else {
      next.explanation += "; policy fail, so the job ends";
    }
  }
  // Who leaves what is over has not ended it: launchers end all who are left.
  if (old.closed) next.explanation = old.explanation;

  auto fates = fates_of(old, next, reports);
  if (!fates) return tl::unexpected(fates.error());
  proposal.ops = std::move(*fates);
  return proposal;
}

}  // namespace gradring::core
