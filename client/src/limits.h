#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

// Every number the client library waits by or stops at, with its reason.
namespace gradring::client {

// From connecting to an open session. The daemon answers in well under a millisecond; seconds are
// for a machine that is swapping or a daemon that is still starting.
inline constexpr std::chrono::milliseconds kHandshakeTime{5000};
// For the daemon to take a message when its queue is full. It drains the queue continuously, so
// seconds without room mean that it is stopped.
inline constexpr std::chrono::milliseconds kSendTime{5000};
// For the answer to a call that needs no other node (allocate, free).
inline constexpr std::chrono::milliseconds kCallTime{30000};
// The same, for who would rather go without it: who asks has waited too long already.
inline constexpr std::chrono::milliseconds kProgressTime{1000};
// On top of a join timeout, which the daemon watches itself: its refusal names the missing ranks,
// so it should win against our own.
inline constexpr std::chrono::milliseconds kJoinMargin{5000};
// For the daemons of all communicators to close memory of a GPU that is freed. Each does so within
// a millisecond, and what it does not is closed later.
inline constexpr std::chrono::milliseconds kGpuFreeTime{2000};
// For the daemon to confirm a leave.
inline constexpr std::chrono::milliseconds kLeaveTime{2000};
// The same for all communicators of a family together, one after the other, where the daemon does
// not confirm; and after how long they wait again.
inline constexpr std::chrono::milliseconds kLeaveAllTime{6000};
inline constexpr std::chrono::milliseconds kLeaveAnewTime{30000};
// Between the closing of the attach socket and giving the session up: a daemon that is told to stop
// says why on the control channel, and the two channels are not ordered.
inline constexpr std::chrono::milliseconds kLastWordsTime{200};
// Between two attempts to connect to a daemon that does not listen, or has no room just now. It
// should not add to the pause that a restart is, and costs a system call or two.
inline constexpr std::chrono::milliseconds kConnectPause{20};
// On top of the daemon's restart-grace, which it counts itself: for connecting, greeting and
// opening the session on a machine that is busy with a restart.
inline constexpr std::chrono::milliseconds kResumeMargin{2000};
// A daemon opens a session within a millisecond. So much later it is asked on a new connection, and
// after that it is left twice as long each time.
inline constexpr std::chrono::milliseconds kOpenAgain{500};
// Whoever waits for an alarm wakes within a few milliseconds of it. Longer past it, nobody waited.
inline constexpr std::chrono::milliseconds kLateLook{500};
// Between JobClosed and giving up on open requests. The daemon ends each by Completed once it no
// longer touches their buffers; ending them earlier would hand memory back that may still be
// written.
inline constexpr std::chrono::milliseconds kJobClosedTime{1000};

// Replies on the attach socket are some hundred bytes; the longest is a refusal's sentence.
inline constexpr size_t kAttachPacketBytes = 16 * 1024;
// Operations in one message when all are submitted again. The daemon takes messages of 256 KiB, and
// needs some of that for Submit.seen.
inline constexpr size_t kSubmitBytes = 128 * 1024;
// What the daemon takes; fits a parameter's full path in any model.
inline constexpr size_t kOpNameBytes = 512;
// Distinct op names of one communicator, each of which keeps a use counter for good. Far more than
// tensors in a model; a trainer that passes it makes up a new name for every step.
inline constexpr size_t kOpNames = 64 * 1024;

// Buffers of a GPU pass in parts, so that copies and the network have something to do at the same
// time: of eight an eighth of what both copies take is left, at a few microseconds of the caller's
// for each part; and two MiB take the fastest bus 30 us.
inline constexpr uint64_t kPartsMost = 8;
inline constexpr uint64_t kPartBytes = uint64_t{2} << 20;

// So many ends that we have taken in may be untold, where a restart can follow, before an op goes
// as a message that tells them.
inline constexpr size_t kSeenUntold = 512;

}  // namespace gradring::client
