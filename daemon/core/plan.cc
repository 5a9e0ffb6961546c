#include "daemon/core/plan.h"

#include <algorithm>

namespace gradring::core {
namespace {

// Slices need a boundary that suits every element and vector load.
constexpr uint64_t kSliceAlign = 64;

// Rounds of slices per member that keep a ring busy: while one slice of mine is being summed,
// another is on the wire, and the last round's idle hops are a small part of the whole.
constexpr uint64_t kRoundsPerMember = 4;

Step start(Fold fold, bool finish, bool deliver) {
  Step step;
  step.fold = fold;
  step.finish = finish;
  step.deliver = deliver;
  return step;
}

Step receive(Phase phase, uint32_t hop) {
  Step step;
  step.receive = true;
  step.receive_phase = phase;
  step.receive_hop = static_cast<uint16_t>(hop);
  return step;
}

void then_send(Step* step, Phase phase, uint32_t hop) {
  step->send = true;
  step->send_phase = phase;
  step->send_hop = static_cast<uint16_t>(hop);
}

// The second turn: a final value arrives on its hop-th leg, is written home and goes on until the
// last member has it.
Step hand_out(uint32_t hop, uint32_t members) {
  Step step = receive(Phase::kFinal, hop);
  step.deliver = true;
  if (hop + 1 < members) then_send(&step, Phase::kFinal, hop + 1);
  return step;
}

std::vector<std::vector<Step>> allreduce_steps(uint32_t n) {
  std::vector<std::vector<Step>> at(n);
  if (n == 1) {
    at[0] = {start(Fold::kLocals, true, true)};
    return at;
  }
  Step first = start(Fold::kLocals, false, false);
  then_send(&first, Phase::kPartial, 1);
  at[0] = {first, hand_out(1, n)};
  for (uint32_t d = 1; d + 1 < n; ++d) {
    Step pass = receive(Phase::kPartial, d);
    pass.fold = Fold::kLocals;
    then_send(&pass, Phase::kPartial, d + 1);
    at[d] = {pass, hand_out(d + 1, n)};
  }
  Step last = receive(Phase::kPartial, n - 1);
  last.fold = Fold::kLocals;
  last.finish = true;
  last.deliver = true;
  then_send(&last, Phase::kFinal, 1);
  at[n - 1] = {last};
  return at;
}

// One member gives out a final value that it holds; one who has it already passes it on only.
std::vector<std::vector<Step>> handing_steps(uint32_t n) {
  std::vector<std::vector<Step>> at(n);
  Step first;
  if (n > 1) then_send(&first, Phase::kFinal, 1);
  at[0] = {first};
  for (uint32_t d = 1; d < n; ++d) at[d] = {hand_out(d, n)};
  return at;
}

std::vector<std::vector<Step>> broadcast_steps(uint32_t n) {
  std::vector<std::vector<Step>> at(n);
  Step first = start(Fold::kRoot, true, true);
  if (n > 1) then_send(&first, Phase::kFinal, 1);
  at[0] = {first};
  for (uint32_t d = 1; d < n; ++d) at[d] = {hand_out(d, n)};
  return at;
}

}  // namespace

uint32_t slice_bytes_for(const Signature& signature, uint32_t members, const PlanOptions& options) {
  const uint64_t wanted = signature.bytes() / (uint64_t{members} * kRoundsPerMember);
  const bool alone = members == 1 && options.slice_bytes_alone != 0;
  const uint64_t most = alone ? options.slice_bytes_alone : options.slice_bytes_max;
  const uint64_t least = std::min<uint64_t>(options.slice_bytes_min, most);
  const uint64_t bounded = std::clamp(wanted, least, most);
  return static_cast<uint32_t>(std::max(kSliceAlign, bounded / kSliceAlign * kSliceAlign));
}

Plan make_plan(const Signature& signature, uint32_t members, uint32_t me, uint32_t root_member,
               const PlanOptions& options, uint32_t slice_bytes) {
  Plan plan;
  plan.members = members;
  plan.me = me;
  if (signature.collective >= Collective::kBarrier || signature.count == 0) return plan;
  plan.bytes = signature.bytes();
  plan.slice_bytes = slice_bytes != 0 ? slice_bytes : slice_bytes_for(signature, members, options);
  plan.slices = static_cast<uint32_t>((plan.bytes + plan.slice_bytes - 1) / plan.slice_bytes);
  if (signature.collective == Collective::kBroadcast) {
    plan.rotate = false;
    plan.fixed_start = root_member;
    plan.steps_at = broadcast_steps(members);
  } else {
    plan.steps_at = allreduce_steps(members);
  }
  plan.hand_at = handing_steps(members);
  return plan;
}

}  // namespace gradring::core
