#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace gradring {

// How an op ends; wire values.
enum class Verdict : uint8_t { kNone = 0, kOk = 1, kOkShrunk = 2, kFailed = 3 };

// Why an op or a whole job failed; wire values.
enum class Cause : uint8_t {
  kNone = 0,
  kMismatch = 1,     // two ranks submitted different signatures under one key
  kTrainerDied = 2,  // a trainer process ended without leaving the job
  kTrainerLeft = 3,  // a trainer left the job before submitting an op that others wait for
  kPeerLost = 4,     // a daemon's connection broke
  kPeerSilent = 5,   // a daemon was not heard of for the decide time
  kDeadline = 6,     // some rank never submitted the op within the op deadline
  kProtocol = 7,     // a peer broke the rules of the protocol: a bug or an incompatible version
  kRefused = 8,      // this submission itself was refused (bad offset, duplicate key, ...)
  kDrained = 9,      // the daemon was told to stop
  kExcluded = 10,    // this node is no member of the job's next view
  kNoQuorum = 11,    // too few members could be reached to agree on a next view
  kRootLost = 12,    // the root of a broadcast, or a rank that it needs, is lost with its input
  kCorrupted = 13,   // a slice came damaged three times over one link
};
inline constexpr uint8_t kCauseLast = 13;
std::string_view name_of(Verdict verdict);
std::string_view name_of(Cause cause);

inline constexpr uint32_t kNoRank = 0xffffffffu;

// Who is to blame, with the evidence in words. Fields that are not known keep their default.
struct Blame {
  uint32_t rank = kNoRank;
  std::string node;
  int64_t pid = 0;
  std::string device;
  std::string evidence;

  bool operator==(const Blame&) const = default;
};

struct Failure {
  Cause cause = Cause::kNone;
  Blame blame;

  bool operator==(const Failure&) const = default;
};
// One sentence for people: "trainer died: rank 3, node b, pid 4711: killed by signal 9".
std::string describe(const Failure& failure);

}  // namespace gradring
