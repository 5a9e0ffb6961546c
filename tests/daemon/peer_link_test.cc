#include "daemon/control/peers/peer_link.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <deque>
#include <optional>
#include <vector>

#include "daemon/fd.h"

namespace gradring::daemon {
namespace {

using testing::HasSubstr;

// A list that names thousands of peers must not end the daemon.
TEST(PeerLink, ThatGetsNoSocketIsBrokenAndCanBeDialledAgain) {
  for (int sockets = 1; sockets <= kSocketsOfLink; ++sockets) {
    zmq::context_t context(1, sockets);
    std::deque<zmq::socket_t> others;
    for (int i = 0; i < sockets; ++i) others.emplace_back(context, ZMQ_PAIR);
    PeerLink link(1, "127.0.0.1:1");
    PeerLink::Dial dial;
    dial.context = &context;
    for (int free = 0; free < sockets; ++free) {
      link.dial(dial, 0);
      EXPECT_TRUE(link.open() && link.broken());
      EXPECT_FALSE(link.has_socket());
      EXPECT_THAT(link.reason(), HasSubstr("no socket"));
      link.drop("", 0);
      EXPECT_FALSE(link.open());
      others.pop_back();
    }
    if (sockets < kSocketsOfLink) continue;
    // libzmq closes what is closed a little later.
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    do {
      link.drop("", 0);
      link.dial(dial, 0);
    } while (link.broken() && std::chrono::steady_clock::now() < until);
    EXPECT_TRUE(link.has_socket() && !link.broken()) << link.reason();
    link.drop("", 0);
  }
}

TEST(PeerLink, ThatStandsWhileNothingComesByTheDataNetworkIsTriedEverMoreSeldom) {
  zmq::context_t context;
  PeerLink link(1, "127.0.0.1:1");
  PeerLink::Dial dial;
  dial.context = &context;
  core::Time now = 0;
  using Was = PeerLink::Was;
  const auto pause_after = [&](Was was) {
    link.dial(dial, now);
    link.greeted();
    link.welcomed();
    link.drop("lost", now, was);
    return (link.deadline() - now) / core::kMillisecond;
  };
  std::vector<core::Time> pauses;
  for (int time = 0; time < 7; ++time) pauses.push_back(pause_after(Was::kUnheard));
  EXPECT_THAT(pauses, testing::ElementsAre(1000, 2000, 4000, 8000, 16000, 30000, 30000));
  EXPECT_EQ(pause_after(Was::kNothing), 100) << "it was restarted";
  EXPECT_EQ(pause_after(Was::kUnheard), 30000) << "which mends nothing";
  link.heard();
  for (const core::Time pause : {200, 400, 800}) EXPECT_EQ(pause_after(Was::kBrief), pause);
  EXPECT_EQ(pause_after(Was::kUnheard), 1600);
  link.heard();
  EXPECT_EQ(pause_after(Was::kUnheard), 1000);
}

// A relay that stands still for a moment: what others pass on by it must not end the connection.
TEST(PeerLink, ThatIsFullOfWhatWasOfferedHasRoomForWhatMustArrive) {
  zmq::context_t context;
  zmq::socket_t router(context, ZMQ_ROUTER);
  router.set(zmq::sockopt::linger, 0);
  router.set(zmq::sockopt::rcvhwm, 1);
  router.bind("tcp://127.0.0.1:*");
  PeerLink link(1, router.get(zmq::sockopt::last_endpoint).substr(std::strlen("tcp://")));
  PeerLink::Dial dial;
  dial.context = &context;
  link.dial(dial, 0);
  wire::PeerMessage parcel;
  parcel.mutable_relay()->set_body(std::string(4096, 'x'));
  for (int turn = 0; turn < 300; ++turn) {
    for (int i = 0; i < 100; ++i) link.offer(parcel);
    usleep(1000);
  }
  wire::PeerMessage words;
  const auto say = [&](uint32_t number) {
    words.set_protocol(number);
    words.mutable_heartbeat();
    return link.send(words);
  };
  constexpr uint32_t kSaid = 100;
  for (uint32_t number = 1; number <= kSaid; ++number) ASSERT_TRUE(say(number)) << link.reason();
  EXPECT_FALSE(link.broken());
  link.offer(parcel);  // not before them

  uint32_t heard = 0, more = 0;
  router.set(zmq::sockopt::rcvtimeo, 200);
  while (heard < kSaid && more < 10) {
    zmq::message_t from, body;
    if (!router.recv(from) || !router.recv(body)) {
      EXPECT_TRUE(say(kSaid + ++more));
      continue;
    }
    wire::PeerMessage message;
    ASSERT_TRUE(message.ParseFromArray(body.data(), static_cast<int>(body.size())));
    if (!message.has_heartbeat()) continue;
    EXPECT_EQ(message.protocol(), ++heard);
  }
  EXPECT_EQ(heard, kSaid);
  for (int i = 0; i < 100'000 && !link.broken(); ++i) say(0);
  EXPECT_THAT(link.reason(), HasSubstr("does not read"));
  link.drop("", 0);
}

// What a peer does that dies in the midst of it, and one with keys that we have not.
TEST(PeerLink, ThatIsCutOffInTheHandshakeIsSaidToLackAKeyTheSecondTime) {
  const Fd server(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ASSERT_EQ(bind(server.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(listen(server.get(), 1), 0);
  ASSERT_EQ(getsockname(server.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  zmq::context_t context;
  PeerLink link(1, "127.0.0.1:" + std::to_string(ntohs(address.sin_port)));
  PeerLink::Dial dial;
  dial.context = &context;
  const auto dial_and_be_cut_off = [&] {
    link.dial(dial, 0);
    close(accept4(server.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    std::optional<PeerLink::Happening> happening;
    while (!happening && std::chrono::steady_clock::now() < until)
      happening = link.next_happening();
    EXPECT_EQ(happening, PeerLink::Happening::kBroken);
    link.drop("", 0);
  };
  dial_and_be_cut_off();
  EXPECT_FALSE(link.handshake_refused());
  EXPECT_EQ(link.reason(), "the connection was closed during the handshake");
  dial_and_be_cut_off();
  EXPECT_TRUE(link.handshake_refused());
  EXPECT_THAT(link.reason(), HasSubstr("set key on both nodes or on none"));
}

}  // namespace
}  // namespace gradring::daemon
