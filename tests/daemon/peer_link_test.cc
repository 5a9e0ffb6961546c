#include "daemon/control/peers/peer_link.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
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
