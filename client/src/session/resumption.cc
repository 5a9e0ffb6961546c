#include "client/src/session/resumption.h"

#include <fmt/format.h>

#include <algorithm>

#include "client/src/limits.h"
#include "client/src/session/runtime_dir.h"

namespace gradring::client {
namespace {

std::chrono::milliseconds grace_of(const wire::AttachWelcome& welcome) {
  return clamped_ms(welcome.restart_grace_ms());
}

}  // namespace

Resumption::Resumption(DaemonPlace place, wire::AttachWelcome former)
    : place_(std::move(place)),
      former_(std::move(former)),
      give_up_at_(Clock::now() + grace_of(former_) + kResumeMargin) {}

bool Resumption::advance() {
  const int attach = attach_fd();
  const int control = control_fd();
  if (!handshake_ && Clock::now() >= retry_at_) handshake_.emplace(place_.runtime_dir, former_);
  if (handshake_) go_on();
  if (!open_ && !failure_ && Clock::now() >= give_up_at_) give_up_late();
  return open_ || failure_ || attach != attach_fd() || control != control_fd();
}

void Resumption::go_on() {
  const bool known = handshake_->welcome() != nullptr;
  const auto opened = handshake_->advance();
  if (!opened) return fall_back(opened.error());
  open_ = *opened;
  if (!known && handshake_->welcome() != nullptr) {
    give_up_at_ = std::max(give_up_at_, Clock::now() + kResumeMargin);
  }
}

void Resumption::fall_back(const Ending& why) {
  const wire::AttachWelcome* welcome = handshake_->welcome();
  if (why.cause != Cause::kPeerLost) {
    failure_ = why;
  } else if (welcome != nullptr && welcome->restart_grace_ms() == 0) {
    failure_ = Ending{Cause::kPeerLost, went_away(place_)};
  } else if (welcome != nullptr) {
    former_ = *welcome;
    give_up_at_ = Clock::now() + grace_of(former_) + kResumeMargin;
    second_look_ = false;
  }
  handshake_.reset();
  retry_at_ = Clock::now() + kConnectPause;
}

// Nobody may have looked while the time ran out, because the trainer was computing. The daemon may
// be back for long then, and only our own part is missing.
void Resumption::give_up_late() {
  if (!second_look_ && Clock::now() - give_up_at_ > kLateLook) {
    second_look_ = true;
    give_up_at_ = Clock::now() + kResumeMargin;
    return;
  }
  failure_ = Ending{
      Cause::kPeerLost,
      {Code::kUnavailable,
       fmt::format("the daemon on node {} went away and did not come back within its "
                   "restart-grace of {:g} s; start it again with `{}` if nothing else does, look "
                   "at its log for the reason, and open the job anew",
                   place_.node, static_cast<double>(former_.restart_grace_ms()) / 1000,
                   start_command(place_.runtime_dir))}};
}

TimePoint Resumption::alarm() const {
  return std::min(give_up_at_, handshake_ ? handshake_->alarm() : retry_at_);
}

void Resumption::close_in_child() {
  if (handshake_) handshake_->close_in_child();
}

void Resumption::abandon_in_child() {
  if (handshake_) handshake_->abandon_in_child();
}

}  // namespace gradring::client
