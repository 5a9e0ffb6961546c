#include "daemon/wire/view_wire.h"

#include <cstdint>
#include <utility>

namespace gradring::daemon {

std::string shortened(const std::string& text, size_t most) {
  if (text.size() <= most) return text;
  size_t end = most;
  // A byte 10xxxxxx continues a UTF-8 character that began before the cut.
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return text.substr(0, end);
}

void bounded_to_wire(const Failure& from, wire::Failure* to) {
  gradring::to_wire(from, to);
  to->mutable_blame()->set_evidence(shortened(from.blame.evidence));
}

bool bounded_from_wire(const wire::Failure& from, Failure* to) {
  return from.blame().node().size() <= kTextMax && from.blame().device().size() <= kTextMax &&
         from.blame().evidence().size() <= kTextMax && gradring::from_wire(from, to);
}

bool names_node(const std::string& name) { return !name.empty() && name.size() <= kNodeNameMax; }

void to_wire(const core::RankInfo& from, wire::RankInfo* to) {
  to->set_rank(from.rank);
  to->set_local_rank(from.local_rank);
  to->set_pid(from.pid);
  to->set_claim(from.claim);
  to->set_since(from.since);
}

bool from_wire(const wire::RankInfo& from, core::RankInfo* to) {
  *to = {from.rank(), from.local_rank(), from.pid(), from.claim(), from.since()};
  return to->since > 0;
}

namespace {

void to_wire(const core::Choice& from, wire::Choice* to) {
  to->set_way(static_cast<uint32_t>(from.way));
  to->set_slice_bytes(from.slice_bytes);
}

bool from_wire(const wire::Choice& from, core::Choice* to) {
  if (from.way() > core::kChoiceWayLast) return false;
  *to = {static_cast<core::Choice::Way>(from.way()), from.slice_bytes()};
  return true;
}

void to_wire(const core::Tuning& from, wire::Tuning* to) {
  for (const core::TunedClass& entry : from.classes) {
    wire::TunedClass* c = to->add_classes();
    c->set_size_class(entry.size_class);
    to_wire(entry.settled, c->mutable_settled());
    if (entry.tried) to_wire(*entry.tried, c->mutable_tried());
  }
  to->set_fixed(from.fixed);
}

bool from_wire(const wire::Tuning& from, core::Tuning* to) {
  *to = {};
  if (from.classes_size() > static_cast<int>(core::kSizeClasses)) return false;
  for (const wire::TunedClass& c : from.classes()) {
    core::TunedClass entry{c.size_class(), {}, {}};
    if (!from_wire(c.settled(), &entry.settled)) return false;
    if (c.has_tried() && !from_wire(c.tried(), &entry.tried.emplace())) return false;
    to->classes.push_back(entry);
  }
  to->fixed = from.fixed();
  return core::fault_of(*to).empty();
}

}  // namespace

void to_wire(const core::View& from, wire::View* to) {
  to->set_job(from.job);
  gradring::to_wire(from.incarnation, to->mutable_incarnation());
  to->set_epoch(from.epoch);
  to->set_size(from.size);
  to->set_policy(from.policy);
  to->set_uid(from.uid);
  for (const core::Member& member : from.members) {
    wire::Member* m = to->add_members();
    m->set_node(member.node);
    for (const core::RankInfo& rank : member.ranks) to_wire(rank, m->add_ranks());
  }
  to->set_grown(from.grown);
  if (from.closed) bounded_to_wire(*from.closed, to->mutable_closed());
  to->set_explanation(shortened(from.explanation));
  if (from.tuning != core::Tuning{}) to_wire(from.tuning, to->mutable_tuning());
}

bool from_wire(const wire::View& from, core::View* to) {
  if (from.job().empty() || from.job().size() > kJobNameMax || from.policy().size() > kTextMax ||
      from.explanation().size() > kTextMax || from.members_size() > kMembersMax ||
      !gradring::from_wire(from.incarnation(), &to->incarnation)) {
    return false;
  }
  to->job = from.job();
  to->epoch = from.epoch();
  to->size = from.size();
  to->policy = from.policy();
  to->uid = from.uid();
  // An invitation has epoch 0, and tells of ranks that came in any.
  const uint64_t latest = from.epoch() == 0 ? UINT64_MAX : from.epoch();
  if (from.grown() == 0 || from.grown() > latest) return false;
  to->members.clear();
  for (const wire::Member& m : from.members()) {
    if (!names_node(m.node())) return false;
    core::Member member{m.node(), {}};
    for (const wire::RankInfo& rank : m.ranks()) {
      core::RankInfo& info = member.ranks.emplace_back();
      if (!from_wire(rank, &info) || info.since > latest) return false;
    }
    to->members.push_back(std::move(member));
  }
  to->grown = from.grown();
  to->closed.reset();
  if (from.has_closed() && !bounded_from_wire(from.closed(), &to->closed.emplace())) return false;
  to->explanation = from.explanation();
  return from_wire(from.tuning(), &to->tuning);
}

}  // namespace gradring::daemon
