#include "daemon/core/plan_steps.h"

#include <vector>

namespace gradring::core {
namespace {

using Steps = std::vector<std::vector<Step>>;

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
  step.last = hop + 1 == members;
  if (!step.last) then_send(&step, Phase::kFinal, hop + 1);
  return step;
}

Step hand_over(uint32_t hop) {
  Step step = receive(Phase::kPartial, hop);
  step.finish = true;
  step.deliver = true;
  step.last = true;
  return step;
}

// Round once: begun at the first member, summed up at the others, final at the last.
Steps sum_to_steps(uint32_t n) {
  Steps at(n);
  if (n == 1) {
    at[0] = {start(Fold::kLocals, true, true)};
    at[0][0].last = true;
    return at;
  }
  Step first = start(Fold::kLocals, false, false);
  then_send(&first, Phase::kPartial, 1);
  at[0] = {first};
  for (uint32_t d = 1; d + 1 < n; ++d) {
    Step pass = receive(Phase::kPartial, d);
    pass.fold = Fold::kLocals;
    then_send(&pass, Phase::kPartial, d + 1);
    at[d] = {pass};
  }
  at[n - 1] = {hand_over(n - 1)};
  at[n - 1][0].fold = Fold::kLocals;
  return at;
}

// The same, and round once more to be handed out.
Steps sum_steps(uint32_t n) {
  Steps at = sum_to_steps(n);
  if (n == 1) return at;
  for (uint32_t d = 0; d + 1 < n; ++d) at[d].push_back(hand_out(d + 1, n));
  Step& last = at[n - 1][0];
  last.last = false;
  then_send(&last, Phase::kFinal, 1);
  return at;
}

// One member gives out a final value that it holds; one who has it already passes it on only.
Steps handing_steps(uint32_t n) {
  Steps at(n);
  Step first;
  if (n > 1) then_send(&first, Phase::kFinal, 1);
  at[0] = {first};
  for (uint32_t d = 1; d < n; ++d) at[d] = {hand_out(d, n)};
  return at;
}

Steps spread_steps(uint32_t n) {
  Steps at = handing_steps(n);
  Step first = start(Fold::kSource, true, true);
  first.last = n == 1;
  if (n > 1) then_send(&first, Phase::kFinal, 1);
  at[0] = {first};
  return at;
}

// Members on the way, by their distance from where it starts.
Steps carry_steps(uint32_t n) {
  Steps at(n);
  Step first = start(Fold::kSource, false, false);
  then_send(&first, Phase::kPartial, 1);
  at[0] = {first};
  for (uint32_t d = 1; d < n; ++d) {
    Step pass = receive(Phase::kPartial, d);
    then_send(&pass, Phase::kPartial, d + 1);
    at[d] = {pass};
  }
  return at;
}

// The member at the end of the way, by the same.
Steps carried_steps(uint32_t n) {
  Steps at(n);
  Step here = start(Fold::kSource, true, true);
  here.last = true;
  at[0] = {here};
  for (uint32_t d = 1; d < n; ++d) at[d] = {hand_over(d)};
  return at;
}

Steps make_steps(Course course, uint32_t members) {
  switch (course) {
    case Course::kSum:
      return sum_steps(members);
    case Course::kSumTo:
      return sum_to_steps(members);
    case Course::kSpread:
      return spread_steps(members);
    case Course::kCarry:
      return carry_steps(members);
    case Course::kCarried:
      return carried_steps(members);
    case Course::kHand:
      break;
  }
  return handing_steps(members);
}

}  // namespace

SharedSteps SharedStepLists::of(Course course, uint32_t members) {
  if (members != members_) known_ = {};
  members_ = members;
  SharedSteps& steps = known_[static_cast<size_t>(course)];
  if (!steps) steps = std::make_shared<const Steps>(make_steps(course, members));
  return steps;
}

}  // namespace gradring::core
