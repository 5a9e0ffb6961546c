#include "tests/sim/trace.h"

#include <fmt/format.h>

#include <type_traits>
#include <variant>

namespace gradring::sim {
namespace {

double seconds(Time time) { return static_cast<double>(time) / static_cast<double>(core::kSecond); }

std::string describe(const core::Ballot& ballot) {
  return fmt::format("{}.{}", ballot.round, ballot.node);
}

std::string members_of(const core::View& view) {
  std::string text;
  for (const core::Member& member : view.members) {
    text += " " + member.node + "(";
    for (const core::RankInfo& info : member.ranks) {
      text += (text.back() == '(' ? "" : ",") + std::to_string(info.rank);
    }
    text += ')';
  }
  return text;
}

std::string describe(const core::SliceRun& run) {
  static constexpr char kStates[] = "UHD";
  std::string text = std::to_string(run.count) + kStates[static_cast<size_t>(run.state)];
  if (run.state != core::SliceState::kUntouched) text += "@" + std::to_string(run.value.epoch);
  return text;
}

std::string describe(const core::SliceFate& run) {
  switch (run.route) {
    case core::Route::kCompute:
      return fmt::format("{} computed", run.count);
    case core::Route::kHand:
      return fmt::format("{} of epoch {} from member {}", run.count, run.value.epoch, run.holder);
    case core::Route::kNone:
    case core::Route::kDirect:
      break;
  }
  return fmt::format("{} everywhere", run.count);
}

std::string describe(const core::OpFate& fate) {
  static constexpr const char* kKinds[] = {"begins anew", "goes on", "is complete", "fails"};
  std::string text = describe(fate.key) + " " + kKinds[static_cast<size_t>(fate.kind)];
  for (const core::SliceFate& run : fate.slices) text += ", " + describe(run);
  return text;
}

// What a message adds to its name.
template <typename Message>
std::string details(const Message& m) {
  std::string text;
  if constexpr (requires { m.incarnation; }) text += fmt::format(" job {:02x}", m.incarnation[0]);
  if constexpr (requires { m.ranks; }) {
    text += " of " + m.job + " ranks";
    for (const core::RankInfo& info : m.ranks) text += " " + std::to_string(info.rank);
  }
  if constexpr (requires { m.view; })
    text += fmt::format(" job {:02x}", m.view.incarnation[0]) + members_of(m.view);
  if constexpr (requires { m.reason; }) text += " " + m.reason;
  if constexpr (requires { m.why; }) text += " " + m.why;
  if constexpr (requires { m.failure; }) text += " " + gradring::describe(m.failure);
  if constexpr (requires { m.epoch; }) text += " epoch " + std::to_string(m.epoch);
  if constexpr (requires { m.ballot; }) text += " ballot " + describe(m.ballot);
  if constexpr (requires { m.promised; }) text += " promised " + describe(m.promised);
  if constexpr (requires { m.accepted; }) {
    if (m.accepted) text += " has accepted " + describe(m.accepted->ballot);
  }
  if constexpr (requires { m.proposal; }) text += " view" + members_of(m.proposal.view);
  return text;
}

const char* name_of(const core::JobMessage& message) {
  static constexpr const char* kNames[] = {"CLAIMS",       "PROPOSE",    "ACCEPT(join)", "REJECT",
                                           "COMMIT(join)", "JOB-FAILED", "JOB-DONE",     "LEFT",
                                           "UNWELCOME",    "PREPARE",    "PROMISE",      "ACCEPT",
                                           "ACCEPTED",     "COMMIT",     "REFUSE",       "ASK"};
  static_assert(std::size(kNames) == std::variant_size_v<core::JobMessage>);
  return kNames[message.index()];
}

}  // namespace

void Trace::write(Time now, const std::string& text) const {
  fmt::print(file_, "{:10.6f}  {}\n", seconds(now), text);
}

std::string describe(const Fault& fault) {
  const std::string tail = fmt::format(", known within {:.3f} s, lasts {:.3f} s",
                                       seconds(fault.detected), seconds(fault.lasts));
  switch (fault.kind) {
    case FaultKind::kCrashNode:
      return fmt::format("n{} dies", fault.a) + tail;
    case FaultKind::kBreakLink:
      return fmt::format("the link of n{} and n{} breaks", fault.a, fault.b) + tail;
    case FaultKind::kOneWay:
      return fmt::format("n{} hears nothing of n{} any more", fault.a, fault.b) + tail;
    case FaultKind::kPartition:
      return fmt::format("the nodes of mask {:x} are cut off", fault.mask) + tail;
    case FaultKind::kSuspect:
      return fmt::format("n{} takes n{} for lost", fault.a, fault.b);
    case FaultKind::kPauseNode:
      return fmt::format("n{} stands still", fault.a) + tail;
    case FaultKind::kLoseLane:
      return fmt::format("lane {} of n{} and n{} breaks{}", fault.mask & 1, fault.a, fault.b,
                         (fault.mask & 2) != 0 ? " one way" : "") +
             tail;
    case FaultKind::kStall:
      return "what n" + std::to_string(fault.a) + " says to n" + std::to_string(fault.b) +
             " comes late";
    case FaultKind::kDamage:
      return fmt::format("n{} -> n{} damages {} % of the slices", fault.a, fault.b, fault.percent) +
             tail;
    case FaultKind::kDieSpeaking:
      return fmt::format("n{} is to die after {} words", fault.a, fault.words) + tail;
    case FaultKind::kStop:
      return fmt::format("the daemon of n{} is told to stop", fault.a) + tail;
    case FaultKind::kRestart:
      return fmt::format("the daemon of n{} restarts", fault.a) + tail;
    case FaultKind::kRestartSpeaking:
      return fmt::format("the daemon of n{} is to restart after {} words", fault.a, fault.words) +
             tail;
    case FaultKind::kKillTrainer:
      return fmt::format("rank {} of job {} is killed", fault.b, fault.a);
  }
  return "";
}

std::string describe(const core::JobMessage& message) {
  return name_of(message) + std::visit([](const auto& m) { return details(m); }, message);
}

std::string describe(const Frame& f) {
  const std::string head = fmt::format("job {:02x} epoch {} ", f.job[0], f.epoch);
  const std::string op = " " + describe(f.key);
  switch (f.type) {
    case FrameType::kReady:
      return head + "READY" + op +
             fmt::format(" from rank {}, {} contributions, {}{}", f.ready.rank,
                         f.ready.contributions, describe(f.ready.signature),
                         f.ready.grows ? ", grows" : "") +
             (f.ready.eager
                  ? fmt::format(", number {} with {} bytes", f.ready.serial, f.ready.length)
                  : "") +
             fmt::format(", done {} + {:x}", f.ready.done.upto, f.ready.done.beyond);
    case FrameType::kSlice:
      return head + "SLICE" + op +
             fmt::format(" slice {} {} hop {}, {} contributions", f.slice.slice,
                         f.slice.phase == Phase::kPartial ? "partial"
                         : f.slice.phase == Phase::kFinal ? "final"
                                                          : "direct",
                         f.slice.hop, f.slice.ranks) +
             (f.slice.checked
                  ? fmt::format(", number {} attempt {}", f.slice.serial, f.slice.attempt)
                  : "");
    case FrameType::kCredit:
      return head + fmt::format("CREDIT {} freed, {} confirmed", f.credit.freed_total,
                                f.credit.confirmed_total);
    case FrameType::kStable:
      return head + (f.stable.kind == StableKind::kConfirm ? "CONFIRM" : "STABLE") + op +
             fmt::format(" slices {} + {:x}", f.stable.first, f.stable.bits[0]);
    case FrameType::kMismatch:
      return head + "MISMATCH" + op;
    case FrameType::kNack:
      return head + "NACK" + op +
             fmt::format(" slice {}, number {} attempt {}", f.nack.slice, f.nack.serial,
                         f.nack.attempt);
    case FrameType::kDigest:
      return head + "DIGEST" + op + fmt::format(" {:08x}", f.digest.crc32c);
    case FrameType::kDone:
      return head + fmt::format("DONE {} + {:x}", f.done.upto, f.done.beyond);
    case FrameType::kAllReady:
      return head + "ALL READY" + op +
             fmt::format(", {} contributions{}", f.all_ready.contributions,
                         f.all_ready.grows ? ", grows" : "");
    case FrameType::kWanted:
      return head + "WANTED" + op +
             fmt::format(" by rank {} for {} ns, {}", f.wanted.rank, f.wanted.waited,
                         describe(f.wanted.signature));
    case FrameType::kProbe:
      return head + fmt::format("PROBE {} {}", f.probe.probe, f.probe.count);
    case FrameType::kHeartbeat:
      break;
  }
  return head + "HEARTBEAT";
}

std::string describe(const core::Report& report) {
  std::string text = "reachable";
  for (const std::string& node : report.reachable) text += " " + node;
  for (const core::OpReport& op : report.ops) {
    text += "; " + describe(op.key) + (op.completed ? " complete" : "") +
            fmt::format(" {} here:", op.contributions);
    for (const core::SliceRun& run : op.slices) text += " " + describe(run);
  }
  for (const auto& [key, failure] : report.failed) text += "; " + describe(key) + " failed";
  for (const auto& [key, why] : report.condemned) {
    text += "; " + describe(key) + " came damaged to " + why.receiver;
  }
  return text;
}

std::string describe(const core::Proposal& proposal) {
  std::string text =
      proposal.view.job + members_of(proposal.view) + ": " + proposal.view.explanation;
  for (const core::OpFate& fate : proposal.ops.all()) text += "; " + describe(fate);
  return text;
}

}  // namespace gradring::sim
