#include "transport/ucx/body.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "transport/ucx/address.h"
#include "transport/ucx/constants.h"
#include "transport/ucx/ucx_transport.h"

namespace gradring::transport {
namespace {

// Turns of the worker in one progress() while connections close: twice what UCX was seen to need.
constexpr int kCloseTurns = 8;

constexpr unsigned kMessageId = 0;  // of UCX's active messages; we have one kind

// UCX's statuses differ between requests and handler for one and the same death: for people, not
// for code.
std::string broke(ucs_status_t status) {
  return std::string("its connection broke (UCX: ") + ucs_status_string(status) + ")";
}

std::string body_name() {
  unsigned major = 0, minor = 0, release = 0;
  ucp_get_version(&major, &minor, &release);
  return "ucx " + std::to_string(major) + "." + std::to_string(minor);
}

}  // namespace

UcxTransport::UcxTransport(UcxWorker worker, DeviceChoice choice, std::optional<size_t> whole_bytes)
    : choice_(std::move(choice)),
      whole_bytes_(whole_bytes),
      name_(body_name()),
      worker_(std::move(worker)) {}

UcxTransport::~UcxTransport() {
  for (auto& [peer, link] : links_) close(std::move(link));
  links_.clear();
  const auto deadline = std::chrono::steady_clock::now() + kCloseDeadline;
  while (!closing_.empty() && std::chrono::steady_clock::now() < deadline) turn_worker(nullptr);
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

Status UcxTransport::connect(PeerId peer, const std::string& sealed) {
  const std::string who = "peer " + std::to_string(peer);
  const auto old = links_.find(peer);
  if (old != links_.end() && !old->second->failed) {
    return {Code::kInvalidArgument,
            who + " is connected already; disconnect it before connecting anew"};
  }
  const OpenedAddress opened = open_address(name_, sealed);
  if (opened.raw.empty()) {
    return {Code::kInvalidArgument,
            "the data address of " + who + " cannot be used: " + opened.refusal};
  }
  disconnect(peer);  // what is left of a connection that broke

  auto link = std::make_unique<Link>();
  link->owner = this;
  link->peer = peer;
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(opened.raw.data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler.cb = &UcxTransport::on_endpoint_failed;
  params.err_handler.arg = link.get();
  const ucs_status_t status = ucp_ep_create(worker_.get(), &params, &link->ep);
  if (status != UCS_OK) {
    return {Code::kUnavailable, "UCX cannot connect to " + who + " over " + devices() + ": " +
                                    ucs_status_string(status)};
  }
  links_[peer] = std::move(link);
  return {};
}

void UcxTransport::disconnect(PeerId peer) {
  forget_loss(peer);
  const auto it = links_.find(peer);
  if (it == links_.end()) return;
  std::unique_ptr<Link> link = std::move(it->second);
  links_.erase(it);
  if (link->failed) --failures_;
  // UCX does not like an endpoint to vanish under its feet while it calls us.
  if (events_ != nullptr) {
    to_close_.push_back(std::move(link));
  } else {
    close(std::move(link));
  }
}

Status UcxTransport::send(PeerId peer, const FrameBytes& header, std::span<const std::byte> payload,
                          uint64_t token) {
  if (!payload.empty() && token == 0) {
    return {Code::kInvalidArgument,
            "a send with a payload needs a token, or its memory never returns"};
  }
  const std::string who = "peer " + std::to_string(peer);
  const auto it = links_.find(peer);
  if (it == links_.end() || it->second->failed) {
    // Nothing may be submitted to an endpoint that failed: UCX can crash on it.
    const auto lost = lost_.find(peer);
    if (it != links_.end()) return {Code::kUnavailable, "lost " + who + ": " + it->second->why};
    if (lost != lost_.end()) return {Code::kUnavailable, "lost " + who + ": " + lost->second};
    return {Code::kUnavailable, who + " is not connected"};
  }
  Link* link = it->second.get();
  if (link->waiting.size() + link->outstanding >= kSendsMax) {
    return {Code::kResourceExhausted, std::to_string(kSendsMax) + " sends to " + who +
                                          " are under way; wait until some of them have ended"};
  }
  const Send out{header, payload, token, link};
  const Posted posted = link->waiting.empty() ? post(out) : Posted::kBusy;
  if (posted == Posted::kBusy) link->waiting.push_back(out);
  if (posted == Posted::kBroken) return {Code::kUnavailable, "lost " + who + ": " + link->why};
  return {};
}

int UcxTransport::progress(Events& events) {
  int work = turn_worker(&events);
  // A rendezvous send that is cancelled ends two or three turns of the worker later. The owner was
  // promised it now; only a network card may take longer.
  for (int turn = 0; !closing_.empty() && turn < kCloseTurns; ++turn) work += turn_worker(&events);
  return work + tell(events);
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
  reap_closing();
  return work;
}

bool UcxTransport::arm() {
  if (!notices_.empty() || failures_ != 0) return false;
  // Any error counts as busy: turning once too often is better than sleeping through a message.
  return ucp_worker_arm(worker_.get()) == UCS_OK;
}

// --- Sending ---

UcxTransport::Posted UcxTransport::post(const Send& send) {
  return whole_bytes_ && send.payload.size() <= *whole_bytes_ ? post_whole(send)
                                                              : post_request(send);
}

// Over TCP: what the kernel does not take at once, UCX copies, and the send is over. UCX never has
// a request of ours in hand, which keeps us clear of what it does to requests when connections
// break.
UcxTransport::Posted UcxTransport::post_whole(const Send& send) {
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL;
  const ucs_status_ptr_t result =
      ucp_am_send_nbx(send.link->ep, kMessageId, send.header.data(), kFrameBytes,
                      send.payload.data(), send.payload.size(), &param);
  const ucs_status_t status = UCS_PTR_STATUS(result);
  if (status == UCS_ERR_NO_RESOURCE) return Posted::kBusy;
  if (status != UCS_OK) {
    fail(send.link, broke(status));
    return Posted::kBroken;
  }
  end_send(send, true);
  return Posted::kDone;
}

UcxTransport::Posted UcxTransport::post_request(const Send& send) {
  Send* out = sends_.take();
  *out = send;
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.cb.send = &UcxTransport::on_send_ended;
  param.user_data = out;
  const ucs_status_ptr_t request =
      ucp_am_send_nbx(out->link->ep, kMessageId, out->header.data(), kFrameBytes,
                      out->payload.data(), out->payload.size(), &param);
  if (UCS_PTR_IS_PTR(request)) {
    ++out->link->outstanding;
    return Posted::kUnderWay;
  }
  sends_.give_back(out);
  if (request != nullptr) {
    fail(send.link, broke(UCS_PTR_STATUS(request)));
    return Posted::kBroken;
  }
  end_send(send, true);
  return Posted::kDone;
}

void UcxTransport::post_waiting(Link* link) {
  while (!link->waiting.empty() && !link->failed) {
    const Posted posted = post(link->waiting.front());
    if (posted == Posted::kBusy || posted == Posted::kBroken) return;
    link->waiting.pop_front();
  }
}

// --- Called by UCX ---

ucs_status_t UcxTransport::on_arrival(void* self, const void* header, size_t header_bytes,
                                      void* data, size_t bytes, const ucp_am_recv_param_t* param) {
  auto* transport = static_cast<UcxTransport*>(self);
  if (transport->events_ == nullptr) return UCS_OK;  // closing: nobody listens any more
  if (header_bytes != kFrameBytes) {
    ++transport->counters_.messages_dropped;
    return UCS_OK;
  }
  return transport->arrive({static_cast<const std::byte*>(header), header_bytes}, data, bytes,
                           (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0);
}

void UcxTransport::on_send_ended(void* request, ucs_status_t status, void* send) {
  auto* ended = static_cast<Send*>(send);
  UcxTransport* owner = ended->link->owner;
  --ended->link->outstanding;
  owner->end_send(*ended, status == UCS_OK);
  owner->sends_.give_back(ended);
  ucp_request_free(request);
}

void UcxTransport::on_receive_ended(void* request, ucs_status_t status, size_t /*bytes*/,
                                    void* receive) {
  auto* ended = static_cast<Receive*>(receive);
  ended->owner->end_receive(ended, status == UCS_OK);
  ucp_request_free(request);
}

void UcxTransport::on_endpoint_failed(void* link, ucp_ep_h /*ep*/, ucs_status_t status) {
  auto* failed = static_cast<Link*>(link);
  failed->owner->fail(failed, broke(status));
}

// --- Arrivals ---

ucs_status_t UcxTransport::arrive(std::span<const std::byte> header, void* data, size_t bytes,
                                  bool rendezvous) {
  const Events::Landing landing = events_->on_header(header, bytes);
  if (bytes != 0 && landing.to == nullptr)
    return UCS_OK;  // discarded; UCX tells the sender it is done
  if (bytes != 0 && rendezvous) {
    FrameBytes copy;
    std::memcpy(copy.data(), header.data(), kFrameBytes);
    return receive_later(copy, data, bytes, landing);
  }
  if (bytes != 0) std::memcpy(landing.to, data, bytes);
  ++counters_.messages_received;
  counters_.payload_bytes_received += bytes;
  events_->on_message(header, landing.cookie);
  return UCS_OK;
}

ucs_status_t UcxTransport::receive_later(const FrameBytes& header, void* data, size_t bytes,
                                         const Events::Landing& landing) {
  Receive* receive = receives_.take();
  receive->owner = this;
  receive->header = header;
  receive->cookie = landing.cookie;
  receive->bytes = bytes;
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.cb.recv_am = &UcxTransport::on_receive_ended;
  param.user_data = receive;
  // Started here and not later: UCX 1.13 leaks what is taken up after the callback.
  const ucs_status_ptr_t request =
      ucp_am_recv_data_nbx(worker_.get(), data, landing.to, bytes, &param);
  if (UCS_PTR_IS_PTR(request)) return UCS_INPROGRESS;
  end_receive(receive, request == nullptr);
  return UCS_OK;
}

// --- Endings ---

void UcxTransport::end_send(const Send& send, bool ok) {
  if (ok) {
    ++counters_.messages_sent;
    counters_.payload_bytes_sent += send.payload.size();
  }
  if (send.token != 0) {
    notices_.push_back({Notice::Kind::kSent, ok, send.link->peer, send.token, nullptr, {}});
  }
}

void UcxTransport::end_receive(Receive* receive, bool ok) {
  if (ok) {
    notices_.push_back({Notice::Kind::kMessage, true, 0, receive->cookie, receive, {}});
  } else {
    notices_.push_back({Notice::Kind::kAborted, false, 0, receive->cookie, nullptr, {}});
    receives_.give_back(receive);
  }
}

void UcxTransport::fail(Link* link, const std::string& why) {
  if (link->failed) return;
  link->failed = true;
  link->why = why;
  const auto current = links_.find(link->peer);
  // A link that was disconnected may fail while it closes: that is no news.
  if (current != links_.end() && current->second.get() == link) ++failures_;
}

void UcxTransport::close(std::unique_ptr<Link> link) {
  for (const Send& send : link->waiting) end_send(send, false);
  link->waiting.clear();
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = UCP_EP_CLOSE_FLAG_FORCE;
  const ucs_status_ptr_t request = ucp_ep_close_nbx(link->ep, &param);
  if (UCS_PTR_IS_PTR(request)) link->closing = request;
  closing_.push_back(std::move(link));
}

void UcxTransport::bury_failed() {
  if (failures_ == 0) return;
  failures_ = 0;
  std::vector<PeerId> dead;
  for (const auto& [peer, link] : links_) {
    if (link->failed) dead.push_back(peer);
  }
  for (const PeerId peer : dead) {
    std::unique_ptr<Link> link = std::move(links_.at(peer));
    links_.erase(peer);
    const std::string why = link->why;
    close(std::move(link));  // first, so that the owner hears of its sends before the loss
    lost_[peer] = why;
    notices_.push_back({Notice::Kind::kLost, false, peer, 0, nullptr, why});
  }
}

void UcxTransport::reap_closing() {
  for (const auto& link : closing_) {
    if (link->closing != nullptr && ucp_request_check_status(link->closing) != UCS_INPROGRESS) {
      ucp_request_free(link->closing);
      link->closing = nullptr;
    }
  }
  std::erase_if(closing_, [](const std::unique_ptr<Link>& link) {
    return link->closing == nullptr && link->outstanding == 0;
  });
}

void UcxTransport::forget_loss(PeerId peer) {
  lost_.erase(peer);
  for (std::vector<Notice>* list : {&notices_, &telling_}) {
    for (Notice& notice : *list) {
      if (notice.kind == Notice::Kind::kLost && notice.peer == peer) {
        notice.kind = Notice::Kind::kForgotten;
      }
    }
  }
}

int UcxTransport::tell(Events& events) {
  telling_.swap(notices_);
  for (size_t i = 0; i < telling_.size(); ++i) {
    const Notice& notice = telling_[i];
    switch (notice.kind) {
      case Notice::Kind::kSent:
        events.on_sent(notice.peer, notice.number, notice.ok);
        break;
      case Notice::Kind::kMessage:
        ++counters_.messages_received;
        counters_.payload_bytes_received += notice.receive->bytes;
        events.on_message(notice.receive->header, notice.number);
        receives_.give_back(notice.receive);
        break;
      case Notice::Kind::kAborted:
        events.on_aborted(notice.number);
        break;
      case Notice::Kind::kLost:
        events.on_lost(notice.peer, notice.why);
        break;
      case Notice::Kind::kForgotten:
        break;
    }
  }
  const int told = static_cast<int>(telling_.size());
  telling_.clear();
  return told;
}

}  // namespace gradring::transport
