#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <tl/expected.hpp>

#include "client/src/attach.h"
#include "client/src/clock.h"
#include "client/src/control.h"
#include "client/src/reader.h"
#include "proto/status.h"
#include "proto/verdict.h"
#include "proto/wire.h"

namespace gradring::client {

// Where the daemon is, as its welcome told.
struct DaemonPlace {
  std::string runtime_dir;
  std::string node;
};

// Both channels to the daemon: calls that wait for their answer, messages that do not, and what
// comes unasked. Lives under its owner's mutex: every function is called with it held, and those
// that take the lock let go of it while they wait.
class Session final : private Reader::Source {
 public:
  // Told with the mutex held, while somebody waits or sends.
  class Events {
   public:
    // False: the message breaks the protocol.
    virtual bool on_completed(const wire::Completed& completed) = 0;
    // The refusal of a message that nobody waits for the answer of.
    virtual void on_refused(uint64_t request, const wire::Refused& refused) = 0;
    // The error says what is wrong with it: the message breaks the protocol.
    virtual Status on_view_changed(const wire::ViewChanged& changed) = 0;
    virtual void on_job_closed(const wire::JobClosed& closed) = 0;
    // The session is over. PEER_LOST if the daemon closed it (what it said last on the control
    // channel was told before), PROTOCOL if it sent garbage, REFUSED if it put us out. Once.
    virtual void on_lost(Cause cause, const Status& why) = 0;
    // The time of set_alarm has come.
    virtual void on_alarm() = 0;

   protected:
    ~Events() = default;
  };

  Session(Events& events, DaemonPlace place, AttachSocket attach, ControlSocket control);

  // False if the process has no descriptors left.
  bool valid() const { return reader_.valid(); }
  const DaemonPlace& place() const { return place_; }
  // Whether the daemon is gone for this session, for good.
  bool lost() const { return lost_.has_value(); }
  bool interrupted() const { return interruption_.has_value(); }
  // Whether calls and waits are to end, because it is lost or because of interrupt(), and why.
  bool over() const { return lost() || interrupted(); }
  Status why_over() const { return interruption_ ? *interruption_ : lost_.value_or(Status()); }

  // Numbers both calls and submissions, so that a refusal names either.
  uint64_t next_number() { return ++last_number_; }
  uint64_t last_number() const { return last_number_; }

  // Sends `message` under a new number and waits for the answer, which is a `body` or the error:
  // the daemon's refusal, DEADLINE_EXCEEDED after `deadline`, why_over().
  tl::expected<wire::DaemonMessage, Status> call(std::unique_lock<std::mutex>& lock,
                                                 wire::ClientMessage message,
                                                 wire::DaemonMessage::BodyCase body,
                                                 TimePoint deadline);
  tl::expected<AttachPacket, Status> allocate(std::unique_lock<std::mutex>& lock, uint64_t bytes,
                                              TimePoint deadline);

  // Waits until the daemon takes messages, until the deadline and for kSendTime at most. Then
  // send() will not be refused for lack of room, as long as the lock is kept.
  Status wait_for_room(std::unique_lock<std::mutex>& lock, TimePoint deadline = kNever);
  Status send(wire::ClientMessage message);

  template <class Done>
  bool wait_until(std::unique_lock<std::mutex>& lock, TimePoint deadline, Done done) {
    return reader_.wait_until(lock, deadline, done);
  }

  // Ends the calls and waits of all threads with this error, until resume().
  void interrupt(Status why);
  void resume() { interruption_.reset(); }

  // The earlier one wins, if one is set already.
  void set_alarm(TimePoint when);

  // After a fork: close what keeps the parent's daemon from noticing its death, and forget the
  // rest.
  void close_in_child();
  void abandon_in_child() { control_.abandon(); }

 private:
  bool take_in() override;
  int control_fd() const override { return control_open_ ? control_.fd() : -1; }
  int attach_fd() const override { return attach_open_ ? attach_.fd() : -1; }
  TimePoint alarm() const override { return std::min(alarm_, gone_at_); }

  bool take_control();
  bool take_attach();
  void dispatch(wire::DaemonMessage message);
  void dispatch(AttachPacket packet);
  void lose(Cause cause, Code code, std::string what);

  Events& events_;
  const DaemonPlace place_;
  AttachSocket attach_;
  ControlSocket control_;
  Reader reader_;

  bool attach_open_ = true;
  bool control_open_ = true;
  std::optional<Status> lost_;
  std::optional<Status> interruption_;
  TimePoint alarm_ = kNever;
  // When the daemon counts as gone, once it has closed the attach socket: its last words are on
  // their way until then.
  TimePoint gone_at_ = kNever;
  uint64_t last_number_ = 0;
  // Calls under way, one for each waiting thread at most; the answer, once it is there.
  std::map<uint64_t, std::optional<wire::DaemonMessage>> control_calls_;
  std::map<uint64_t, std::optional<AttachPacket>> attach_calls_;
};

}  // namespace gradring::client
