#include "transport/tcp/incoming.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace gradring::transport {
namespace {

// In one turn: a few slices, and others wait no longer than these take.
constexpr uint64_t kTurnBytes = 1 << 20;
// A payload that is under way is taken in pieces of so much, or the kernel would wake us for each
// packet of it.
constexpr uint64_t kWorthWaking = 128 << 10;

}  // namespace

bool Incoming::take(Events* events, Counters* counters) {
  for (uint64_t taken = 0; taken < kTurnBytes;) {
    size_t asked = 0;
    const long got = receive(&asked);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) break;
    if (got <= 0) return false;
    taken += static_cast<uint64_t>(got);
    if (!parse(events, counters)) {
      ++counters->messages_dropped;
      return false;
    }
    if (static_cast<size_t>(got) < asked) break;
  }
  be_told_of(payload_ ? std::min(payload_->left, kWorthWaking) : 1);
  return true;
}

void Incoming::be_told_of(uint64_t bytes) {
  const int wanted = static_cast<int>(bytes);
  if (std::exchange(told_of_, wanted) == wanted) return;
  setsockopt(socket_.fd(), SOL_SOCKET, SO_RCVLOWAT, &wanted, sizeof wanted);
}

// The rest of a payload to its place, and what is behind it to the buffer.
long Incoming::receive(size_t* asked) {
  if (begin_ != 0) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, buffered());
    end_ -= std::exchange(begin_, 0);
  }
  std::array<iovec, 2> parts;
  msghdr message{};
  message.msg_iov = parts.data();
  const auto add = [&](std::byte* to, size_t bytes) {
    parts[message.msg_iovlen++] = {to, bytes};
    *asked += bytes;
  };
  uint64_t of_payload = 0;
  if (payload_ && payload_->to != nullptr) {
    of_payload = payload_->left;
    add(payload_->to, of_payload);
  } else if (payload_) {  // what nobody wants is read over and over what nobody wanted
    of_payload = std::min<uint64_t>(payload_->left, buffer_.size());
    add(buffer_.data(), of_payload);
  }
  if (!payload_ || payload_->to != nullptr) add(buffer_.data() + end_, buffer_.size() - end_);
  const long got = recvmsg(socket_.fd(), &message, MSG_DONTWAIT);
  if (got <= 0) return got;
  const uint64_t landed = std::min(of_payload, static_cast<uint64_t>(got));
  if (payload_) {
    payload_->left -= landed;
    if (payload_->to != nullptr) payload_->to += landed;
  }
  end_ += static_cast<uint64_t>(got) - landed;
  return got;
}

bool Incoming::parse(Events* events, Counters* counters) {
  if (payload_ && payload_->left == 0) {
    const Payload whole = *payload_;
    payload_.reset();
    end_message(whole, events, counters);
  }
  if (!from_) {
    if (buffered() < kGreetingBytes) return true;
    if (!take_greeting()) return false;
  }
  while (!payload_ && buffered() >= kPrefixBytes) {
    if (!begin_message(events, counters)) return false;
  }
  return true;
}

bool Incoming::take_greeting() {
  const std::span<const std::byte, kGreetingBytes> bytes(buffer_.data() + begin_, kGreetingBytes);
  from_ = decode_greeting(bytes, me_);
  begin_ += kGreetingBytes;
  return from_.has_value();
}

bool Incoming::begin_message(Events* events, Counters* counters) {
  Payload payload;
  std::memcpy(&payload.bytes, buffer_.data() + begin_, sizeof payload.bytes);
  std::memcpy(payload.header.data(), buffer_.data() + begin_ + sizeof payload.bytes, kFrameBytes);
  if (payload.bytes > kPayloadMax) return false;
  begin_ += kPrefixBytes;
  payload.landing = events->on_header(payload.header, payload.bytes);
  payload.to = payload.landing.on_host != nullptr ? payload.landing.on_host : payload.landing.to;
  const uint64_t here = std::min<uint64_t>(payload.bytes, buffered());
  if (payload.to != nullptr && here != 0) {
    std::memcpy(payload.to, buffer_.data() + begin_, here);
    payload.to += here;
  }
  begin_ += here;
  payload.left = payload.bytes - here;
  if (payload.left == 0) {
    end_message(payload, events, counters);
  } else {
    payload_ = payload;
  }
  return true;
}

void Incoming::end_message(const Payload& payload, Events* events, Counters* counters) {
  if (payload.bytes != 0 && payload.to == nullptr) return;  // nobody wanted it
  ++counters->messages_received;
  counters->payload_bytes_received += payload.bytes;
  if (payload.bytes != 0 && payload.landing.on_host != nullptr) {
    events->on_landed_on_host(payload.landing.cookie);
  }
  events->on_message(payload.header, payload.landing.cookie);
}

std::optional<uint64_t> Incoming::abort() {
  if (!payload_ || payload_->to == nullptr) return std::nullopt;
  payload_->to = nullptr;
  return payload_->landing.cookie;
}

}  // namespace gradring::transport
