#include "client/python/binding/request.h"

#include <nanobind/stl/string.h>

#include <chrono>
#include <utility>

#include "client/python/binding/interruptible.h"

namespace gradring::python {
namespace {

// At most, as gradring_get_progress has it.
constexpr std::chrono::milliseconds kAskingTakes{1000};

}  // namespace

Request::Request(std::shared_ptr<Job> job, std::unique_ptr<Pending> pending, nanobind::object owner)
    : job_(std::move(job)), pending_(std::move(pending)), owner_(std::move(owner)) {}

bool Request::wait(int64_t timeout_ms) {
  const bool done = wait_with_signals(
      timeout_ms, [this](int64_t ms) { return of_job(*job_, [&] { return pending_->wait(ms); }); },
      [this](int64_t left_ms) { warn_if_stalled(left_ms); });
  if (done) owner_.reset();
  return done;
}

bool Request::wait_on_stream(uintptr_t stream, int64_t timeout_ms) {
  return wait_with_signals(timeout_ms, [this, stream](int64_t ms) {
    return of_job(*job_, [&] { return pending_->wait_on_stream(stream, ms); });
  });
}

std::string Request::progress() const {
  const auto known = ask();
  return known ? known->words : "";
}

// In words and numbers of the job. Of a daemon that does not answer: that.
std::optional<Request::Progress> Request::ask() const {
  const nanobind::gil_scoped_release unlocked;
  try {
    const auto known = pending_->progress();
    if (!known) return std::nullopt;
    return Progress{job_->in_numbers_of_all(std::string(known->message)), known->first};
  } catch (const Error& error) {
    return Progress{error.what()};
  }
}

// One rank for all. Who has no time left is about to be told by an error, and at once.
void Request::warn_if_stalled(int64_t left_ms) {
  if (left_ms > 0 && left_ms < kAskingTakes.count()) return;
  const auto waited = stall_.to_be_told();
  if (!waited) return;
  const auto known = ask();
  if (!known || (known->first >= 0 && known->first != gradring_rank(job_->comm()))) return;
  try {
    nanobind::module_::import_("gradring.stalls")
        .attr("tell")(job_->number_of_all(), waited->count(), known->words);
  } catch (nanobind::python_error& error) {
    if (!error.matches(PyExc_Exception)) throw;              // Ctrl-C
    error.discard_as_unraisable("a warning of gradring's");  // no op fails for want of it
  }
}

}  // namespace gradring::python
