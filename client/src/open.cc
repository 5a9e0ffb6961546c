#include <fmt/format.h>

#include <utility>

#include "client/src/communicator.h"
#include "client/src/limits.h"

namespace gradring::client {

tl::expected<std::unique_ptr<Communicator>, Status> Communicator::open(Settings settings) {
  const TimePoint deadline = Clock::now() + kHandshakeTime;
  auto attach = AttachSocket::connect(settings.runtime_dir, deadline);
  if (!attach) return tl::unexpected(attach.error());
  const auto welcome = greet(*attach, settings.runtime_dir, deadline);
  if (!welcome) return tl::unexpected(welcome.error());
  auto control = ControlSocket::connect(settings.runtime_dir);
  if (!control) return tl::unexpected(control.error());

  DaemonPlace place{settings.runtime_dir, welcome->node()};
  std::unique_ptr<Communicator> communicator(new Communicator(
      std::move(settings), std::move(place), std::move(*attach), std::move(*control)));
  std::unique_lock lock(communicator->mutex_);
  if (!communicator->session_.valid()) {
    return tl::unexpected(
        Status(Code::kResourceExhausted, "this process has no file descriptors left"));
  }
  Status opened = communicator->open_session(lock, *welcome, deadline);
  if (opened.ok()) opened = communicator->join(lock);
  lock.unlock();
  if (!opened.ok()) return tl::unexpected(opened);
  return communicator;
}

Status Communicator::open_session(std::unique_lock<std::mutex>& lock,
                                  const wire::AttachWelcome& welcome, TimePoint deadline) {
  wire::ClientMessage message;
  message.mutable_open()->set_session(welcome.session());
  message.mutable_open()->set_secret(welcome.secret());
  const auto opened =
      session_.call(lock, std::move(message), wire::DaemonMessage::kOpened, deadline);
  if (opened) return {};
  // A daemon that does not answer the very first message is not there, in every sense of the word.
  const Status& why = opened.error();
  return why.code() == Code::kDeadlineExceeded ? Status(Code::kUnavailable, why.message()) : why;
}

Status Communicator::join(std::unique_lock<std::mutex>& lock) {
  wire::ClientMessage message;
  wire::Join& join = *message.mutable_join();
  join.set_job(settings_.job);
  join.set_token(settings_.token);
  join.set_rank(settings_.rank);
  join.set_size(settings_.size);
  // Where no launcher tells it, the view will; until then 0 stands for it.
  join.set_local_rank(settings_.local_rank < 0 ? 0 : static_cast<uint32_t>(settings_.local_rank));
  join.set_policy(settings_.policy);
  join.set_timeout_ms(static_cast<uint64_t>(settings_.join_timeout_ms));

  // Without a timeout of ours the daemon's form-deadline ends it.
  TimePoint deadline = kNever;
  if (settings_.join_timeout_ms > 0) {
    deadline = deadline_after(settings_.join_timeout_ms);
    if (deadline != kNever) deadline += kJoinMargin;
  }
  const auto answer =
      session_.call(lock, std::move(message), wire::DaemonMessage::kJoined, deadline);
  if (!answer) return answer.error();
  job_ = answer->joined().job();
  if (Status placed = place_in(answer->joined().view()); !placed.ok()) return placed;
  return refusal();
}

Status Communicator::place_in(const wire::View& joined) {
  const auto wrong = [this](const std::string& what) {
    return Status(Code::kInternal, fmt::format("the daemon on node {} answered with a view that "
                                               "makes no sense: {}",
                                               session_.place().node, what));
  };
  auto view = view_from(joined, settings_.rank, session_.place().node);
  if (!view) return wrong(view.error());
  // A job forms whole; how many an older one has, whoever comes to it does not know.
  if (view->epoch == 1 && view->size() != settings_.size) {
    return wrong(
        fmt::format("it has {} ranks, for a job of size {}", view->size(), settings_.size));
  }
  newcomer_ = view->since > 1;
  if (settings_.local_rank < 0) settings_.local_rank = view->local_position;
  adopt(std::move(*view));
  if (!early_view_) return {};
  const wire::ViewChanged early = *std::exchange(early_view_, std::nullopt);
  const Status good = on_view_changed(early);
  return good.ok() ? good : wrong(good.message());
}

}  // namespace gradring::client
