#include "proto/verdict.h"

#include <array>

namespace gradring {

std::string_view name_of(Verdict verdict) {
  static constexpr std::array<std::string_view, 4> kNames = {"none", "OK", "OK_SHRUNK", "FAILED"};
  const auto index = static_cast<size_t>(verdict);
  return index < kNames.size() ? kNames[index] : "unknown";
}

std::string_view name_of(Cause cause) {
  static constexpr std::array<std::string_view, kCauseLast + 1> kNames = {
      "none",        "mismatch",        "trainer died",   "trainer left", "peer lost",
      "peer silent", "deadline passed", "protocol error", "refused",      "daemon drained",
      "excluded",    "no quorum",       "root lost",      "corrupted"};
  const auto index = static_cast<size_t>(cause);
  return index < kNames.size() ? kNames[index] : "unknown";
}

std::string describe(const Failure& failure) {
  const Blame& blame = failure.blame;
  std::string who;
  const auto add = [&who](const std::string& part) { who += (who.empty() ? "" : ", ") + part; };
  if (blame.rank != kNoRank) add("rank " + std::to_string(blame.rank));
  if (!blame.node.empty()) add("node " + blame.node);
  if (blame.pid != 0) add("pid " + std::to_string(blame.pid));
  if (!blame.device.empty()) add("device " + blame.device);
  std::string text(name_of(failure.cause));
  if (!who.empty()) text += ": " + who;
  if (!blame.evidence.empty()) text += ": " + blame.evidence;
  return text;
}

}  // namespace gradring
