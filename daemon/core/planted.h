#pragma once

#include <cstdint>

namespace gradring::core {

// Mistakes that one could make in the failure protocol, each with the rule it breaks
// (docs/failure-protocol.md). The simulator's own build of the core can make any one of them, to
// show that its checks would notice; everywhere else planted() is the constant false, and no code
// of any of them exists.
enum class Bug : uint8_t {
  kNone,
  kCommitOnPromises,         // V4, V5
  kAcceptedNotAdopted,       // V3
  kLowerBallotsAccepted,     // V2, V4
  kNoQuorum,                 // quorum
  kQuorumOfNewView,          // quorum
  kAnyHalf,                  // quorum
  kWitnessIsVote,            // R2
  kRestartWithoutRecord,     // R1
  kDataAfterReport,          // V2
  kOldEpochData,             // D8
  kStraightIntoInput,        // D4
  kMemberWithoutReport,      // V3
  kOnlyOwnReport,            // V3
  kHeldIgnored,              // V8
  kNoRetention,              // T1
  kDroppedAtSuccessorsAck,   // T2
  kOkAtCommit,               // D6
  kCopiesKeptOnAll,          // T2b
  kGaveUpButStays,           // V9c
  kFailedNotReported,        // V9b
  kFailedAfterReport,        // V9b
  kLateSubmissionNotFailed,  // V8.3
  kExcludedSilent,           // V6
  kNobodyRetells,            // V6
  kSlotsPerGrant,            // D2
  kOnlySuccessorReady,       // D1
  kStartWithOneSlot,         // D2
  kPrefixAcks,               // T4
  kDamagedIsTaken,           // D9
  kFreedBeforeConfirmed,     // D9
  kCondemnedAlone,           // D9, V9
  kCondemnedThoughComplete,  // D9, V8
  kLostLaneIgnored,          // D9
  kToldBeforeStable,         // D7
  kOwnOutputIsEnough,        // D10
  kEndedElsewhereIgnored,    // D10, V8
  kDoneBeforeFinal,          // D10, T2
  kOwnOrderOfSum,            // D10
  kDataToTheUnheard,         // D10
  kSubtreeIsEnough,          // D1
  kNobodyIsAsked,            // D1b
  kJoinOfOthersCounted,      // D1
  kRisesInHaste,             // D10
  kTunedInHaste,             // V11
  kTableOfBefore,            // V11
  kFoldedInHaste,            // D3b
  kUnfinishedIsWaitedFor,    // D3b
  kBallotUsedAgain,          // R1
};
inline constexpr uint8_t kBugLast = static_cast<uint8_t>(Bug::kBallotUsedAgain);

#ifdef GRADRING_PLANTED_BUGS
inline thread_local Bug planted_bug = Bug::kNone;
inline bool planted(Bug bug) { return planted_bug == bug; }
#else
constexpr bool planted(Bug) { return false; }
#endif

}  // namespace gradring::core
