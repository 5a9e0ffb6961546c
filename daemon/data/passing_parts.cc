#include "daemon/data/passing_parts.h"

#include <algorithm>
#include <limits>

#include "daemon/data/stream_gate.h"

namespace gradring::daemon {

uint64_t PassingParts::input_here(const Submit& submit) {
  const StreamWord& word = submit.reached;
  if (!word || word.parts == 1) return core::Submission::kAllHere;
  const uint32_t come = word.parts_come();
  return come == word.parts ? core::Submission::kAllHere : come * submit.part_bytes;
}

void PassingParts::add(const Submit& submit, uint64_t input_here, core::Time now) {
  const core::Submission& s = submit.submission;
  if (input_here != core::Submission::kAllHere) {
    const auto parts = static_cast<uint32_t>(input_here / submit.part_bytes);
    coming_.push_back({{s.rank, s.ticket, s.key, submit.reached, submit.part_bytes}, parts, now});
  }
  if (submit.ended && submit.ended.parts > 1) {
    going_.push_back({{s.rank, s.ticket, s.key, submit.ended, submit.part_bytes}});
  }
}

void PassingParts::drop(uint32_t rank, uint64_t ticket) {
  const auto is_it = [&](const Passing& one) { return one.rank == rank && one.ticket == ticket; };
  std::erase_if(coming_, is_it);
  std::erase_if(going_, is_it);
}

void PassingParts::begin_epoch() {
  for (Going& going : going_) going.slice = 0, going.bytes = 0;
}

void PassingParts::look(core::JobEngine* engine) {
  for (Coming& coming : coming_) {
    const uint32_t parts = coming.word.parts_come();
    if (parts <= coming.parts) continue;
    coming.parts = parts;
    engine->input_came(
        coming.rank, coming.key,
        parts == coming.word.parts ? core::Submission::kAllHere : parts * coming.part_bytes);
  }
  std::erase_if(coming_, [](const Coming& coming) { return coming.parts == coming.word.parts; });
  for (Going& going : going_) look(&going, *engine);
}

// As far as it is there without a gap. Blocks of others are not in this rank's output.
void PassingParts::look(Going* going, const core::JobEngine& engine) {
  const core::Op* const op = engine.find(going->key);
  if (op == nullptr || op->slices.size() != op->plan.slices) return;
  const core::Plan& plan = op->plan;
  for (; going->slice < plan.slices; ++going->slice) {
    if (!plan.block_of(going->slice).goes_to(going->rank)) continue;
    if (op->slices[going->slice].state == core::SliceState::kUntouched) break;
    if (plan.output_at(going->slice) != going->bytes) break;
    going->bytes += plan.length_of(going->slice);
  }
  const uint64_t parts = going->bytes / going->part_bytes;
  // The last one is for the end to tell.
  going->word.set_come(std::min(static_cast<uint32_t>(parts), going->word.parts - 1));
}

uint32_t PassingParts::coming_of(uint32_t rank) const {
  return static_cast<uint32_t>(
      std::count_if(coming_.begin(), coming_.end(),
                    [rank](const Coming& coming) { return coming.rank == rank; }));
}

core::Time PassingParts::next_look(core::Time now) const {
  core::Time soonest = std::numeric_limits<core::Time>::max();
  for (const Coming& coming : coming_) {
    soonest = std::min(soonest, daemon::next_look(now, coming.since));
  }
  return soonest;
}

}  // namespace gradring::daemon
