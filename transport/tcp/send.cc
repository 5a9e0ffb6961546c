// What we send, and who of us does.
#include <sys/epoll.h>

#include <string>

#include "transport/tcp/body.h"
#include "transport/tcp/constants.h"

namespace gradring::transport {

Status TcpTransport::send(PeerId peer, const FrameBytes& header, std::span<const std::byte> payload,
                          uint64_t token) {
  if (!payload.empty() && token == 0) {
    return {Code::kInvalidArgument,
            "a send with a payload needs a token, or its memory never returns"};
  }
  const auto it = link_to_.find(peer);
  if (it == link_to_.end()) return notices_.unconnected(peer);
  Link& link = links_.at(it->second);
  if (link.waiting() >= kSendsMax) {
    return {Code::kResourceExhausted, std::to_string(kSendsMax) + " sends to peer " +
                                          std::to_string(peer) +
                                          " are under way; wait until some of them have ended"};
  }
  const Outgoing::Message message = Outgoing::message(header, payload, token);
  if (goes_apart(link, payload.size())) {
    ++link.apart;
    sender_->hand_over(it->second, link.out.get(), message);
    return {};
  }
  link.out->add(message);
  if (link.out->is_open()) give(it->second);
  return {};
}

// What comes behind what the sender has is the sender's, too. What the kernel has no room for at
// once waits for the network and not for us, and stays here.
bool TcpTransport::goes_apart(const Link& link, size_t payload_bytes) {
  if (link.apart != 0) return true;
  if (options_.apart_bytes == 0 || payload_bytes < options_.apart_bytes) return false;
  if (!link.out->is_open() || link.out->waiting() != 0) return false;
  if (!sender_ && !no_sender_) {
    sender_.emplace();
    no_sender_ = !sender_->start().ok() || !watch(sender_->event_fd(), kNewsOfSender, EPOLLIN).ok();
    if (no_sender_) sender_.reset();
  }
  return sender_.has_value();
}

// If that ends the connection, the send that it began with has been accepted, and fails.
void TcpTransport::give(Number number) {
  const Link& link = links_.at(number);
  sent_.clear();
  const Status status = link.out->give(&sent_);
  end_sends(link.peer, sent_, true);
  if (!status.ok()) lose(number, status.message());
}

int TcpTransport::hear_of_sent() {
  sender_->hear(&heard_);
  for (const Sender::News& news : heard_) {
    const auto it = links_.find(news.number);
    if (it == links_.end()) continue;  // it broke
    if (!news.status.ok()) {
      lose(news.number, news.status.message());
      continue;
    }
    --it->second.apart;
    end_sends(it->second.peer, {&news.sent, 1}, true);
  }
  return static_cast<int>(heard_.size());
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

}  // namespace gradring::transport
