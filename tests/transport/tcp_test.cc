// What the body over TCP adds to the interface: strangers, odd streams, several addresses.
#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string>
#include <thread>

#include "tests/transport/conformance.h"
#include "tests/transport/endpoint.h"
#include "transport/address.h"
#include "transport/tcp/constants.h"
#include "transport/tcp/endpoints.h"
#include "transport/tcp/socket.h"
#include "transport/tcp/tcp_transport.h"

namespace gradring::transport::conformance {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::unique_ptr<Transport> on_loopback() {
  auto made = make_tcp_transport({{"lo"}, "for tests"});
  if (!made) throw std::runtime_error(made.error().message());
  return std::move(*made);
}

RawAddress raw_address(const Node& node) {
  const OpenedAddress opened = open_address(node.transport->name(), node.transport->address());
  return decode_address(opened.raw).value();
}

// A socket that somebody opened to where a transport listens.
class Knock {
 public:
  explicit Knock(const Node& node) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    socklen_t length = 0;
    const sockaddr_storage to = sockaddr_of(raw_address(node).endpoints.front(), &length);
    EXPECT_EQ(connect(socket_.fd(), reinterpret_cast<const sockaddr*>(&to), length), 0);
    const int on = 1;
    setsockopt(socket_.fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
  // False: it was closed over there.
  bool say(const void* bytes, size_t count) const {
    return ::send(socket_.fd(), bytes, count, MSG_NOSIGNAL) == static_cast<ssize_t>(count);
  }
  void greet(const Node& node, const Identity& from) const {
    const GreetingBytes greeting = encode_greeting(raw_address(node).identity, from);
    ASSERT_TRUE(say(greeting.data(), greeting.size()));
  }
  bool is_closed() const {
    char byte = 0;
    const ssize_t got = recv(socket_.fd(), &byte, 1, MSG_DONTWAIT);
    return got == 0 || (got < 0 && errno != EAGAIN);
  }

 private:
  Socket socket_;
};

std::vector<std::byte> message_of(uint64_t number, std::span<const std::byte> payload) {
  const PrefixBytes prefix = encode_prefix(payload.size(), header_of(number));
  std::vector<std::byte> bytes(prefix.begin(), prefix.end());
  bytes.insert(bytes.end(), payload.begin(), payload.end());
  return bytes;
}

TEST(TcpStrangers, AreShutOutWhateverTheySay) {
  Node a(on_loopback()), b(on_loopback());
  ASSERT_TRUE(b.connect(1, a).ok());
  const Knock nonsense(a), wrong(a);
  const std::string words(100, 'x');
  ASSERT_TRUE(nonsense.say(words.data(), words.size()));
  wrong.greet(b, {});  // whom it takes for a
  ASSERT_TRUE(pump({&a, &b}, [&] { return nonsense.is_closed() && wrong.is_closed(); }));
  EXPECT_EQ(a.transport->counters().messages_dropped, 2u);
  const auto payload = pattern(1000, 1);
  ASSERT_TRUE(b.transport->send(1, header_of(1), payload, 1).ok());
  ASSERT_TRUE(pump({&a, &b}, [&] { return a.seen.received == 1; }));
  EXPECT_EQ(a.seen.headers, 1u);
}

TEST(TcpStrangers, WhoSayNothingAreFew) {
  Node a(on_loopback()), b(on_loopback());
  std::vector<Knock> silent;
  for (size_t i = 0; i < kStrangersMax + 100; ++i) {
    silent.emplace_back(a);
    a.turn();
  }
  const auto open = [&] {
    return std::ranges::count_if(silent, [](const Knock& one) { return !one.is_closed(); });
  };
  ASSERT_TRUE(pump({&a}, [&] { return open() <= static_cast<ptrdiff_t>(kStrangersMax); }));
  ASSERT_TRUE(b.connect(1, a).ok());
  ASSERT_TRUE(b.transport->send(1, header_of(1), {}, 0).ok());
  ASSERT_TRUE(pump({&a, &b}, [&] { return a.seen.received == 1; }));
}

// One turn must end although somebody is always there.
TEST(TcpStrangers, WhoComeWithoutEndKeepUsFromNobody) {
  Node a(on_loopback()), b(on_loopback());
  ASSERT_TRUE(b.connect(1, a).ok());
  std::atomic<bool> enough = false;
  std::vector<std::thread> crowd;
  for (int i = 0; i < 3; ++i) {
    crowd.emplace_back([&] {
      while (!enough) const Knock one(a);
    });
  }
  for (uint64_t number = 1; number <= 100; ++number) {
    EXPECT_TRUE(b.transport->send(1, header_of(number), {}, 0).ok());
    EXPECT_TRUE(pump({&a, &b}, [&] { return a.seen.received == number; }));
  }
  enough = true;
  for (std::thread& one : crowd) one.join();
}

// As when a large ring starts: all have connected and spoken before anybody looks.
TEST(TcpStrangers, WhoHasSpokenIsNone) {
  Node a(on_loopback());
  std::vector<Knock> peers;
  const auto message = message_of(1, pattern(100, 1));
  for (size_t i = 0; i < kStrangersMax + 100; ++i) {
    peers.emplace_back(a).greet(a, {});
    ASSERT_TRUE(peers.back().say(message.data(), message.size()));
  }
  ASSERT_TRUE(pump({&a}, [&] { return a.seen.received == peers.size(); })) << a.seen.received;
}

TEST(TcpStream, MayComeByteByByte) {
  Node a(on_loopback());
  const Knock peer(a);
  peer.greet(a, {});
  const auto payload = pattern(3000, 1);
  for (uint64_t number = 1; number <= 2; ++number) {
    const auto bytes = message_of(number, number == 1 ? payload : std::vector<std::byte>());
    for (const std::byte byte : bytes) {
      ASSERT_TRUE(peer.say(&byte, 1));
      a.turn();
    }
  }
  ASSERT_TRUE(pump({&a}, [&] { return a.seen.received == 2; }));
  EXPECT_EQ(a.seen.messages[0].payload, payload);
  EXPECT_EQ(number_of(a.seen.messages[1].header), 2u);
}

TEST(TcpStream, ALengthThatNobodySendsEndsIt) {
  Node a(on_loopback());
  const Knock peer(a);
  peer.greet(a, {});
  const PrefixBytes prefix = encode_prefix(kPayloadMax + 1, header_of(1));
  ASSERT_TRUE(peer.say(prefix.data(), prefix.size()));
  ASSERT_TRUE(pump({&a}, [&] { return peer.is_closed(); }));
  EXPECT_EQ(a.seen.headers, 0u);
  EXPECT_EQ(a.transport->counters().messages_dropped, 1u);
}

// We cannot send to it any more, but it to us, and then we leave.
TEST(TcpStream, WhatIsUnderWayOfWhomWeLostGoesNowhere) {
  Node a(on_loopback());
  std::optional<Node> b(on_loopback());
  ASSERT_TRUE(a.connect(2, *b).ok());
  ASSERT_TRUE(a.transport->send(2, header_of(1), {}, 0).ok());
  ASSERT_TRUE(pump({&a, &*b}, [&] { return b->seen.received == 1; }));
  const Knock peer(a);
  peer.greet(a, raw_address(*b).identity);
  b.reset();
  ASSERT_TRUE(pump({&a}, [&] { return a.seen.lost.size() == 1; }));
  const auto bytes = message_of(1, pattern(100'000, 1));
  ASSERT_TRUE(peer.say(bytes.data(), bytes.size() / 2));
  ASSERT_TRUE(pump({&a}, [&] { return a.seen.open.size() == 1; }));
  a.transport->disconnect(2);
  ASSERT_TRUE(pump({&a}, [&] { return a.seen.aborted == 1; }));
}

// The peer stands still in the midst of a payload, and we leave: its destination is ours again.
TEST(TcpStream, WhatIsUnderWayWhenWeLeaveGoesNowhere) {
  Node a(on_loopback()), b(on_loopback());
  ASSERT_TRUE(a.connect(2, b).ok());
  const Knock peer(a);
  peer.greet(a, raw_address(b).identity);
  const auto payload = pattern(100'000, 1);
  const auto bytes = message_of(1, payload);
  ASSERT_TRUE(peer.say(bytes.data(), bytes.size() / 2));
  ASSERT_TRUE(pump({&a}, [&] { return a.seen.open.size() == 1; }));
  idle({&a}, std::chrono::milliseconds(20));
  a.transport->disconnect(2);
  ASSERT_TRUE(pump({&a}, [&] { return a.seen.aborted == 1; }));
  ASSERT_TRUE(peer.say(bytes.data() + bytes.size() / 2, bytes.size() - bytes.size() / 2));
  const auto next = message_of(2, payload);
  ASSERT_TRUE(peer.say(next.data(), next.size()));
  ASSERT_TRUE(pump({&a}, [&] { return a.seen.received == 1; }));
  EXPECT_EQ(number_of(a.seen.messages[0].header), 2u) << "the stream goes on behind it";
  EXPECT_EQ(a.seen.messages[0].payload, payload);
}

// An address at which nobody listens.
std::string address_with(const Node& node, std::vector<Endpoint> endpoints) {
  RawAddress address = raw_address(node);
  address.endpoints = std::move(endpoints);
  return seal_address(node.transport->name(), encode_address(address));
}

TEST(TcpConnect, TriesOneAddressAfterTheOther) {
  Node a(on_loopback()), b(on_loopback());
  std::vector<Endpoint> endpoints = {endpoint("127.0.0.1", 0, 1), endpoint("127.0.0.1", 0, 2)};
  endpoints.push_back(raw_address(b).endpoints.front());
  ASSERT_TRUE(a.transport->connect(2, address_with(b, endpoints)).ok());
  const auto payload = pattern(1000, 1);
  ASSERT_TRUE(a.transport->send(2, header_of(1), payload, 1).ok());
  ASSERT_TRUE(pump({&a, &b}, [&] { return b.seen.received == 1; }));
  EXPECT_TRUE(a.seen.lost.empty());
}

// As where both machines have an interface of one address, and listen at one port.
TEST(TcpConnect, DoesNotMeetItselfAtAnAddressThatBothHave) {
  Node a(on_loopback()), b(on_loopback());
  const std::vector<Endpoint> endpoints = {raw_address(a).endpoints.front(),
                                           raw_address(b).endpoints.front()};
  ASSERT_TRUE(a.transport->connect(2, address_with(b, endpoints)).ok());
  ASSERT_TRUE(a.transport->send(2, header_of(1), {}, 0).ok());
  ASSERT_TRUE(pump({&a, &b}, [&] { return b.seen.received == 1; }));
  EXPECT_TRUE(a.seen.lost.empty());
}

// Listens, and has no room for whoever connects: the kernel does not answer.
class Silent {
 public:
  Silent() : listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(bind(listener_.fd(), reinterpret_cast<const sockaddr*>(&at), sizeof at), 0);
    EXPECT_EQ(listen(listener_.fd(), 0), 0);
    socklen_t length = sizeof at;
    EXPECT_EQ(getsockname(listener_.fd(), reinterpret_cast<sockaddr*>(&at), &length), 0);
    port_ = ntohs(at.sin_port);
    for (int i = 0; i < 3; ++i) {
      waiting_.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      (void)connect(waiting_.back().fd(), reinterpret_cast<const sockaddr*>(&at), sizeof at);
    }
  }
  Endpoint endpoint() const { return transport::endpoint("127.0.0.1", 0, port_); }

  // From the first call on it has room, and says whether anybody has greeted.
  bool is_greeted() {
    fcntl(listener_.fd(), F_SETFL, O_NONBLOCK);
    while (true) {
      Socket one(accept4(listener_.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!one) break;
      waiting_.push_back(std::move(one));
    }
    GreetingBytes greeting;
    return std::ranges::any_of(waiting_, [&](const Socket& one) {
      return recv(one.fd(), greeting.data(), greeting.size(), 0) ==
             static_cast<ssize_t>(greeting.size());
    });
  }

 private:
  Socket listener_;
  std::vector<Socket> waiting_;
  uint16_t port_ = 0;
};

TEST(TcpConnect, DoesNotWaitForAnAddressThatSaysNothing) {
  Node a(on_loopback()), b(on_loopback());
  const Silent nobody;
  const std::vector<Endpoint> endpoints = {nobody.endpoint(), nobody.endpoint(),
                                           raw_address(b).endpoints.front()};
  ASSERT_TRUE(a.transport->connect(2, address_with(b, endpoints)).ok());
  ASSERT_TRUE(a.transport->send(2, header_of(1), {}, 0).ok());
  ASSERT_TRUE(pump({&a, &b}, [&] { return b.seen.received == 1; }));
  EXPECT_TRUE(a.seen.lost.empty());
}

TEST(TcpConnect, BeginsAnewBehindTheLastAddress) {
  Node a(on_loopback()), b(on_loopback());
  Silent first;
  const Silent second;
  ASSERT_TRUE(a.transport->connect(2, address_with(b, {first.endpoint(), second.endpoint()})).ok());
  idle({&a}, std::chrono::milliseconds(800));
  // Now that the second has been tried the first begins to answer.
  ASSERT_TRUE(pump({&a}, [&] { return first.is_greeted(); }));
  EXPECT_TRUE(a.seen.lost.empty());
}

TEST(TcpConnect, SaysWhereNobodyAnswered) {
  Node a(on_loopback()), b(on_loopback());
  const std::string address = address_with(b, {endpoint("127.0.0.1", 0, 1)});
  ASSERT_TRUE(a.transport->connect(2, address).ok());
  ASSERT_TRUE(pump({&a}, [&] { return a.seen.lost.size() == 1; }));
  EXPECT_THAT(a.transport->send(2, header_of(1), {}, 0).message(),
              HasSubstr("cannot connect to 127.0.0.1:1: Connection refused"));
}

// Numbers of peers mean nothing to people, and who it is they are told beside it.
TEST(TcpConnect, SaysWhyItCannotBeginAndNoNumber) {
  Node a(on_loopback()), b(on_loopback());
  const std::string message =
      a.transport->connect(2, address_with(b, raw_address(a).endpoints)).message();
  EXPECT_THAT(message, ::testing::StartsWith("no address of it is of a kind"));
}

TEST(TcpListen, TakesTheFirstPortOfTheRangeThatIsFree) {
  constexpr PortRange kPorts{20'310, 20'311};  // which the kernel gives to nobody
  const auto listening = [&] { return make_tcp_transport({{"lo"}, "for tests", 0, kPorts}); };
  const auto port_of_first = [](const Transport& transport) {
    const OpenedAddress opened = open_address(transport.name(), transport.address());
    return decode_address(opened.raw).value().endpoints.front().port;
  };
  auto first = listening();
  ASSERT_TRUE(first) << first.error().message();
  EXPECT_EQ(port_of_first(**first), kPorts.first);
  auto second = listening();
  ASSERT_TRUE(second) << second.error().message();
  EXPECT_EQ(port_of_first(**second), kPorts.last);
  const auto third = listening();
  ASSERT_FALSE(third);
  EXPECT_THAT(third.error().message(),
              AllOf(HasSubstr("none of the ports 20310 to 20311 is free at 127.0.0.1"),
                    HasSubstr("data-ports")));
  first->reset();
  EXPECT_EQ(port_of_first(**listening()), kPorts.first) << "at once";
}

// Peers may have no other kind of address, or be let through to no other.
TEST(TcpListen, WhereAnotherAddressOfTheInterfaceHasNoPortIsRefused) {
  constexpr PortRange kPort{20'313, 20'313};
  const Socket other(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  socklen_t length = 0;
  const sockaddr_storage at = sockaddr_of(endpoint("127.0.0.1", 0, kPort.first), &length);
  ASSERT_EQ(bind(other.fd(), reinterpret_cast<const sockaddr*>(&at), length), 0);
  ASSERT_EQ(listen(other.fd(), 1), 0);
  const auto refused = make_tcp_transport({{"lo"}, "for tests", 0, kPort});
  ASSERT_FALSE(refused) << "it listens at ::1 alone";
  EXPECT_THAT(refused.error().message(), HasSubstr("20313 is free at 127.0.0.1"));
}

TEST(TcpListen, AtAPortOfTheRangeEndsWithItsConnectionsAndBeginsAnewAtOnce) {
  constexpr PortRange kPort{20'312, 20'312};
  Node other(on_loopback());
  for (int life = 0; life < 3; ++life) {
    auto made = make_tcp_transport({{"lo"}, "for tests", 0, kPort});
    ASSERT_TRUE(made) << made.error().message();
    Node node(std::move(*made));
    ASSERT_TRUE(other.transport->connect(1, node.transport->address()).ok());
    ASSERT_TRUE(other.transport->send(1, header_of(1), {}, 0).ok());
    ASSERT_TRUE(pump({&other, &node}, [&] { return node.seen.received == 1; }));
    node.transport.reset();  // it closes first, and the kernel remembers its connections
    other.transport->disconnect(1);
  }
}

TEST(TcpDevices, AreRefusedInWords) {
  const auto unknown = make_tcp_transport({{"eth77"}, ""});
  ASSERT_FALSE(unknown.has_value());
  EXPECT_THAT(unknown.error().message(), HasSubstr("no network interface 'eth77'"));
}

}  // namespace
}  // namespace gradring::transport::conformance
