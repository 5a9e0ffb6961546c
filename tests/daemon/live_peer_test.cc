// Daemons among one another, and a daemon among peers that are none.

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <chrono>
#include <functional>
#include <thread>

#include "proto/verdict.h"
#include "proto/version.h"
#include "tests/daemon/live_daemon.h"
#include "tests/daemon/raw_trainer.h"

namespace gradring::daemon {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

wire::PeerReport peer_of(RawTrainer& asks) {
  wire::ClientMessage query;
  query.mutable_query()->set_what(wire::Query::PEERS);
  const wire::PeersReport report = asks.ask(query).reply().peers();
  return report.peers_size() == 1 ? report.peers(0) : wire::PeerReport();
}

// True as soon as the daemon's one peer is so; false after 10 s.
bool becomes(RawTrainer& asks, const std::function<bool(const wire::PeerReport&)>& so) {
  const auto until = Clock::now() + 10s;
  while (!so(peer_of(asks))) {
    if (Clock::now() > until) return false;
    std::this_thread::sleep_for(5ms);
  }
  return true;
}
bool becomes(RawTrainer& asks, const std::string& state) {
  return becomes(asks, [&state](const wire::PeerReport& peer) { return peer.state() == state; });
}

std::string at(int port) { return "127.0.0.1:" + std::to_string(port); }

// ---- two real ones ----

class LivePairTest : public testing::Test {
 protected:
  static std::vector<std::string> flags(int peer, const std::vector<std::string>& more = {}) {
    std::vector<std::string> all = {"--peer", at(peer), "--suspect", "150ms", "--decide", "450ms"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  const int port_a_ = free_port(), port_b_ = free_port();
  LiveDaemon a_{flags(port_b_), "a", port_a_};
  LiveDaemon b_{flags(port_a_), "b", port_b_};
};

TEST_F(LivePairTest, FindOneAnotherAndAdd) {
  RawTrainer x(a_.runtime_dir()), y(b_.runtime_dir());
  ASSERT_TRUE(form_job("job", {&x, &y}));
  constexpr uint64_t kCount = 300000;
  const auto mx = x.allocate(kCount * 4), my = y.allocate(kCount * 4);
  std::fill_n(mx.data, kCount, 1.0f);
  std::fill_n(my.data, kCount, 2.0f);
  x.submit(RawTrainer::allreduce(mx, kCount, 0));
  y.submit(RawTrainer::allreduce(my, kCount, 0));
  EXPECT_EQ(x.completion().verdict(), static_cast<uint32_t>(Verdict::kOk));
  EXPECT_EQ(y.completion().verdict(), static_cast<uint32_t>(Verdict::kOk));
  EXPECT_EQ(std::count(mx.data, mx.data + kCount, 3.0f), static_cast<ptrdiff_t>(kCount));
  EXPECT_EQ(std::count(my.data, my.data + kCount, 3.0f), static_cast<ptrdiff_t>(kCount));

  // Who is where, asked on one node and told by both.
  wire::ClientMessage query;
  query.mutable_query()->set_what(wire::Query::JOB);
  query.mutable_query()->set_job("job");
  const wire::JobReport job = x.ask(query).reply().job();
  EXPECT_EQ(job.silent_nodes_size(), 0);
  ASSERT_EQ(job.ranks_size(), 2);
  EXPECT_EQ(job.ranks(0).node(), "a");
  EXPECT_EQ(job.ranks(1).node(), "b");
  EXPECT_EQ(job.ranks(1).ops_submitted(), 1u);
  EXPECT_EQ(job.ranks(1).pid(), getpid());
}

TEST_F(LivePairTest, SmallOpsShareMessages) {
  RawTrainer x(a_.runtime_dir()), y(b_.runtime_dir());
  ASSERT_TRUE(form_job("job", {&x, &y}));
  const auto mx = x.allocate(4096), my = y.allocate(4096);
  constexpr uint64_t kOps = 400;
  for (uint64_t i = 0; i < kOps; ++i) {
    x.submit(RawTrainer::allreduce(mx, 16, i));
    y.submit(RawTrainer::allreduce(my, 16, i));
  }
  for (uint64_t i = 0; i < kOps; ++i) {
    ASSERT_EQ(x.completion().verdict(), static_cast<uint32_t>(Verdict::kOk));
    ASSERT_EQ(y.completion().verdict(), static_cast<uint32_t>(Verdict::kOk));
  }
  EXPECT_TRUE(becomes(x, [&](const wire::PeerReport&) { return x.counter("bundles_sent") > 0; }));
  EXPECT_GE(x.counter("frames_bundled"), 2 * x.counter("bundles_sent"));
}

TEST_F(LivePairTest, AKilledDaemonEndsTheJobAtOnceAndComesBack) {
  RawTrainer x(a_.runtime_dir());
  {
    RawTrainer y(b_.runtime_dir());
    ASSERT_TRUE(form_job("job", {&x, &y}));
    const auto memory = x.allocate(4096);
    x.submit(RawTrainer::allreduce(memory, 16, 0));
    const auto start = Clock::now();
    b_.signal(SIGKILL);
    const wire::Completion completion = x.completion();
    EXPECT_LT(Clock::now() - start, 500ms);
    EXPECT_EQ(completion.failure().cause(), static_cast<uint32_t>(Cause::kPeerLost));
    EXPECT_EQ(completion.failure().blame().node(), "b");
  }
  EXPECT_TRUE(becomes(x, "lost"));
  EXPECT_TRUE(x.leave().has_left());
  b_.stop();
  b_.start();
  EXPECT_TRUE(becomes(x, "up"));
  RawTrainer y(b_.runtime_dir());
  EXPECT_TRUE(form_job("job", {&x, &y}));
}

TEST_F(LivePairTest, ASilentDaemonIsSuspectedThenGivenUpAndWelcomeAgain) {
  RawTrainer x(a_.runtime_dir()), y(b_.runtime_dir());
  ASSERT_TRUE(form_job("job", {&x, &y}));
  const auto memory = x.allocate(4096);
  x.submit(RawTrainer::allreduce(memory, 16, 0));
  b_.signal(SIGSTOP);
  EXPECT_TRUE(becomes(x, "suspect"));
  wire::ClientMessage status;
  status.mutable_query()->set_what(wire::Query::STATUS);
  EXPECT_EQ(x.ask(status).reply().status().peers_up(), 0u) << "one that is suspect is not up";
  const wire::Completion completion = x.completion();
  EXPECT_EQ(completion.failure().cause(), static_cast<uint32_t>(Cause::kPeerSilent));
  EXPECT_EQ(completion.failure().blame().node(), "b");
  EXPECT_THAT(completion.message(), HasSubstr("silent for 0."));
  b_.signal(SIGCONT);
  EXPECT_TRUE(becomes(x, "up"));
  // The woken daemon hears that the job is over, and tells its own trainer.
  const auto closed = y.receive();
  EXPECT_TRUE(closed && closed->has_closed());
}

TEST_F(LivePairTest, ATrainersDeathIsKnownOnAllNodesWithItsSignal) {
  RawTrainer x(a_.runtime_dir());
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    RawTrainer y(b_.runtime_dir());
    const bool joined = y.finish_join(y.begin_join("job", 1, 2)).has_joined();
    if (write(ready[1], joined ? "y" : "n", 1) == 1) pause();
    _exit(0);
  }
  ASSERT_TRUE(x.finish_join(x.begin_join("job", 0, 2)).has_joined());
  char answer = 0;
  ASSERT_EQ(read(ready[0], &answer, 1), 1);
  ASSERT_EQ(answer, 'y');
  const auto memory = x.allocate(4096);
  x.submit(RawTrainer::allreduce(memory, 16, 0));
  std::this_thread::sleep_for(20ms);
  const auto start = Clock::now();
  kill(child, SIGKILL);
  const wire::Completion completion = x.completion();
  EXPECT_LT(Clock::now() - start, 500ms);
  EXPECT_EQ(completion.failure().cause(), static_cast<uint32_t>(Cause::kTrainerDied));
  EXPECT_EQ(completion.failure().blame().rank(), 1u);
  EXPECT_EQ(completion.failure().blame().node(), "b");
  EXPECT_EQ(completion.failure().blame().pid(), child);
  // This test has not waited for its child yet, so how it ended can still be read.
  EXPECT_THAT(completion.message(), HasSubstr("killed by signal 9"));
  waitpid(child, nullptr, 0);
}

// ---- one real one, and we ----

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
    const auto [from, message] = hear();
    own_hello_ = message.hello();
    daemons_route_ = from;
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
