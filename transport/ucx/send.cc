// Sending: from send() to the end of the send.
#include <utility>

#include "transport/ucx/body.h"
#include "transport/ucx/constants.h"

namespace gradring::transport {

Status UcxTransport::send(PeerId peer, const FrameBytes& header, std::span<const std::byte> payload,
                          uint64_t token) {
  if (!payload.empty() && token == 0) {
    return {Code::kInvalidArgument,
            "a send with a payload needs a token, or its memory never returns"};
  }
  const auto it = links_.find(peer);
  // Nothing may be submitted to an endpoint that failed: UCX can crash on it.
  if (it == links_.end() || it->second->failed) return unconnected(peer);
  Link* link = it->second.get();
  if (link->waiting.size() + link->outstanding >= kSendsMax) {
    return {Code::kResourceExhausted, std::to_string(kSendsMax) + " sends to peer " +
                                          std::to_string(peer) +
                                          " are under way; wait until some of them have ended"};
  }
  const Send out{header, payload, token, link};
  const Posted posted = link->waiting.empty() ? post(out) : Posted::kBusy;
  if (posted == Posted::kBusy) link->waiting.push_back(out);
  return posted == Posted::kBroken ? unconnected(peer) : Status();
}

Status UcxTransport::unconnected(PeerId peer) const {
  const auto link = links_.find(peer);
  if (link == links_.end()) return notices_.unconnected(peer);
  return {Code::kUnavailable, "lost peer " + std::to_string(peer) + ": " + link->second->why};
}

UcxTransport::Posted UcxTransport::post(const Send& send) {
  if (!send.link->wired) return Posted::kBusy;
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
  tell_memory_of(out->payload.data(), &param);
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

void UcxTransport::on_send_ended(void* request, ucs_status_t status, void* send) {
  auto* ended = static_cast<Send*>(send);
  UcxTransport* owner = ended->link->owner;
  --ended->link->outstanding;
  owner->end_send(*ended, status == UCS_OK);
  owner->sends_.give_back(ended);
  ucp_request_free(request);
}

void UcxTransport::end_send(const Send& send, bool ok) {
  if (ok) {
    ++counters_.messages_sent;
    counters_.payload_bytes_sent += send.payload.size();
  }
  if (send.token != 0) notices_.sent(send.link->peer, send.token, ok);
}

}  // namespace gradring::transport
