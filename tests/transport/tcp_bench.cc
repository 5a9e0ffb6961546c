// What a thread that sends brings to one node, where its peer takes nothing from it: `tcp_bench`,
// not part of ctest. The node does what a ring's member does: it receives slices over TCP, adds its
// own to every second one, copies the others, and sends them on. The peer drops what it is sent
// without copying it, and sends pages of a file, so that two processors are enough.
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "transport/address.h"
#include "transport/reducer.h"
#include "transport/tcp/constants.h"
#include "transport/tcp/endpoints.h"
#include "transport/tcp/socket.h"
#include "transport/tcp/tcp_transport.h"

namespace gradring::transport {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kSlots = 16;
constexpr size_t kMessageBytes = kPrefixBytes + kTcpSliceBytes;
constexpr PeerId kPeer = 1;
// Of the op that is being summed: far more than a processor's cache.
constexpr size_t kOwnBytes = 256 * kTcpSliceBytes;
constexpr auto kRoundTime = std::chrono::milliseconds(700);
constexpr int kRounds = 5;

double thread_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
}

class Node final : public Events {
 public:
  explicit Node(size_t apart_bytes)
      : slots_(kSlots * kTcpSliceBytes / sizeof(float), 1), own_(kOwnBytes / sizeof(float), 1) {
    auto made = make_tcp_transport({{"lo"}, "for a benchmark", apart_bytes});
    if (!made) throw std::runtime_error(made.error().message());
    transport_ = std::move(*made);
  }

  Landing on_header(std::span<const std::byte> /*header*/, size_t /*payload_bytes*/) override {
    const uint64_t number = next_++;  // the peer is never ahead of what is sent by all slots
    return {reinterpret_cast<std::byte*>(slot(number)), number + 1};
  }
  void on_message(std::span<const std::byte> /*header*/, uint64_t cookie) override {
    landed_.push_back(cookie);
  }
  void on_aborted(uint64_t /*cookie*/) override {}
  void on_sent(PeerId /*peer*/, uint64_t /*token*/, bool ok) override { done += ok ? 1 : 0; }
  void on_lost(PeerId /*peer*/, const std::string& why) override { throw std::runtime_error(why); }

  void turn() {
    const double before = thread_seconds();
    const int news = transport_->progress(*this);
    for (const uint64_t cookie : std::exchange(landed_, {})) handle(cookie);
    if (news != 0) {
      worked_ += thread_seconds() - before;
      idle_since_ = Clock::now();
    } else if (Clock::now() - idle_since_ > std::chrono::microseconds(50) && transport_->arm()) {
      pollfd event{transport_->event_fd(), POLLIN, 0};
      poll(&event, 1, 1);
    }
  }

  Transport& transport() { return *transport_; }
  double worked() const { return worked_; }  // seconds, but for looking on
  std::atomic<uint64_t> done{0};             // messages that came and were sent on

 private:
  void handle(uint64_t cookie) {
    const uint64_t number = cookie - 1;
    float* const arrived = slot(number);
    float* const own = own_.data() + number % 256 * (kTcpSliceBytes / sizeof(float));
    if (number % 2 == 0) {
      const std::array<const void*, 2> inputs = {arrived, own};
      fold(Dtype::kFloat32, ReduceOp::kSum, inputs, arrived, kTcpSliceBytes / sizeof(float), 0);
    } else {
      std::memcpy(own, arrived, kTcpSliceBytes);
    }
    const std::span<const float> payload(arrived, kTcpSliceBytes / sizeof(float));
    const Status status = transport_->send(kPeer, FrameBytes{}, std::as_bytes(payload), cookie);
    if (!status.ok()) throw std::runtime_error(status.message());
  }
  float* slot(uint64_t number) {
    return slots_.data() + number % kSlots * (kTcpSliceBytes / sizeof(float));
  }

  std::vector<float> slots_, own_;
  std::vector<uint64_t> landed_;
  uint64_t next_ = 0;
  Clock::time_point idle_since_;
  double worked_ = 0;
  std::unique_ptr<Transport> transport_;
};

// Two sockets to a node: by one it drops what comes, by the other it sends.
class Peer {
 public:
  explicit Peer(Node* node) : node_(node) {
    Socket listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in here{};
    here.sin_family = AF_INET;
    here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof here;
    if (bind(listener.fd(), reinterpret_cast<sockaddr*>(&here), length) != 0 ||
        listen(listener.fd(), 1) != 0 ||
        getsockname(listener.fd(), reinterpret_cast<sockaddr*>(&here), &length) != 0) {
      throw std::runtime_error("cannot listen");
    }
    Transport& transport = node->transport();
    const auto theirs = decode_address(open_address(transport.name(), transport.address()).raw);
    RawAddress ours;
    ours.identity.fill(std::byte{7});
    ours.endpoints.push_back({});
    std::memcpy(ours.endpoints[0].address.data(), &here.sin_addr, sizeof here.sin_addr);
    ours.endpoints[0].port = ntohs(here.sin_port);
    const std::string sealed = seal_address(transport.name(), encode_address(ours));
    if (!transport.connect(kPeer, sealed).ok()) throw std::runtime_error("cannot connect");
    drops_ = Socket(accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC));

    sends_ = Socket(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const sockaddr_storage to = sockaddr_of(theirs->endpoints.front(), &length);
    const GreetingBytes greeting = encode_greeting(theirs->identity, ours.identity);
    if (::connect(sends_.fd(), reinterpret_cast<const sockaddr*>(&to), length) != 0 ||
        ::send(sends_.fd(), greeting.data(), greeting.size(), MSG_NOSIGNAL) <= 0) {
      throw std::runtime_error("cannot greet");
    }

    file_ = Socket(memfd_create("slices", MFD_CLOEXEC));
    const PrefixBytes prefix = encode_prefix(kTcpSliceBytes, FrameBytes{});
    std::vector<std::byte> message(kMessageBytes);
    std::memcpy(message.data(), prefix.data(), prefix.size());
    if (write(file_.fd(), message.data(), message.size()) != static_cast<ssize_t>(kMessageBytes)) {
      throw std::runtime_error("cannot write");
    }
    for (const int fd : {drops_.fd(), sends_.fd()}) fcntl(fd, F_SETFL, O_NONBLOCK);
    const int wanted = 64 << 10;
    setsockopt(drops_.fd(), SOL_SOCKET, SO_RCVLOWAT, &wanted, sizeof wanted);
  }

  void turn() {
    const bool may_send = sent_ / kMessageBytes < node_->done + kSlots;
    if (may_send) {
      off_t from = static_cast<off_t>(sent_ % kMessageBytes);
      const ssize_t took =
          sendfile(sends_.fd(), file_.fd(), &from, kMessageBytes - static_cast<size_t>(from));
      if (took > 0) sent_ += static_cast<uint64_t>(took);
      if (took > 0) return;
    }
    while (recv(drops_.fd(), nullptr, 1 << 20, MSG_TRUNC | MSG_DONTWAIT) > 0) {
    }
    std::array<pollfd, 2> news = {
        {{drops_.fd(), POLLIN, 0}, {may_send ? sends_.fd() : -1, POLLOUT, 0}}};
    poll(news.data(), news.size(), 1);
  }

 private:
  Node* const node_;
  Socket drops_, sends_, file_;
  uint64_t sent_ = 0;
};

struct Round {
  double rate = 0;  // GB/s that come, and as much that goes
  double busy = 0;  // seconds of the owner's thread for each GB, but for looking on
};

Round measure(size_t apart_bytes) {
  Node node(apart_bytes);
  Peer peer(&node);
  std::atomic<bool> ending{false};
  std::thread beside([&] {
    while (!ending) peer.turn();
  });
  const auto run_until = [&](Clock::time_point end) {
    while (Clock::now() < end) node.turn();
  };
  run_until(Clock::now() + kRoundTime / 4);
  const auto begin = Clock::now();
  const uint64_t before = node.done;
  const double used = node.worked();
  run_until(begin + kRoundTime);
  const double took = std::chrono::duration<double>(Clock::now() - begin).count();
  const double bytes = static_cast<double>((node.done - before) * kTcpSliceBytes);
  const Round round{bytes / took / 1e9, (node.worked() - used) / bytes * 1e9};
  ending = true;
  beside.join();
  return round;
}

}  // namespace
}  // namespace gradring::transport

int main() {
  using namespace gradring::transport;
  std::array<std::vector<Round>, 2> rounds;  // without and with
  for (int i = 0; i < 2 * kRounds; ++i) {
    const size_t with = static_cast<size_t>((i + 1) / 2 % 2);  // without, with, with, without, ...
    rounds[with].push_back(measure(with == 1 ? kTcpApartBytes : 0));
  }
  std::printf("%-12s  %17s  %s\n", "send thread", "GB/s each way", "owner s/GB");
  for (size_t with = 0; with < 2; ++with) {
    std::ranges::sort(rounds[with], {}, &Round::rate);
    const auto [least, median, most] =
        std::array{rounds[with].front(), rounds[with][kRounds / 2], rounds[with].back()};
    std::printf("%-12s  %5.2f (%.2f..%.2f)  %9.3f\n", with == 1 ? "on" : "off", median.rate,
                least.rate, most.rate, median.busy);
  }
}
