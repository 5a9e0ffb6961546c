#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "daemon/core/probe_receiver.h"
#include "daemon/core/probe_sender.h"
#include "daemon/data/job_executor.h"
#include "daemon/data/messages.h"
#include "transport/transport.h"

namespace gradring::daemon {

// The hands of probes: sends and takes their messages, on the lanes and in the order of the jobs'
// frames, and knows nothing of jobs. Data thread only.
class Prober {
 public:
  explicit Prober(DataShared* shared) : shared_(shared) {}

  // ---- commands ----
  // `slice_bytes`: of a message, if the order names none.
  void start(const StartProbe& order, uint32_t slice_bytes, bool jobs_here);
  void refuse(bool all) { draining_ = all; }

  // ---- from the transport ----
  // What memory is lent under; neither a loan of the ledger's nor a bundle.
  static bool is_number(uint64_t number) { return number >> 62 == 1; }
  transport::Events::Landing on_payload(PeerId from, const Frame& frame);
  void on_frame(PeerId from, uint8_t lane, const Frame& frame, bool jobs_here);
  void on_landed(uint8_t lane, uint64_t number);
  void on_aborted() { --landing_; }
  void on_sent() { --lent_; }
  void on_lost(PeerId peer, uint8_t lane, const std::string& why);

  // Sends what may go now; returns how much that was.
  int pump(core::Time now);
  core::Time next_deadline() const;
  bool busy(core::Time now) const { return sender_.has_value() || receiver_.busy(now); }
  bool lends() const { return lent_ + landing_ > 0; }

 private:
  static constexpr uint64_t kNumber = uint64_t{1} << 62;
  struct Order {
    uint64_t query = 0;
    PeerId to = 0;
    uint8_t lane = 0;
    bool forced = false;
    std::string node;
    core::ProbePlan plan;
    Code fault = Code::kAborted;  // if it ends without figures
  };

  Status objection_to(const StartProbe& order, bool jobs_here) const;
  Frame frame_of(ProbeKind kind) const;
  bool send(const Frame& frame);
  void answer(PeerId to, uint8_t lane, Frame frame, ProbeKind kind);
  void echo(PeerId to, uint8_t lane);
  void hear_of_ours(const ProbeBody& body, core::Time now);
  void end(const Status& status);
  void free_memory();

  DataShared* const shared_;
  bool draining_ = false;

  uint64_t number_ = 0;  // of our own probe, the latest
  Order order_;
  std::optional<core::ProbeSender> sender_;
  std::unique_ptr<std::byte[]> going_;  // the payload of each of its messages
  uint64_t lent_ = 0;                   // times that this is with the transport

  core::ProbeReceiver receiver_;
  std::unique_ptr<std::byte[]> coming_;  // where payloads land, over one another: they mean nothing
  uint64_t landing_ = 0;
};

}  // namespace gradring::daemon
