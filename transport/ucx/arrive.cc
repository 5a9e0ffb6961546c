// Arrivals: what UCX hands up, to its landing place.
#include <cstring>

#include "transport/ucx/body.h"

namespace gradring::transport {

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
  const bool on_host = landing.on_host != nullptr;
  if (bytes != 0) std::memcpy(on_host ? landing.on_host : landing.to, data, bytes);
  ++counters_.messages_received;
  counters_.payload_bytes_received += bytes;
  if (on_host) events_->on_landed_on_host(landing.cookie);
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
  tell_memory_of(landing.to, &param);
  param.user_data = receive;
  // Started here and not later: UCX 1.13 leaks what is taken up after the callback.
  const ucs_status_ptr_t request =
      ucp_am_recv_data_nbx(worker_.get(), data, landing.to, bytes, &param);
  if (UCS_PTR_IS_PTR(request)) return UCS_INPROGRESS;
  end_receive(receive, request == nullptr);
  return UCS_OK;
}

void UcxTransport::on_receive_ended(void* request, ucs_status_t status, size_t /*bytes*/,
                                    void* receive) {
  auto* ended = static_cast<Receive*>(receive);
  ended->owner->end_receive(ended, status == UCS_OK);
  ucp_request_free(request);
}

void UcxTransport::end_receive(Receive* receive, bool ok) {
  if (ok) {
    ++counters_.messages_received;
    counters_.payload_bytes_received += receive->bytes;
    notices_.arrived(receive->header, receive->cookie);
  } else {
    notices_.aborted(receive->cookie);
  }
  receives_.give_back(receive);
}

}  // namespace gradring::transport
