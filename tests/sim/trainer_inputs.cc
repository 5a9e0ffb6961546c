// Inputs that are still on their way when their op is submitted.

#include <cstring>
#include <utility>
#include <vector>

#include "tests/sim/trainer.h"
#include "tests/sim/world.h"

namespace gradring::sim {

// What has not come yet is nothing that anybody may take for its value.
void Trainer::hold_back(core::Submission* submission) {
  const uint64_t bytes =
      extent_of(submission->signature, submission->rank, submission->position).input;
  if (bytes == 0) return;
  const uint64_t here = core::Random(submission->ticket * 64 + rank_).below(bytes);
  std::byte* const from = memory_->data() + submission->input.offset + here;
  std::vector<std::byte> rest(from, from + bytes - here);
  std::memset(from, 0x5a, rest.size());
  submission->input_here = here;
  bring(submission->ticket, std::move(rest), here);
}

void Trainer::bring(uint64_t ticket, std::vector<std::byte> rest, uint64_t here) {
  core::Random random(ticket * 64 + rest.size());
  const auto when = static_cast<Time>(random.below(6 * core::kMillisecond));
  const uint64_t more = 1 + random.below(rest.size());
  world_->events().in(when, [this, ticket, rest = std::move(rest), here, more, life = life_] {
    const auto found = submissions_.find(ticket);
    if (life != life_ || state_ != State::kTraining || found == submissions_.end()) return;
    core::Submission& submission = found->second;
    std::memcpy(memory_->data() + submission.input.offset + here, rest.data(), more);
    submission.input_here = here + more;
    ++world_->stats().pieces;
    world_->node(node_).input_came(view_.incarnation, this, submission);
    if (more == rest.size()) return;
    bring(ticket, {rest.begin() + static_cast<ptrdiff_t>(more), rest.end()}, here + more);
  });
}

}  // namespace gradring::sim
