#pragma once

#include <spdlog/spdlog.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "daemon/core/time.h"
#include "daemon/event_ring.h"
#include "proto/status.h"

// What administrators wait for in the log. In the journal each has an id that never changes
// (docs/operate.md), and fields to search by; elsewhere it is a line like any other.
namespace gradring::daemon {

enum class Notice : uint8_t {
  kReady,
  kJobFormed,
  kJobFailed,
  kPeerUp,
  kPeerLost,
  kTrainerDied,
  kDraining,
  kLimitHit,
  kJobEnded,
  kViewChanged,
  kPeerSuspected,
  kPeerAway,
  kLaneLost,
  kLaneBack,
  kNonfinite,
  kReread,
  kNotReread,
  kServingAgain,
  kWeightSet,
  kRankLate,
  kRankPunctual,
  kPortDown,
  kPortActive,
  kPortChanged,
  kGpuUnusable,
  kGpuError,
  kGpusGivenUp,
  kPeerStopped,
};

// The journal's MESSAGE_ID: 32 hexadecimal digits.
const char* message_id(Notice notice);

// Names of fields begin with GRADRING_; values may hold anything.
using NoticeFields = std::vector<std::pair<const char*, std::string>>;

// "job formed"
const char* name_of(Notice notice);

// Whatever is told from now on, whatever the log's level. Once, before any other thread; it
// outlives them all.
void remember_in(EventRing* ring);

// Logs `text` through spdlog's default logger. Any thread.
void tell(Notice notice, spdlog::level::level_enum level, const NoticeFields& fields,
          const std::string& text);

// Lines of the log that others can bring about as fast as they like: each once a second. Lines that
// differ in numbers alone are one, and there are a few in a second at most, whatever they say.
class Seldom {
 public:
  bool lets(const std::string& text, core::Time now);

 private:
  std::map<std::string, core::Time> let_;
};

// Lines about the jobs of one user: as many at once as a large job brings about, and one a second
// from then on. Else a user who begins jobs without end hides what others do, in the log and among
// the events.
class LinesOfUsers {
 public:
  enum class Lets : uint8_t { kYes, kNo, kNoMore };  // kNoMore: the first that is left out

  Lets lets(uint32_t uid, core::Time now);

 private:
  struct User {
    core::Time until = 0;  // what it was let say is worth a second each
    bool too_much = false;
  };
  std::map<uint32_t, User> users_;
};

// tell() of a job of `uid`, unless there is too much of that user's. Control thread.
void tell_of_job(uint32_t uid, Notice notice, spdlog::level::level_enum level,
                 const NoticeFields& fields, const std::string& text);

// A refusal for want of room (kResourceExhausted) as kLimitHit, each seldom: whoever is refused may
// ask again at once. Others are nobody's business but the asker's. False: not now. Control thread.
bool tell_limit(const Status& refusal);

// Writes to the journal, with priorities, ids and fields; null where stderr does not lead there.
spdlog::sink_ptr make_journal_sink();

}  // namespace gradring::daemon
