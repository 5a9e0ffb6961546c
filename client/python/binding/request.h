#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "client/python/binding/job.h"
#include "client/python/binding/stall.h"

namespace gradring::python {

// What `work` gives; what it throws is told in numbers that its caller knows.
template <typename Work>
auto of_job(const Job& job, const Work& work) {
  try {
    return work();
  } catch (const Error& error) {
    throw job.in_numbers_of_all(error);
  }
}

// An op under way with what keeps it whole: its job, and whoever owns the memory that its result is
// copied to. To be called with the interpreter's lock.
class Request {
 public:
  Request(std::shared_ptr<Job> job, std::unique_ptr<Pending> pending, nanobind::object owner);
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;
  ~Request() { job_->drop(*pending_); }

  // As Pending has it. One that lasts is told to people (Stall).
  bool wait(int64_t timeout_ms);
  bool wait_on_stream(uintptr_t stream, int64_t timeout_ms);
  std::optional<gradring_result> result() const { return pending_->result(); }
  // What it waits for, a sentence; empty where it is not under way.
  std::string progress() const;

 private:
  struct Progress {
    std::string words;
    int32_t first = -1;
  };
  std::optional<Progress> ask() const;
  void warn_if_stalled(int64_t left_ms);

  const std::shared_ptr<Job> job_;
  const std::unique_ptr<Pending> pending_;
  nanobind::object owner_;
  Stall stall_;
};

}  // namespace gradring::python
