// Whom we connect to, and what we send.
#include <sys/epoll.h>

#include <string>
#include <utility>

#include "transport/address.h"
#include "transport/tcp/body.h"
#include "transport/tcp/constants.h"

namespace gradring::transport {

Status TcpTransport::connect(PeerId peer, const std::string& sealed) {
  const std::string who = "peer " + std::to_string(peer);
  if (link_to_.contains(peer)) {
    return {Code::kInvalidArgument,
            who + " is connected already; disconnect it before connecting anew"};
  }
  const OpenedAddress opened = open_address(name(), sealed);
  const auto address = decode_address(opened.raw);
  if (!address) {
    return {Code::kInvalidArgument,
            "the data address of " + who + " cannot be used: " +
                (opened.raw.empty() ? opened.refusal : "it is not one of this transport")};
  }
  disconnect(peer);  // forgets how the last connection was lost
  const Number number = next_number_++;
  auto out = std::make_unique<Outgoing>(
      address->identity, me_, ways_between(own_, address->endpoints, options_.devices.size() == 1));
  if (Status status = open(number, out.get()); !status.ok()) {
    return {status.code(), who + ": " + status.message()};
  }
  links_.emplace(number, Link{peer, std::move(out)});
  link_to_[peer] = number;
  return {};
}

Status TcpTransport::open(Number number, Outgoing* out) {
  if (Status status = out->open(); !status.ok()) return status;
  // At its edges: it is mostly writable, and of interest when it becomes so.
  return watch(out->fd(), number, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
}

void TcpTransport::on_news(Number number, bool writable) {
  Outgoing* const out = links_.at(number).out.get();
  const bool was_open = out->is_open();
  Status status = out->look(writable);
  // The next of its addresses.
  if (!status.ok() && !was_open) {
    if (const Status next = open(number, out); next.ok()) return;
  }
  if (!status.ok()) return lose(number, status.message());
  if (out->is_open()) give(number);
}

Status TcpTransport::send(PeerId peer, const FrameBytes& header, std::span<const std::byte> payload,
                          uint64_t token) {
  if (!payload.empty() && token == 0) {
    return {Code::kInvalidArgument,
            "a send with a payload needs a token, or its memory never returns"};
  }
  const auto it = link_to_.find(peer);
  if (it == link_to_.end()) return notices_.unconnected(peer);
  Outgoing* const out = links_.at(it->second).out.get();
  if (out->waiting() >= kSendsMax) {
    return {Code::kResourceExhausted, std::to_string(kSendsMax) + " sends to peer " +
                                          std::to_string(peer) +
                                          " are under way; wait until some of them have ended"};
  }
  out->add(header, payload, token);
  if (out->is_open()) give(it->second);
  return {};
}

// If that ends the connection, the send that it began with has been accepted, and fails.
void TcpTransport::give(Number number) {
  const Link& link = links_.at(number);
  sent_.clear();
  const Status status = link.out->give(&sent_);
  end_sends(link.peer, sent_, true);
  if (!status.ok()) lose(number, status.message());
}

void TcpTransport::end_sends(PeerId peer, std::span<const Outgoing::Sent> sends, bool ok) {
  for (const Outgoing::Sent& send : sends) {
    if (ok) {
      ++counters_.messages_sent;
      counters_.payload_bytes_sent += send.payload_bytes;
    }
    if (send.token != 0) notices_.sent(peer, send.token, ok);
  }
}

void TcpTransport::lose(Number number, const std::string& why) {
  const PeerId peer = links_.at(number).peer;
  end_link(number);  // first, so that the owner hears of its sends before the loss
  notices_.lost(peer, why);
}

void TcpTransport::end_link(Number number) {
  const auto it = links_.find(number);
  end_sends(it->second.peer, it->second.out->give_up(), false);
  abort_from(it->second.out->to());
  link_to_.erase(it->second.peer);
  links_.erase(it);
}

void TcpTransport::disconnect(PeerId peer) {
  notices_.forget_loss(peer);
  const auto it = link_to_.find(peer);
  if (it != link_to_.end()) end_link(it->second);
}

}  // namespace gradring::transport
