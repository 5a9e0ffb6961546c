#include "transport/ucx/body.h"

#include <chrono>
#include <mutex>
#include <utility>

#include "transport/address.h"
#include "transport/ucx/constants.h"

namespace gradring::transport {
namespace {

// Turns of the worker in one progress() while connections close: twice what UCX was seen to need.
constexpr int kCloseTurns = 8;

// Never destroyed.
template <typename T>
T* immortal() {
  static auto* const kThing = new T;
  return kThing;
}

std::string body_name() {
  unsigned major = 0, minor = 0, release = 0;
  ucp_get_version(&major, &minor, &release);
  return "ucx " + std::to_string(major) + "." + std::to_string(minor);
}

}  // namespace

UcxTransport::UcxTransport(UcxWorker worker, DeviceChoice choice, std::optional<size_t> whole_bytes,
                           bool awaits_wiring)
    : choice_(std::move(choice)),
      whole_bytes_(whole_bytes),
      awaits_wiring_(awaits_wiring),
      name_(body_name()),
      worker_(std::move(worker)) {}

UcxTransport::~UcxTransport() {
  for (auto& [peer, link] : links_) close(std::move(link));
  links_.clear();
  if (!choice_.any_rdma()) {  // over TCP UCX can close what it still connects
    for (std::unique_ptr<Link>& link : std::exchange(parked_, {})) {
      link->wired = true;
      close(std::move(link));
    }
  }
  const auto deadline = std::chrono::steady_clock::now() + kCloseDeadline;
  while (!closing_.empty() && std::chrono::steady_clock::now() < deadline) turn_worker(nullptr);
  if (parked_.empty()) return;
  // UCX cannot take these down (see GOTCHAS.md); nobody turns the worker any more, so what it would
  // call is never called, and the process is about to end.
  using Left = std::pair<UcxWorker, std::vector<std::unique_ptr<Link>>>;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  immortal<std::vector<Left>>()->emplace_back(std::move(worker_), std::move(parked_));
}

Status UcxTransport::listen() {
  ucp_am_handler_param_t param{};
  param.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                     UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
  param.id = kMessageId;
  param.flags = UCP_AM_FLAG_WHOLE_MSG;
  param.cb = &UcxTransport::on_arrival;
  param.arg = this;
  const ucs_status_t status = ucp_worker_set_am_recv_handler(worker_.get(), &param);
  if (status == UCS_OK) return {};
  return {Code::kUnavailable,
          std::string("UCX cannot take a message handler: ") + ucs_status_string(status)};
}

std::string UcxTransport::devices() const {
  return list_devices(choice_.devices) + (choice_.any_rdma() ? " (RDMA)" : " (TCP)");
}

std::string UcxTransport::address() const { return seal_address(name_, worker_.address()); }

size_t UcxTransport::preferred_payload_bytes() const {
  return choice_.any_rdma() ? kRdmaSliceBytes : kTcpSliceBytes;
}

int UcxTransport::progress(Events& events) {
  int work = turn_worker(&events);
  // A rendezvous send that is cancelled ends two or three turns of the worker later. The owner was
  // promised it now; only a network card may take longer.
  for (int turn = 0; !closing_.empty() && turn < kCloseTurns; ++turn) work += turn_worker(&events);
  if (awake_turns_ > 0) --awake_turns_;
  return work + notices_.tell(events);
}

int UcxTransport::turn_worker(Events* events) {
  events_ = events;
  const int work = static_cast<int>(ucp_worker_progress(worker_.get()));
  events_ = nullptr;
  for (const auto& [peer, link] : links_) post_waiting(link.get());
  while (!to_close_.empty()) {
    close(std::move(to_close_.back()));
    to_close_.pop_back();
  }
  bury_failed();
  close_parked();
  reap_closing();
  return work;
}

bool UcxTransport::arm() {
  if (!notices_.empty() || failures_ != 0) return false;
  // What UCX cancels it ends in the worker's turns, and raises no event for that.
  if (!closing_.empty() && awake_turns_ > 0) return false;
  // Any error counts as busy: turning once too often is better than sleeping through a message.
  return ucp_worker_arm(worker_.get()) == UCS_OK;
}

}  // namespace gradring::transport
