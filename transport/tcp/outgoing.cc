#include "transport/tcp/outgoing.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "transport/tcp/keepalive.h"

namespace gradring::transport {
namespace {

// Messages that one system call takes.
constexpr size_t kGathered = 16;

Status broken(const Way& way, const char* why) {
  return {Code::kUnavailable, fmt::format("its connection at {} broke: {}", way.to.text(), why)};
}

// Addresses are looked up once, when a daemon starts, and its peers know it by them.
Status moved(const Endpoint& from) {
  std::string address = from.text();
  address.erase(address.rfind(':'));
  return {Code::kUnavailable,
          fmt::format("this node has not the address {} any more, which it had when gradringd was "
                      "started: give it back, or restart gradringd",
                      address)};
}

}  // namespace

Status Outgoing::open() {
  Status status(Code::kUnavailable,
                "no address of it is of a kind that this node has, and not its own");
  while (next_way_ < ways_.size()) {
    status = begin(ways_[next_way_++]);
    if (status.ok()) break;
  }
  return status;
}

Status Outgoing::begin(const Way& way) {
  open_ = false;
  const auto failed = [&way] {
    return Status(Code::kUnavailable,
                  fmt::format("cannot connect to {}{}: {}", way.to.text(),
                              way.from ? " from " + way.from->text() : "", std::strerror(errno)));
  };
  socket_ = Socket(socket(way.to.v6 ? AF_INET6 : AF_INET,
                          SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP));
  if (!socket_) return failed();
  const int on = 1;
  setsockopt(fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  keep_alive(fd());
  socklen_t length = 0;
  if (way.from) {
    // A port is chosen by connect(), so that many connections may share one.
    setsockopt(fd(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
    const sockaddr_storage from = sockaddr_of(*way.from, &length);
    if (bind(fd(), reinterpret_cast<const sockaddr*>(&from), length) != 0) {
      return errno == EADDRNOTAVAIL ? moved(*way.from) : failed();
    }
  }
  const sockaddr_storage to = sockaddr_of(way.to, &length);
  if (connect(fd(), reinterpret_cast<const sockaddr*>(&to), length) != 0 && errno != EINPROGRESS) {
    return failed();
  }
  return {};
}

Status Outgoing::look(bool writable) {
  const Way& way = ways_[next_way_ - 1];
  int error = 0;
  socklen_t length = sizeof error;
  if (getsockopt(fd(), SOL_SOCKET, SO_ERROR, &error, &length) != 0) error = errno;
  if (error != 0 && open_) return broken(way, std::strerror(error));
  if (error != 0) {
    return {Code::kUnavailable,
            fmt::format("cannot connect to {}: {}", way.to.text(), std::strerror(error))};
  }
  open_ = open_ || writable;
  if (!open_) return {};
  // Nobody ever sends anything this way: what can be read is its end.
  std::byte nothing;
  const long got = recv(fd(), &nothing, sizeof nothing, MSG_DONTWAIT);
  if (got >= 0) return broken(way, "it was closed over there");
  return errno == EAGAIN || errno == EINTR ? Status() : broken(way, std::strerror(errno));
}

Status Outgoing::give(std::vector<Sent>* sent) {
  while (waiting() != 0 || greeted_ < greeting_.size()) {
    std::array<iovec, 1 + 2 * kGathered> parts;
    msghdr message{};
    message.msg_iov = parts.data();
    size_t asked = 0;
    const auto add = [&](const std::byte* from, size_t bytes) {
      if (bytes == 0) return;
      parts[message.msg_iovlen++] = {const_cast<std::byte*>(from), bytes};
      asked += bytes;
    };
    add(greeting_.data() + greeted_, greeting_.size() - greeted_);
    size_t gone = gone_;
    for (size_t i = first_; i < std::min(waiting_.size(), first_ + kGathered); ++i) {
      const Message& one = waiting_[i];
      const size_t of_prefix = std::min(gone, kPrefixBytes);
      const size_t of_payload = gone - of_prefix;
      add(one.prefix.data() + of_prefix, kPrefixBytes - of_prefix);
      add(one.payload.data() + of_payload, one.payload.size() - of_payload);
      gone = 0;
    }
    const long took = sendmsg(fd(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (took < 0 && errno == EINTR) continue;
    if (took < 0 && errno == EAGAIN) return {};
    if (took < 0) return broken(ways_[next_way_ - 1], std::strerror(errno));
    taken(static_cast<size_t>(took), sent);
    // What the kernel did not take it has no room for, and says so when it has.
    if (static_cast<size_t>(took) < asked) return {};
  }
  return {};
}

void Outgoing::taken(size_t bytes, std::vector<Sent>* sent) {
  const size_t of_greeting = std::min(bytes, greeting_.size() - greeted_);
  greeted_ += of_greeting;
  gone_ += bytes - of_greeting;
  while (waiting() != 0 && gone_ >= waiting_[first_].bytes()) {
    const Message& whole = waiting_[first_++];
    gone_ -= whole.bytes();
    sent->push_back({whole.token, whole.payload.size()});
  }
  if (first_ == waiting_.size()) {
    waiting_.clear();
    first_ = 0;
  } else if (first_ > waiting_.size() / 2) {
    waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<ptrdiff_t>(first_));
    first_ = 0;
  }
}

std::vector<Outgoing::Sent> Outgoing::give_up() {
  std::vector<Sent> left;
  for (; waiting() != 0; ++first_) {
    left.push_back({waiting_[first_].token, waiting_[first_].payload.size()});
  }
  return left;
}

}  // namespace gradring::transport
