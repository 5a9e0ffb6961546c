#pragma once

#include <cstdint>
#include <memory>
#include <tl/expected.hpp>

#include "daemon/control/sessions/session.h"
#include "daemon/data/messages.h"
#include "proto/ring.h"
#include "proto/status.h"

namespace gradring::daemon {

// The control thread's part in the rings of trainers (proto/ring.h): it makes them, tells the data
// thread which segments may be named there, and asks for them back. Control thread only.
class Rings {
 public:
  explicit Rings(CommandBox* commands) : commands_(commands) {}

  struct Opened {
    std::shared_ptr<const SharedRing> ours;
    Fd ended;  // the trainer's end of that bell
  };
  // Refused in words unless the session is in a job and has none.
  tl::expected<Opened, Status> open(Session& session);
  // To be called before the trainer hears of the segment, and of what it stands for.
  void lend(const Session& session, uint64_t segment);
  // False: nobody has to be asked. True: SegmentTakenBack will tell.
  bool take_back(const Session& session, uint64_t segment, uint64_t request);
  // Before the job hears that the session leaves it: what was submitted counts.
  void close(const Session& session, const Failure& why = {});

 private:
  CommandBox* const commands_;
};

}  // namespace gradring::daemon
