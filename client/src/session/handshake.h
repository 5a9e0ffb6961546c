#pragma once

#include <optional>
#include <string>
#include <tl/expected.hpp>

#include "client/src/clock.h"
#include "client/src/session/connection.h"

namespace gradring::client {

// The number of the first OpenSession; of each by a further connection it is one higher.
inline constexpr uint64_t kOpenNumber = 1;

// The way to an open session:
//
//   stage        until                    then
//   kConnecting  a daemon listens         hello
//   kGreeting    it welcomes us           connect the control channel
//   kOpening     that takes messages      OpenSession
//                it says Opened           a Connection
//
// Nothing here blocks. Not thread-safe: the owner serialises, and calls advance() whenever one of
// the descriptors is readable or the alarm has come.
class Handshake {
 public:
  // `former` is the welcome of the session to be resumed; without one a new session is opened.
  Handshake(std::string runtime_dir, std::optional<wire::AttachWelcome> former);

  // Goes as far as it can; true once the connection can be taken. An error is the end of it.
  tl::expected<bool, Ending> advance();
  Connection take();

  // Null before that. From then on the daemon knows us.
  const wire::AttachWelcome* welcome() const { return welcome_ ? &*welcome_ : nullptr; }

  // Whether it ended because the daemon that had taken the connection closed it, and said nothing.
  bool hung_up() const { return hung_up_; }

  // What to sleep on, -1 for none yet, and when to look even so.
  int attach_fd() const { return attach_ ? attach_->fd() : -1; }
  int control_fd() const { return control_ ? control_->fd() : -1; }
  TimePoint alarm() const { return control_ ? open_again_at_ : attach_ ? kNever : retry_at_; }

  // What the daemon did not do, for whoever does not want to wait for it any longer; UNAVAILABLE.
  Status overdue() const;

  // As those of Session.
  void close_in_child();
  void abandon_in_child();

 private:
  tl::expected<bool, Ending> connect();
  tl::expected<bool, Ending> await_welcome();
  tl::expected<bool, Ending> connect_control();
  tl::expected<bool, Ending> await_opened();

  DaemonPlace place() const { return {runtime_dir_, welcome_->node()}; }

  const std::string runtime_dir_;
  const std::optional<wire::AttachWelcome> former_;
  TimePoint retry_at_{};
  TimePoint open_again_at_ = kNever;
  bool hello_sent_ = false;
  uint64_t open_number_ = kOpenNumber - 1;  // of the latest connection
  bool open_sent_ = false;
  bool hung_up_ = false;
  std::optional<AttachSocket> attach_;
  std::optional<wire::AttachWelcome> welcome_;
  std::optional<ControlSocket> control_;
};

}  // namespace gradring::client
