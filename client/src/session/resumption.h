#pragma once

#include <optional>

#include "client/src/clock.h"
#include "client/src/session/connection.h"
#include "client/src/session/handshake.h"

namespace gradring::client {

// The way back to a daemon that went away and said that it may return: one handshake after the
// other, until the session is open again, the daemon does not want us, or the time is over.
//
// The time is the daemon's restart-grace and kResumeMargin from the end of the connection. A daemon
// that welcomed us is back, and what it has told since counts: it has kResumeMargin to open the
// session, and another grace if it goes away meanwhile.
//
// Nothing here blocks. Not thread-safe: the owner serialises, and calls advance() whenever one of
// the descriptors is readable or the alarm has come.
class Resumption {
 public:
  // `former` is the welcome of the connection that has just ended; its restart_grace_ms is not 0.
  Resumption(DaemonPlace place, wire::AttachWelcome former);

  // True if it is over, or if what to sleep on has changed.
  bool advance();

  // Over: either the session is open on a new connection, or there will be none.
  bool open() const { return open_; }
  Connection take() { return handshake_->take(); }
  const std::optional<Ending>& failure() const { return failure_; }

  int attach_fd() const { return handshake_ ? handshake_->attach_fd() : -1; }
  int control_fd() const { return handshake_ ? handshake_->control_fd() : -1; }
  TimePoint alarm() const;

  // As those of Session.
  void close_in_child();
  void abandon_in_child();

 private:
  void go_on();
  void fall_back(const Ending& why);
  void give_up_late();

  const DaemonPlace place_;
  wire::AttachWelcome former_;
  std::optional<Handshake> handshake_;  // none between two attempts
  TimePoint retry_at_{};
  TimePoint give_up_at_;
  bool second_look_ = false;
  bool open_ = false;
  std::optional<Ending> failure_;
};

}  // namespace gradring::client
