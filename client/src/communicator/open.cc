#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "client/src/communicator/communicator.h"
#include "client/src/communicator/forming.h"
#include "client/src/limits.h"
#include "client/src/refusal.h"
#include "client/src/session/handshake.h"

namespace gradring::client {

namespace {

void sleep_on(const Handshake& handshake, TimePoint deadline) {
  std::array<pollfd, 2> fds = {
      {{handshake.attach_fd(), POLLIN, 0}, {handshake.control_fd(), POLLIN, 0}}};
  const timespec left = time_left(std::min(deadline, handshake.alarm()));
  ::ppoll(fds.data(), fds.size(), &left, nullptr);  // An early return only means another look.
}

// A daemon that ends meanwhile may have a keeper, at whose sockets its next life is waited for. If
// nobody listens there any more it is gone, and what it left with says more than that.
tl::expected<Connection, Status> connect(const std::string& runtime_dir) {
  const TimePoint deadline = Clock::now() + kHandshakeTime;
  std::optional<wire::AttachWelcome> former;
  std::optional<Status> went;
  std::optional<Handshake> handshake(std::in_place, runtime_dir, former);
  while (true) {
    const auto opened = handshake->advance();
    if (opened && *opened) return handshake->take();
    if (Clock::now() >= deadline)
      return tl::unexpected(opened ? handshake->overdue() : opened.error().why);
    if (opened) {
      sleep_on(*handshake, deadline);
      continue;
    }
    const Ending& why = opened.error();
    if (handshake->hung_up()) {
      went = why.why;
      if (const auto* welcome = handshake->welcome()) former = *welcome;
      std::this_thread::sleep_for(kConnectPause);
    } else if (why.cause != Cause::kPeerLost && former) {
      former.reset();  // it does not know the session that nothing was done in
    } else {
      return tl::unexpected(went.value_or(why.why));
    }
    handshake.emplace(runtime_dir, former);
  }
}

}  // namespace

tl::expected<std::unique_ptr<Communicator>, Status> Communicator::attach(
    Settings settings, std::shared_ptr<Commons> commons) {
  auto connection = connect(settings.runtime_dir);
  if (!connection) return tl::unexpected(connection.error());
  DaemonPlace place{settings.runtime_dir, connection->welcome.node()};
  std::unique_ptr<Communicator> communicator(new Communicator(
      std::move(settings), std::move(commons), std::move(place), std::move(*connection)));
  if (communicator->session_.valid()) return communicator;
  return tl::unexpected(
      Status(Code::kResourceExhausted, "this process has no file descriptors left"));
}

tl::expected<std::unique_ptr<Communicator>, Status> Communicator::open(
    Settings settings, std::shared_ptr<Commons> commons) {
  auto communicator = attach(std::move(settings), std::move(commons));
  if (!communicator) return communicator;
  if (Status joined = (*communicator)->join(); !joined.ok()) return tl::unexpected(joined);
  return communicator;
}

Status Communicator::join() {
  std::unique_lock lock(mutex_);
  return join(lock);
}

tl::expected<std::shared_ptr<Communicator>, Status> Communicator::begin(
    Settings settings, std::shared_ptr<Commons> commons) {
  auto communicator = attach(std::move(settings), std::move(commons));
  if (!communicator) return tl::unexpected(communicator.error());
  (*communicator)->begin_join();
  return std::shared_ptr<Communicator>(std::move(*communicator));
}

wire::ClientMessage Communicator::join_message() const {
  wire::ClientMessage message;
  wire::Join& join = *message.mutable_join();
  join.set_job(settings_.job);
  join.set_token(settings_.token);
  join.set_rank(settings_.rank);
  join.set_size(settings_.size);
  // Where no launcher tells it, the view will; until then 0 stands for it.
  join.set_local_rank(settings_.local_rank < 0 ? 0 : static_cast<uint32_t>(settings_.local_rank));
  join.set_policy(settings_.policy);
  join.set_deterministic(settings_.deterministic);
  join.set_timeout_ms(static_cast<uint64_t>(settings_.join_timeout_ms));
  if (settings_.within) {
    wire::Within& within = *join.mutable_within();
    within.set_incarnation(settings_.within->incarnation);
    within.set_grown(settings_.within->grown);
    for (const uint32_t rank : settings_.within->ranks) within.add_ranks(rank);
  }
  return message;
}

// Until the answer comes, the view is what it must be in a job that forms whole.
void Communicator::begin_join() {
  const std::lock_guard lock(mutex_);
  View expected;
  for (uint32_t rank = 0; rank < settings_.size; ++rank) expected.ranks.push_back(rank);
  views_.add(std::move(expected));
  joining_ = true;
  session_.call_later(join_message());
}

void Communicator::on_answer(const wire::DaemonMessage& answer) {
  joining_ = false;
  Status joined;
  if (answer.has_joined()) {
    job_ = answer.joined().job();
    joined = place_in(answer.joined().view());
    if (joined.ok() && settings_.rings) session_.ask_for_rings();
    on_early_ends();
  } else {
    joined = to_status(answer.refused());
  }
  if (joined.ok() || job_failure_) return;
  Failure failure;
  failure.cause = joined.code() == Code::kDeadlineExceeded ? Cause::kDeadline : Cause::kRefused;
  failure.blame.node = session_.place().node;
  job_failure_ = last_words_ = failed(std::move(failure), joined.message());
  // The daemon ends what was submitted, which it may only do once it has let go of the buffers.
  session_.set_alarm(Clock::now() + kJobClosedTime);
}

Status Communicator::join(std::unique_lock<std::mutex>& lock) {
  // Without a timeout of ours the daemon's form-deadline ends it.
  TimePoint deadline = kNever;
  if (settings_.join_timeout_ms > 0) {
    deadline = deadline_after(settings_.join_timeout_ms);
    if (deadline != kNever) deadline += kJoinMargin;
  }
  const TimePoint since = Clock::now();
  const auto every = forming_watch().every;
  Meanwhile meanwhile;
  if (every.count() > 0) {
    meanwhile = {since + every, [&] {
                   tell_forming(lock, since);
                   return Clock::now() + every;
                 }};
  }
  const auto answer = session_.call(lock, join_message(), wire::DaemonMessage::kJoined, deadline,
                                    std::move(meanwhile));
  if (!answer) return answer.error();
  job_ = answer->joined().job();
  if (Status placed = place_in(answer->joined().view()); !placed.ok()) return placed;
  if (settings_.rings) session_.ask_for_rings();
  if (!job_failure_) return session_.why_over();
  // As the daemon says it of one that ends before it has answered.
  return {Code::kAborted, fmt::format("job {}: {}", settings_.job, job_failure_->message)};
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
  // A daemon that restarted told its view before it answered the join with a newer one.
  if (early.view().epoch() < views_.newest().epoch) return {};
  const Status good = on_view_changed(early);
  return good.ok() ? good : wrong(good.message());
}

}  // namespace gradring::client
