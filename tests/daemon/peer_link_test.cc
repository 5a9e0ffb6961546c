#include "daemon/control/peer_link.h"

#include <gmock/gmock.h>

#include <chrono>
#include <deque>

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

}  // namespace
}  // namespace gradring::daemon
