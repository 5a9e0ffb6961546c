#include "tools/ctl/flight/words.h"

#include <fmt/format.h>
#include <string.h>

#include <algorithm>

#include "proto/frame.h"
#include "tools/common/size.h"
#include "tools/common/text.h"

namespace gradring::tools {
namespace {

// Joins what is not empty.
std::string join(const std::vector<std::string>& parts, std::string_view between) {
  std::string text;
  for (const std::string& part : parts) {
    if (!part.empty()) text += (text.empty() ? "" : std::string(between)) + part;
  }
  return text;
}

std::string rank_of(uint32_t rank) { return rank == kNoRank ? "" : fmt::format("rank {}", rank); }

std::string pid_of(uint64_t pid) { return pid == 0 ? "" : fmt::format("pid {}", pid); }

std::string cause_of(const FlightEntry& entry) {
  return std::string(name_of(static_cast<Cause>(entry.event.code)));
}

// The first op of a job has a key of zeros.
bool is_of_an_op(FlightKind kind) {
  return kind >= FlightKind::kOpSubmitted && kind <= FlightKind::kGpuEnded &&
         kind != FlightKind::kEngineFailed;
}

std::string slice_of(const FlightEvent& event) {
  std::string text = fmt::format("slice {}", event.index);
  if (event.code == static_cast<uint8_t>(Phase::kPartial)) text += " partial";
  if (event.code == static_cast<uint8_t>(Phase::kFinal)) text += " final";
  if (event.code == static_cast<uint8_t>(Phase::kDirect)) text += " direct";
  if (event.code == static_cast<uint8_t>(Phase::kRising)) text += " rising";
  if (event.code != 0) text += fmt::format(", hop {}", event.value);
  return text;
}

// Of a kind that has no words of its own here: whatever its fields hold.
std::string raw(const FlightEntry& entry) {
  const FlightEvent& event = entry.event;
  std::vector<std::string> parts;
  if (event.code != 0) parts.push_back(fmt::format("code {}", event.code));
  if (event.index != 0) parts.push_back(fmt::format("index {}", event.index));
  if (event.value != 0) parts.push_back(fmt::format("value {}", event.value));
  if (event.epoch != 0) parts.push_back(fmt::format("epoch {}", event.epoch));
  return join({join(parts, ", "), entry.name, entry.words}, ": ");
}

void add_words(const FlightEntry& entry, const FlightNames& names, ToldEvent* told) {
  const FlightEvent& event = entry.event;
  const std::string trainer = join({rank_of(event.rank), pid_of(event.value)}, ", ");
  const std::string node = entry.name.empty() ? "" : "node " + entry.name;
  switch (event.kind) {
    case FlightKind::kDaemonStarted:
      told->detail = "gradringd " + entry.name;
      return;
    case FlightKind::kSignal:
      told->detail = fmt::format("signal {}, {}", event.code, strsignal(event.code));
      return;
    case FlightKind::kOpCondemned:
    case FlightKind::kPeerUp:
    case FlightKind::kPeerLost:
      told->who = node;
      if (event.kind == FlightKind::kPeerUp) return;
      told->bad = true;
      told->detail = join({cause_of(entry), entry.words}, ": ");
      return;
    case FlightKind::kLaneLost:
      told->who = node;
      told->bad = true;
      told->detail = entry.words;
      return;
    case FlightKind::kJobProposed:
      told->detail = counted(event.value, "rank") + " on " + counted(event.index, "node");
      return;
    case FlightKind::kViewEntered:
      told->detail = entry.words;
      return;
    case FlightKind::kJobMember:
      told->who = node;
      told->detail = fmt::format("member {}: {}", event.index, counted(event.value, "rank"));
      if (event.value > 0) told->detail += fmt::format(" from {} on", rank_of(event.rank));
      return;
    case FlightKind::kJobFailed:
    case FlightKind::kEngineFailed:
      told->bad = true;
      told->who = join({rank_of(event.rank), node, pid_of(event.value)}, ", ");
      told->detail = join({cause_of(entry), entry.words}, ": ");
      return;
    case FlightKind::kTrainerAttached:
      told->who = trainer;
      told->detail = join({fmt::format("uid {}", event.index), entry.name}, ", ");
      return;
    case FlightKind::kTrainerJoins:
      told->who = trainer;
      told->job = entry.name;
      return;
    case FlightKind::kTrainerLost:
    case FlightKind::kTrainerRefused:
      told->bad = true;
      [[fallthrough]];
    case FlightKind::kTrainerLeft:
    case FlightKind::kTrainerDetached:
      told->who = trainer;
      told->detail = entry.words;
      return;
    case FlightKind::kOpSubmitted:
      told->detail = join({std::string(name_of(static_cast<Collective>(event.code))),
                           event.value == 0 ? "" : format_bytes(event.value)},
                          ", ");
      return;
    case FlightKind::kReadySent:
    case FlightKind::kMismatchSent:
      told->who = "to " + names.member(event.job, event.index);
      return;
    case FlightKind::kReadyReceived:
    case FlightKind::kMismatchReceived:
      told->who = "from " + names.member(event.job, event.index);
      return;
    case FlightKind::kOpMoves:
      told->detail = "every rank is ready, " + format_bytes(event.value);
      return;
    case FlightKind::kOpDone:
      told->detail = name_of(static_cast<Verdict>(event.code));
      return;
    case FlightKind::kOpFailed:
      told->bad = true;
      told->detail = join(
          {cause_of(entry), event.index == kNoRank ? "" : rank_of(event.index), entry.words}, ": ");
      return;
    case FlightKind::kSliceDamaged:
    case FlightKind::kSliceResent:
      told->bad = true;
      [[fallthrough]];
    case FlightKind::kSliceStarted:
    case FlightKind::kSliceLanded:
    case FlightKind::kSliceForwarded:
    case FlightKind::kSliceDelivered:
    case FlightKind::kSliceAborted:
      told->who = event.rank == kNoRank ? "" : fmt::format("lane {}", event.rank);
      told->detail = slice_of(event);
      return;
    case FlightKind::kGpuBegan:
      told->detail = fmt::format("{} {} (their {})", name_of(static_cast<GpuTask>(event.code)),
                                 format_bytes(event.value), event.index);
      return;
    case FlightKind::kGpuEnded:
      told->bad = event.code != 0;
      told->detail = fmt::format("their {}{}", event.index, told->bad ? ", which failed" : "");
      return;
    default:
      told->detail = raw(entry);
  }
}

}  // namespace

Status no_such_job(std::string_view word, std::vector<std::string> known) {
  const std::string job = printable(word);
  if (known.empty())
    return {Code::kNotFound, fmt::format("nothing is recorded of a job {}, nor of another", job)};
  for (std::string& name : known) name = printable(name);
  std::ranges::sort(known);
  known.erase(std::unique(known.begin(), known.end()), known.end());
  return {Code::kNotFound, fmt::format("nothing is recorded of a job {}; of these there is: {}",
                                       job, fmt::join(known, ", "))};
}

ToldEvent tell(const FlightEntry& entry, const FlightNames& names) {
  const FlightEvent& event = entry.event;
  ToldEvent told;
  told.what = name_of(event.kind);
  if (told.what.empty()) told.what = fmt::format("event {}", static_cast<uint16_t>(event.kind));
  if (event.job != JobPrefix{}) {
    told.job = names.job(event.job);
    if (told.job.empty()) told.job = hex(event.job);
  }
  if (event.key != OpKey{} || is_of_an_op(event.kind)) {
    told.op = names.op(event.job, event.key);
  }
  told.who = rank_of(event.rank);
  add_words(entry, names, &told);
  return told;
}

}  // namespace gradring::tools
