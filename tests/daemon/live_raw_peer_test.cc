// A daemon among peers that are none.

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <functional>
#include <zmq.hpp>

#include "proto/version.h"
#include "tests/daemon/live_daemon.h"
#include "tests/daemon/peer_seen.h"
#include "tests/daemon/raw_trainer.h"

namespace gradring::daemon {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// Half a peer: what a DEALER can say to the daemon's port.
class RawPeer {
 public:
  explicit RawPeer(const LiveDaemon& daemon) : dealer_(context_, ZMQ_DEALER) {
    dealer_.set(zmq::sockopt::linger, 0);
    dealer_.set(zmq::sockopt::rcvtimeo, 10000);
    dealer_.connect("tcp://" + daemon.listen());
  }
  void send_bytes(const std::string& bytes) {
    dealer_.send(zmq::buffer(bytes), zmq::send_flags::none);
  }
  void send(const wire::PeerMessage& message) { send_bytes(message.SerializeAsString()); }
  std::optional<wire::PeerMessage> receive() {
    zmq::message_t body;
    wire::PeerMessage message;
    if (!dealer_.recv(body) || !message.ParseFromArray(body.data(), static_cast<int>(body.size())))
      return {};
    return message;
  }
  wire::HelloReply answer(const wire::PeerMessage& hello) {
    send(hello);
    return receive().value_or(wire::PeerMessage()).hello_reply();
  }
  // Empty: welcome.
  std::string told(const wire::PeerMessage& hello) {
    const wire::HelloReply reply = answer(hello);
    return reply.welcome() ? "" : reply.reason().empty() ? "no answer" : reply.reason();
  }

 private:
  zmq::context_t context_;
  zmq::socket_t dealer_;
};

class LonelyTest : public testing::Test {
 protected:
  // As the daemon's own, so that only what a test changes is wrong. Its port's owner is us.
  wire::PeerMessage good_hello() {
    wire::PeerMessage message;
    message.set_protocol(kPeerProtocols.newest);
    wire::Hello* hello = message.mutable_hello();
    hello->set_node("b");
    hello->set_boot_id(1);
    hello->set_connection(2);
    hello->set_product_version("0.1.0");
    hello->set_transport(own_hello_.transport());
    hello->set_data_address(own_hello_.data_address());
    hello->set_data_token(3);
    hello->set_slice_bytes(own_hello_.slice_bytes());
    hello->set_slots(own_hello_.slots());
    return message;
  }

  LonelyTest() : router_(context_, ZMQ_ROUTER) {
    router_.set(zmq::sockopt::linger, 0);
    router_.set(zmq::sockopt::rcvtimeo, 10000);
    router_.bind("tcp://" + at(port_));
    hear_hello();
  }
  bool hear_hello() {
    const auto [from, message] = hear();
    if (!message.has_hello()) return false;
    own_hello_ = message.hello();
    daemons_route_ = from;
    return true;
  }
  // A daemon that waits long for a welcome dials anew, after a pause, and takes none of before.
  bool becomes_up_welcomed_anew(RawTrainer& asks) {
    return becomes(asks, [this](const wire::PeerReport& peer) {
      zmq::pollitem_t item{router_.handle(), 0, ZMQ_POLLIN, 0};
      while (zmq::poll(&item, 1, std::chrono::milliseconds(0)) > 0) {
        if (hear_hello()) welcome("b", 1);
      }
      return peer.state() == "up";
    });
  }
  // What the daemon's DEALER says to us.
  std::pair<std::string, wire::PeerMessage> hear() {
    zmq::message_t id, body;
    wire::PeerMessage message;
    if (!router_.recv(id) || !router_.recv(body) ||
        !message.ParseFromArray(body.data(), static_cast<int>(body.size()))) {
      ADD_FAILURE() << "the daemon does not dial";
    }
    return {id.to_string(), message};
  }
  void welcome(const std::string& node, uint64_t boot_id, uint64_t gave_up = 0, bool is = true) {
    wire::PeerMessage message;
    message.set_protocol(kPeerProtocols.newest);
    message.mutable_hello_reply()->set_welcome(is);
    message.mutable_hello_reply()->set_node(node);
    message.mutable_hello_reply()->set_boot_id(boot_id);
    message.mutable_hello_reply()->set_connection(own_hello_.connection());
    message.mutable_hello_reply()->set_gave_up(gave_up);
    router_.send(zmq::buffer(daemons_route_), zmq::send_flags::sndmore);
    router_.send(zmq::buffer(message.SerializeAsString()), zmq::send_flags::none);
  }

  const int port_ = free_port();
  LiveDaemon daemon_{{"--peer", at(port_), "--suspect", "100ms", "--decide", "300ms"}};
  zmq::context_t context_;
  zmq::socket_t router_;
  std::string daemons_route_;
  wire::Hello own_hello_;
};

TEST_F(LonelyTest, EachRefusedHelloSaysWhy) {
  RawPeer peer(daemon_);
  const auto told = [&](const std::function<void(wire::PeerMessage&)>& spoil) {
    wire::PeerMessage message = good_hello();
    spoil(message);
    return peer.told(message);
  };
  using M = wire::PeerMessage&;
  EXPECT_EQ(told([](M) {}), "");
  for (const uint32_t other : {kPeerProtocols.oldest - 1, kPeerProtocols.newest + 1}) {
    EXPECT_THAT(told([other](M m) { m.set_protocol(other); }),
                AllOf(HasSubstr("speaks peer protocol " + describe(kPeerProtocols)),
                      HasSubstr("b (0.1.0) speaks " + std::to_string(other)),
                      HasSubstr("install the same release on both")));
  }
  EXPECT_THAT(told([](M m) { m.mutable_hello()->set_node(""); }), HasSubstr("malformed"));
  EXPECT_THAT(told([](M m) { m.mutable_hello()->set_node(std::string(1000, 'n')); }),
              HasSubstr("malformed"));
  EXPECT_THAT(told([](M m) { m.mutable_hello()->set_node("live"); }),
              HasSubstr("give each its own"));
  EXPECT_THAT(told([](M m) { m.mutable_hello()->set_data_token(0); }), HasSubstr("malformed"));
  EXPECT_THAT(told([](M m) { m.mutable_hello()->set_transport("ucx 9.9"); }), HasSubstr("ucx 9.9"));
  EXPECT_THAT(told([](M m) { m.mutable_hello()->set_slice_bytes(7); }), HasSubstr("slice-bytes"));
  EXPECT_THAT(told([](M m) { m.mutable_hello()->set_slots(7); }), HasSubstr("slots"));
  // Once it is known who lives at the only address in its list, others are strangers.
  welcome("b", 1);
  RawTrainer asks(daemon_.runtime_dir());
  ASSERT_TRUE(becomes(asks, [](const wire::PeerReport& p) { return p.node() == "b"; }));
  EXPECT_THAT(told([](M m) { m.mutable_hello()->set_node("c"); }),
              HasSubstr("not in the peer list"));
  // And a second life of b, while the first is alive, is a second daemon of that name.
  EXPECT_THAT(told([](M m) { m.mutable_hello()->set_boot_id(77); }),
              HasSubstr("belongs to the daemon at"));
}

TEST_F(LonelyTest, WhoHasGivenUpAConnectionSaysSoAndItsHelloIsForgotten) {
  RawTrainer asks(daemon_.runtime_dir());
  RawPeer peer(daemon_), anew(daemon_);
  wire::PeerMessage hello = good_hello();
  EXPECT_EQ(peer.answer(hello).gave_up(), 0u);
  welcome("b", 1, hello.hello().connection());
  EXPECT_TRUE(becomes(asks, [](const wire::PeerReport& p) { return p.node() == "b"; }));
  EXPECT_NE(peer_of(asks).state(), "up");
  hello.mutable_hello()->set_connection(7);
  EXPECT_EQ(peer.answer(hello).gave_up(), 0u);
  EXPECT_TRUE(becomes(asks, "up"));
  hello.mutable_hello()->set_connection(8);
  EXPECT_EQ(anew.answer(hello).gave_up(), own_hello_.connection());
}

TEST_F(LonelyTest, NoiseOnThePortDoesNoHarm) {
  RawTrainer asks(daemon_.runtime_dir());
  for (int i = 0; i < 50; ++i) {
    const Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(std::stoi(daemon_.listen().substr(10))));
    ASSERT_EQ(connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    const std::string noise(static_cast<size_t>(i) * 37, static_cast<char>(i));
    (void)send(socket.get(), noise.data(), noise.size(), MSG_NOSIGNAL);
  }
  RawPeer peer(daemon_);
  for (const char* bytes : {"", "\xff\xff\xff"}) peer.send_bytes(bytes);
  peer.send_bytes(std::string(100000, '\0'));
  wire::PeerMessage early;
  early.set_protocol(kPeerProtocols.newest);
  early.mutable_commit()->set_incarnation(std::string(16, 'x'));
  EXPECT_THAT(peer.told(early), HasSubstr("say hello again"));
  EXPECT_EQ(peer.told(good_hello()), "");
  EXPECT_TRUE(asks.join("job", 0, 1).has_joined());
}

TEST_F(LonelyTest, APeerThatGreetsAndThenSaysNonsenseIsGivenUpByItsSilence) {
  RawTrainer asks(daemon_.runtime_dir());
  RawPeer peer(daemon_);
  EXPECT_EQ(peer.told(good_hello()), "");
  welcome("b", 1);
  ASSERT_TRUE(becomes(asks, "up"));
  for (const std::string id : {"", "short", "xxxxxxxxxxxxxxxx", "xxxxxxxxxxxxxxxxx"}) {
    wire::PeerMessage message;
    message.set_protocol(kPeerProtocols.newest);
    message.mutable_propose()->mutable_view()->set_incarnation(id);
    peer.send(message);
    message.mutable_accept()->set_incarnation(id);
    peer.send(message);
    message.mutable_job_failed()->set_incarnation(id);
    message.mutable_job_failed()->mutable_failure()->set_cause(200);
    peer.send(message);
    message.mutable_job_query()->set_incarnation(id);
    peer.send(message);
    message.mutable_claims()->set_job(id);
    message.mutable_claims()->add_ranks()->set_rank(~0u);
    peer.send(message);
    message.mutable_heartbeat()->set_ends(true);  // and then it does not
    peer.send(message);
  }
  EXPECT_TRUE(becomes(asks, "lost"));
  EXPECT_THAT(daemon_.log(), HasSubstr("is malformed"));
  EXPECT_THAT(daemon_.log(), testing::Not(testing::ContainsRegex("malformed[^#]*malformed")));
  EXPECT_TRUE(asks.join("job", 0, 1).has_joined());
}

TEST_F(LonelyTest, WhoSaysTooMuchBeforeTheWelcomeHasToSayHelloAgain) {
  RawTrainer asks(daemon_.runtime_dir());
  RawPeer peer(daemon_);
  EXPECT_EQ(peer.told(good_hello()), "");
  wire::PeerMessage large;
  large.set_protocol(kPeerProtocols.newest);
  large.mutable_accept()->set_incarnation(std::string(30 << 20, 'x'));
  for (int i = 0; i < 20; ++i) peer.send(large);
  EXPECT_THAT(peer.receive().value_or(wire::PeerMessage()).hello_reply().reason(),
              HasSubstr("said before the welcome"));
  for (int after = 0; after < 2; ++after) {
    EXPECT_THAT(peer.receive().value_or(wire::PeerMessage()).hello_reply().reason(),
                HasSubstr("say hello again"));
  }
  EXPECT_EQ(peer.told(good_hello()), "");
  welcome("b", 1);
  EXPECT_TRUE(becomes_up_welcomed_anew(asks)) << daemon_.log();
}

TEST_F(LonelyTest, ADataAddressOfNoSenseLosesThePeerAndNoMore) {
  RawTrainer asks(daemon_.runtime_dir());
  RawPeer peer(daemon_);
  wire::PeerMessage hello = good_hello();
  hello.mutable_hello()->set_data_address("nowhere");
  EXPECT_EQ(peer.told(hello), "");
  welcome("b", 1);
  EXPECT_TRUE(becomes(asks, "lost"));
  EXPECT_THAT(daemon_.log(), HasSubstr("data connection"));
  EXPECT_TRUE(asks.join("job", 0, 1).has_joined());
}

TEST_F(LonelyTest, WhoHasForgottenTheConnectionIsDialledAnew) {
  welcome("b", 1);  // and never greets
  ASSERT_TRUE(hear().second.has_heartbeat()) << "which asks whether it still stands";
  welcome("b", 1, 0, false);
  wire::PeerMessage next = hear().second;
  while (next.has_heartbeat()) next = hear().second;
  EXPECT_TRUE(next.has_hello());
}

}  // namespace
}  // namespace gradring::daemon
