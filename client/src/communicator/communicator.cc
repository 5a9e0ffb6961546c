#include "client/src/communicator/communicator.h"

#include <fmt/format.h>
#include <unistd.h>

#include <utility>

#include "client/src/limits.h"

namespace gradring::client {

Communicator::Communicator(Settings settings, std::shared_ptr<Commons> commons, DaemonPlace place,
                           Connection connection)
    : settings_(std::move(settings)),
      commons_(std::move(commons)),
      session_(*this, std::move(place), std::move(connection)),
      fork_watch_(mutex_, [this] { session_.close_in_child(); }) {
  GpuPool::get();  // made where we hold no lock that a fork waits for
}

Communicator::Inside::~Inside() {
  if (!lock_.owns_lock()) lock_.lock();
  // Under the lock, because close() may destroy everything as soon as it can have it.
  if (--owner_.inside_ == 0) owner_.left_.notify_all();
}

Status Communicator::refusal() const {
  if (job_failure_) return {Code::kAborted, job_failure_->message};
  return session_.why_over();
}

void Communicator::interrupt(const Status& why) {
  const std::lock_guard lock(mutex_);
  session_.interrupt(why);
}

void Communicator::go_on() {
  const std::lock_guard lock(mutex_);
  session_.end_interruption();
}

bool Communicator::over() {
  Inside inside(*this);
  return !refusal().ok();
}

std::optional<Outcome> Communicator::failure() {
  Inside inside(*this);
  session_.look(inside.lock());
  if (job_failure_ || !session_.lost()) return job_failure_;
  return last_words_;
}

std::optional<Outcome> Communicator::job_failure() {
  Inside inside(*this);
  return job_failure_;
}

Status Communicator::leave(const std::string& failed) {
  return leave(Clock::now() + kLeaveTime, failed);
}

Status Communicator::leave(TimePoint deadline, const std::string& failed) {
  Inside inside(*this);
  auto& lock = inside.lock();
  if (!job_failure_) {
    Failure failure{Cause::kTrainerLeft, {}};
    failure.blame = {settings_.rank, session_.place().node, ::getpid(), "",
                     failed.empty() ? "left the job" : failed};
    job_failure_ = client::failed(
        std::move(failure),
        failed.empty() ? fmt::format("this rank has left job {}", settings_.job)
                       : fmt::format("this rank has aborted job {}: {}", settings_.job, failed));
  }
  const auto pairs = all_pairs();
  deadline = commons_->leave_by(deadline);
  lock.unlock();
  for (const auto& pair : pairs) static_cast<void>(pair->leave(deadline, failed));
  lock.lock();
  Status said = say_that_we_leave(lock, deadline, failed);
  fail_pending(*job_failure_);
  session_.wake_all();
  return said;
}

Status Communicator::say_that_we_leave(std::unique_lock<std::mutex>& lock, TimePoint deadline,
                                       const std::string& failed) {
  if (unheard_leave_) session_.look(lock);  // whether the daemon has gone since
  if (session_.lost()) return {};
  // One that is only slow has it in its queue.
  const bool again =
      unheard_leave_ && (session_.away() || session_.life() != unheard_leave_->queued_in);
  if (std::exchange(has_left_, true) && !again) return {};
  // Who has not come in yet has nothing to leave: the closing of the attach socket is enough.
  if (joining_) {
    session_.hang_up();
    return {};
  }
  const std::string words = again ? std::exchange(unheard_leave_, std::nullopt)->words : failed;
  wire::ClientMessage message;
  message.mutable_leave()->set_job(job_);
  message.mutable_leave()->set_failed(words);
  const TimePoint begun = Clock::now();
  const auto left = session_.call(lock, std::move(message), wire::DaemonMessage::kLeft, deadline);
  commons_->left(begun, left.has_value());
  if (left) return {};
  const Code code = left.error().code();
  // It had heard it, and this rank is in no job of that handle any more.
  if (again && code == Code::kPermissionDenied) return {};
  const bool queued = code == Code::kDeadlineExceeded && !session_.away();
  if (queued || session_.away() || code == Code::kUnavailable) {
    unheard_leave_ = {words, queued ? session_.life() : 0};
  }
  return left.error();
}

void Communicator::close(TimePoint deadline) {
  const Status why(Code::kUnavailable,
                   "the communicator was closed by another thread during this call");
  decltype(pairs_) pairs;  // these go when our lock is free again (fork_watch.h)
  decltype(far_) far;
  const auto let_streams_go_on = [this] {
    for (const auto& [ticket, request] : requests_) {
      if (request.ended.any()) request.ended.word().set();  // whatever stream waits for it
    }
  };
  std::unique_lock lock(mutex_);
  session_.interrupt(why);
  for (Communicator* const group : forming_) group->interrupt(why);
  let_streams_go_on();
  lock.unlock();
  GpuPool::get().leave(this);  // who frees some of a GPU's memory waits for nothing here any more
  lock.lock();
  for (const auto& pair : all_pairs()) pair->interrupt(why);
  left_.wait(lock, [&] { return inside_ == 0; });
  lock.unlock();
  GpuPool::get().leave(this);  // who was inside may have entered it once more
  lock.lock();
  left_.wait(lock, [&] { return inside_ == 0; });  // and it may have asked this one for memory
  deadline = commons_->leave_by(deadline);
  for (const auto& pair : all_pairs()) pair->close(deadline);
  far.swap(far_);
  pairs.swap(pairs_);
  session_.end_interruption();
  commons_->withdraw_all(session_.id());
  let_streams_go_on();  // of what was submitted meanwhile
  if (session_.lost() || joining_) return;
  // Whether it is confirmed or not, the closing of the attach socket says the same, less politely.
  static_cast<void>(say_that_we_leave(lock, deadline));
  close_opened(lock, deadline);
}

void Communicator::abandon() {
  for (const auto& pair : all_pairs()) pair->abandon();
  requests_.clear();
  segments_.clear();
  stages_.clear();
  shares_.clear();
  leaving_.clear();
  session_.abandon_in_child();
}

}  // namespace gradring::client
