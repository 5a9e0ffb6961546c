#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>
#include <zmq.hpp>

#include "daemon/fd.h"
#include "proto/verdict.h"
#include "proto/wire.h"

namespace gradring::daemon {

// As they come in messages.
inline constexpr auto kOk = static_cast<uint32_t>(Verdict::kOk);
inline constexpr auto kFailed = static_cast<uint32_t>(Verdict::kFailed);

// A connection to the attach socket that can say anything, sensible or not.
class RawAttach {
 public:
  // Not connected if the daemon does not take more.
  explicit RawAttach(const std::string& runtime_dir);

  bool connected() const { return static_cast<bool>(socket_); }
  bool send(const std::string& packet, const std::vector<int>& fds = {});
  bool send(const wire::AttachRequest& request, const std::vector<int>& fds = {}) {
    return send(request.SerializeAsString(), fds);
  }
  // Nothing: the daemon has closed the connection, or 10 s have passed. `fds` receive what came
  // along.
  std::optional<wire::AttachReply> receive(std::vector<Fd>* fds = nullptr);
  bool closed_by_daemon(int within_ms = 10'000);
  void close() { socket_.reset(); }

  // The usual beginning.
  std::optional<wire::AttachReply> hello(uint32_t protocol, const wire::Resume* resume = nullptr);

 private:
  Fd socket_;
};

// A trainer made of raw messages: everything libgradring does, with a chance to do it wrong.
class RawTrainer {
 public:
  // Attaches and opens its session; `former`: goes on with that one's, after a restart.
  explicit RawTrainer(const std::string& runtime_dir, const RawTrainer* former = nullptr);

  struct Memory {
    uint64_t segment = 0;
    uint64_t bytes = 0;
    float* data = nullptr;
  };
  Memory allocate(uint64_t bytes);

  // Each sends; the answer is the next message that has this request's number, or is a completion.
  wire::DaemonMessage ask(wire::ClientMessage message);
  wire::DaemonMessage join(const std::string& job, uint32_t rank, uint32_t size);
  // join() in two halves, for jobs that need several.
  uint64_t begin_join(const std::string& job, uint32_t rank, uint32_t size,
                      const std::string& token = "");
  wire::DaemonMessage finish_join(uint64_t request);
  wire::DaemonMessage leave();
  void send(wire::ClientMessage message);
  void send_bytes(const std::string& bytes);
  void submit(const wire::Operation& operation) { submit(operation, job_); }
  void submit(const wire::Operation& operation, uint64_t job);
  // The next one, of any ticket.
  wire::Completion completion();
  wire::DaemonMessage answer_to(uint64_t request);
  // One of the daemon's counters; 0 and a failed test: it has none of that name.
  uint64_t counter(const std::string& name);
  // The next message, or nothing within the time.
  std::optional<wire::DaemonMessage> receive(int milliseconds = 10000);

  // An in-place allreduce sum of `count` float32 at the start of `memory`.
  static wire::Operation allreduce(const Memory& memory, uint64_t count, uint64_t sequence);

  uint64_t session() const { return session_; }
  const std::string& secret() const { return secret_; }
  uint64_t job() const { return job_; }
  RawAttach& attach() { return attach_; }
  // Nobody reads what the daemon has to say any more.
  void close_control() { dealer_.close(); }
  uint64_t next_request() { return ++request_; }

 private:
  RawAttach attach_;
  zmq::context_t context_;
  zmq::socket_t dealer_;
  uint64_t session_ = 0;
  std::string secret_;
  uint64_t request_ = 0;
  uint64_t job_ = 0;
  std::vector<wire::Completion> completions_;  // received while waiting for something else
};

// Lets each be a rank, in this order, of one job; true when all have joined.
bool form_job(const std::string& job, const std::vector<RawTrainer*>& trainers);

}  // namespace gradring::daemon
