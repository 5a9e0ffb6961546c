#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "daemon/control/door/process.h"
#include "daemon/core/membership.h"
#include "daemon/data/messages.h"
#include "daemon/fd.h"
#include "proto/wire.h"
#include "transport/shm/segment.h"

namespace gradring::daemon {

using core::SessionId;

struct SharedSegment {
  // Of several sessions of one process, perhaps; charged to its uid until the last lets it go.
  std::shared_ptr<const transport::Segment> shared;
  uint64_t uses = 0;  // open ops of this session that read or write it
  std::shared_ptr<const SharedGpuMemory> gpu = {};  // for which it stands, if that was shared
  bool gpu_asked = false;                           // that is open, or about to be opened
  bool gpu_borrowed = false;                        // its owner is another session
  std::array<std::byte, 16> gpu_of = {};            // while it is: the GPU's UUID

  std::span<std::byte> memory() const { return shared->memory(); }
  uint64_t bytes() const { return memory().size(); }
};
using Segments = std::map<uint64_t, SharedSegment>;

// What a session has to do with jobs:
//
//   from      event                            to
//   kNone     Join                             kJoining
//   kJoining  all ranks are there              kJoined
//   kJoining  refused                          kNone
//   kJoined   the job fails                    kClosed    later submissions end with its failure
//   kJoined   its GPU is lost                  kClosed    likewise, while the job may go on
//   any       Leave                            kNone
enum class JobPart : uint8_t { kNone, kJoining, kJoined, kClosed };

// One trainer, from its hello on the attach socket until it is gone and the data thread has given
// back every buffer it was lent.
struct Session {
  SessionId id = 0;
  std::string secret;
  Credentials who;
  std::string program;
  Fd socket;  // of the attach connection
  Fd pidfd;   // may be invalid: the socket's end of file has to do
  core::Time since = 0;
  bool welcomed = false;      // its hello was good
  bool gone = false;          // only open tickets keep it
  bool resumed = false;       // from before a restart of this daemon
  core::Time away_until = 0;  // not 0: its trainer has yet to attach again

  std::string routing_id;  // of the control connection; empty: none yet
  uint64_t opened_by = 0;  // the number of the request that this is from
  uint32_t malformed = 0;  // messages of no sense so far

  Segments segments;
  // Of memory of GPUs, by the request that they came with, until they are named.
  std::map<uint64_t, std::shared_ptr<const Fd>> offered;
  // Segments that were freed while memory of a GPU was about to be opened for them, and the
  // requests that are answered when it is closed again.
  std::map<uint64_t, uint64_t> freed_early;
  bool ring = false;  // the data thread may hold submissions that came by no message
  std::unordered_map<uint64_t, OpenTicket> open;
  uint64_t open_counts = 0;  // of unequal blocks of those

  JobPart part = JobPart::kNone;
  uint64_t join_request = 0;  // to be answered when kJoining ends
  size_t early_bytes = 0;
  std::vector<wire::Operation> early;  // submitted while kJoining, for when that ends
  uint64_t handle = 0;                 // of the job, from kJoined on
  JobId job{};
  std::string job_name;  // of its last join; empty after a restart of this daemon
  uint32_t rank = 0;
  Failure failure;  // when kClosed

  // To be sent. Completions gather into one message a turn; there are no more than open tickets
  // were.
  std::deque<wire::DaemonMessage> answers;
  size_t answer_bytes = 0;  // of those that are no completions
  size_t end_bytes = 0;     // of all completions
  wire::Completed completions;
};

}  // namespace gradring::daemon
