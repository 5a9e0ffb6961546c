// How connections end, and what the owner is told of it.
#include <gtest/gtest.h>

#include "tests/transport/conformance.h"

namespace gradring::transport::conformance {
namespace {

class ConformanceEndings : public testing::TestWithParam<BodyKind> {
 protected:
  ConformanceEndings() : body_(GetParam().make()), a_(body_->make("a")), b_(body_->make("b")) {}

  void join() {
    ASSERT_TRUE(a_.connect(2, b_).ok());
    ASSERT_TRUE(b_.connect(1, a_).ok());
  }
  bool both(const std::function<bool()>& done) { return pump({&a_, &b_}, done); }
  bool with(DoomedPeer& peer, const std::function<bool()>& done) {
    return pump({&a_}, [&] {
      peer.turn();
      return done();
    });
  }

  std::unique_ptr<Body> body_;
  Node a_, b_;
};

TEST_P(ConformanceEndings, CompletesEverySendExactlyOnceWhenThePeerDies) {
  const auto peer = body_->doomed();
  const auto payload = pattern(256 << 10, 1);
  a_.seen.keep = false;
  ASSERT_TRUE(a_.transport->connect(5, peer->address()).ok());
  ASSERT_TRUE(a_.transport->send(5, header_of(1), payload, 1).ok());
  ASSERT_TRUE(with(*peer, [&] { return a_.seen.sent.size() == 1; }));
  peer->freeze();
  for (uint64_t token = 2; token <= 201; ++token) {
    ASSERT_TRUE(a_.transport->send(5, header_of(token), payload, token).ok());
  }
  idle({&a_}, std::chrono::milliseconds(100));
  EXPECT_LT(a_.seen.sent.size(), 201u) << "a peer that takes nothing leaves sends under way";
  peer->kill();
  ASSERT_TRUE(with(*peer, [&] { return a_.seen.sent.size() == 201 && !a_.seen.lost.empty(); }));
  EXPECT_GT(a_.seen.sent_failed(), 0u);
  EXPECT_EQ(a_.seen.lost, std::vector<PeerId>{5});
  EXPECT_EQ(a_.transport->send(5, header_of(1), payload, 999).code(), Code::kUnavailable);
  idle({&a_}, std::chrono::milliseconds(100));
  EXPECT_EQ(a_.seen.sent.size(), 201u) << "a refused send is not reported";
  EXPECT_EQ(a_.seen.lost.size(), 1u);
}

TEST_P(ConformanceEndings, EveryAnnouncedPayloadEndsOnceWhenTheSenderDies) {
  a_.seen.keep = false;
  for (int life = 0; life < 3; ++life) {
    const auto peer = body_->doomed();
    ASSERT_TRUE(a_.transport->connect(5, peer->address()).ok());
    peer->meet(a_.transport->address());
    const size_t before = a_.seen.received;
    ASSERT_TRUE(with(*peer, [&] { return a_.seen.received >= before + 10; }));
    peer->kill();
    const size_t lost = a_.seen.lost.size();
    ASSERT_TRUE(with(*peer, [&] { return a_.seen.lost.size() > lost && a_.seen.open.empty(); }))
        << a_.seen.open.size() << " payloads neither complete nor aborted";
  }
  EXPECT_EQ(a_.seen.headers, a_.seen.received + a_.seen.aborted);
  EXPECT_EQ(a_.seen.lost.size(), 3u);
}

TEST_P(ConformanceEndings, SurvivesTheDeathOfAPeerWhileBothSend) {
  const auto payload = pattern(256 << 10, 1);
  a_.seen.keep = false;
  uint64_t token = 0;
  for (size_t life = 1; life <= 8; ++life) {
    const auto peer = body_->doomed();
    ASSERT_TRUE(a_.transport->connect(5, peer->address()).ok());
    peer->meet(a_.transport->address());
    const size_t enough = a_.seen.received + 3 * life;
    ASSERT_TRUE(with(*peer, [&] {
      if (token - a_.seen.sent.size() < 8) {
        EXPECT_TRUE(a_.transport->send(5, header_of(token + 1), payload, token + 1).ok());
        ++token;
      }
      return a_.seen.received >= enough;
    }));
    if (life % 2 == 0) peer->freeze();  // so that the pipe is full in our direction
    if (life % 2 == 0) idle({&a_}, std::chrono::milliseconds(20));
    peer->kill();
    ASSERT_TRUE(with(*peer, [&] {
      return a_.seen.lost.size() == life && a_.seen.sent.size() == token && a_.seen.open.empty();
    }));
  }
}

TEST_P(ConformanceEndings, AnIdleConnectionNoticesTheDeathOfThePeer) {
  const auto peer = body_->doomed();
  ASSERT_TRUE(a_.transport->connect(5, peer->address()).ok());
  ASSERT_TRUE(a_.transport->send(5, header_of(1), {}, 1).ok());
  ASSERT_TRUE(with(*peer, [&] { return a_.seen.sent.size() == 1; }));
  idle({&a_}, std::chrono::milliseconds(50));
  peer->kill();
  const auto died = std::chrono::steady_clock::now();
  ASSERT_TRUE(with(*peer, [&] { return !a_.seen.lost.empty(); }));
  // The daemon promises to know of a dead peer within 200 ms; the rest is for slow machines.
  EXPECT_LT(std::chrono::steady_clock::now() - died, std::chrono::seconds(2));
}

TEST_P(ConformanceEndings, APeerThatIsGoneIsLostAndNotAnError) {
  std::string address;
  {
    const auto peer = body_->doomed();
    address = peer->address();
    peer->kill();
  }
  const Status status = a_.transport->connect(5, address);
  if (!status.ok()) {
    EXPECT_EQ(status.code(), Code::kUnavailable);
    return;
  }
  // It may take a send to find out.
  const auto payload = pattern(1000, 1);
  const bool accepted = a_.transport->send(5, header_of(1), payload, 1).ok();
  ASSERT_TRUE(pump({&a_}, [&] { return a_.seen.lost.size() == 1; }));
  EXPECT_EQ(a_.seen.sent_failed(), accepted ? 1u : 0u);
}

TEST_P(ConformanceEndings, ReconnectsAfterLoss) {
  const auto payload = pattern(256 << 10, 1);
  a_.seen.keep = false;
  for (int life = 0; life < 3; ++life) {
    const auto peer = body_->doomed();
    ASSERT_TRUE(a_.transport->connect(5, peer->address()).ok()) << "in life " << life;
    peer->meet(a_.transport->address());
    const uint64_t token = 10 + static_cast<uint64_t>(life);
    const size_t before = a_.seen.received;
    ASSERT_TRUE(a_.transport->send(5, header_of(1), payload, token).ok());
    ASSERT_TRUE(with(*peer, [&] {
      return a_.seen.sent.count({5, token}) == 1 && a_.seen.received > before;
    }));
    EXPECT_TRUE(a_.seen.sent.at({5, token}));
    peer->kill();
    const size_t lost = static_cast<size_t>(life) + 1;
    ASSERT_TRUE(with(*peer, [&] { return a_.seen.lost.size() == lost; }));
  }
}

TEST_P(ConformanceEndings, DisconnectFailsOutstandingSends) {
  const auto peer = body_->doomed();
  const auto payload = pattern(256 << 10, 1);
  ASSERT_TRUE(a_.transport->connect(5, peer->address()).ok());
  ASSERT_TRUE(a_.transport->send(5, header_of(1), {}, 1).ok());
  ASSERT_TRUE(with(*peer, [&] { return a_.seen.sent.size() == 1; }));
  peer->freeze();
  for (uint64_t token = 2; token <= 101; ++token) {
    ASSERT_TRUE(a_.transport->send(5, header_of(token), payload, token).ok());
  }
  idle({&a_}, std::chrono::milliseconds(50));
  a_.transport->disconnect(5);
  EXPECT_FALSE(a_.transport->arm()) << "there is something to tell";
  a_.turn();
  EXPECT_EQ(a_.seen.sent.size(), 101u) << "all are told in the next progress()";
  EXPECT_GT(a_.seen.sent_failed(), 0u);
  EXPECT_EQ(a_.transport->send(5, header_of(1), {}, 0).code(), Code::kUnavailable);
  idle({&a_}, std::chrono::milliseconds(50));
  EXPECT_TRUE(a_.seen.lost.empty()) << "who leaves is not told that he left";
}

TEST_P(ConformanceEndings, ReconnectsAfterDisconnect) {
  const auto payload = pattern(256 << 10, 1);
  b_.seen.keep = false;
  uint64_t of_round = 0, round = 0, token = 0;  // messages of a round before may come late
  b_.seen.then = [&](const Recorder::Message& message) {
    of_round += number_of(message.header) == round ? 1 : 0;
  };
  for (round = 0; round < 20; ++round) {
    join();
    of_round = 0;
    const uint64_t sends = 1 + round % 4;
    for (uint64_t i = 0; i < sends; ++i) {
      ASSERT_TRUE(a_.transport->send(2, header_of(round), payload, ++token).ok());
    }
    // Three times they wait for the end, then they leave in the middle of it, one or the other
    // first.
    const uint64_t awaited = round % 4 == 3 ? 1 : sends;
    ASSERT_TRUE(both([&] { return of_round >= awaited; })) << "round " << round;
    (round % 2 == 0 ? a_ : b_).transport->disconnect(round % 2 == 0 ? 2 : 1);
    if (round % 3 == 0) a_.turn();
    (round % 2 == 0 ? b_ : a_).transport->disconnect(round % 2 == 0 ? 1 : 2);
  }
  ASSERT_TRUE(both([&] { return a_.seen.sent.size() == token && b_.seen.open.empty(); }))
      << a_.seen.sent.size() << " of " << token << " sends told, " << b_.seen.open.size()
      << " receives open";
  EXPECT_TRUE(a_.seen.lost.empty());
}

TEST_P(ConformanceEndings, OneSideMayReconnectAlone) {
  join();
  const auto payload = pattern(256 << 10, 1);
  for (uint64_t round = 1; round <= 10; ++round) {
    ASSERT_TRUE(a_.transport->send(2, header_of(round), payload, round).ok());
    ASSERT_TRUE(both([&] { return b_.seen.received == round && a_.seen.sent_ok() == round; }))
        << "round " << round;
    a_.transport->disconnect(2);
    ASSERT_TRUE(a_.connect(2, b_).ok());
  }
  EXPECT_TRUE(b_.seen.lost.empty()) << "one that leaves is not a loss for the other";
}

TEST_P(ConformanceEndings, MayDisconnectFromInsideACallback) {
  join();
  const auto payload = pattern(100'000, 1);
  b_.seen.then = [&](const Recorder::Message&) {
    b_.transport->disconnect(1);
    EXPECT_EQ(b_.transport->send(1, header_of(1), {}, 0).code(), Code::kUnavailable);
    EXPECT_TRUE(b_.connect(1, a_).ok());
    EXPECT_TRUE(b_.transport->send(1, header_of(77), {}, 0).ok());
  };
  ASSERT_TRUE(b_.transport->send(1, header_of(1), {}, 0).ok());
  ASSERT_TRUE(both([&] { return a_.seen.received == 1; }));
  ASSERT_TRUE(a_.transport->send(2, header_of(1), payload, 1).ok());
  ASSERT_TRUE(both([&] { return a_.seen.received == 2; }));
  EXPECT_EQ(number_of(a_.seen.messages[1].header), 77u);
}

TEST_P(ConformanceEndings, ClosesWithTrafficUnderWay) {
  join();
  const auto payload = pattern(256 << 10, 1);
  b_.seen.keep = false;
  for (uint64_t token = 1; token <= 50; ++token) {
    ASSERT_TRUE(a_.transport->send(2, header_of(token), payload, token).ok());
    ASSERT_TRUE(b_.transport->send(1, header_of(token), payload, token).ok());
  }
  ASSERT_TRUE(both([&] { return b_.seen.received >= 1; }));
  a_.transport.reset();
  ASSERT_TRUE(pump({&b_}, [&] { return !b_.seen.lost.empty() && b_.seen.sent.size() == 50; }));
  EXPECT_TRUE(pump({&b_}, [&] { return b_.seen.open.empty(); }));
}

TEST_P(ConformanceEndings, RefusesWhatMakesNoSense) {
  EXPECT_EQ(a_.transport->send(9, header_of(1), {}, 0).code(), Code::kUnavailable);
  a_.transport->disconnect(9);  // ignored
  EXPECT_EQ(a_.transport->connect(2, "").code(), Code::kInvalidArgument);
  EXPECT_EQ(a_.transport->connect(2, "nonsense").code(), Code::kInvalidArgument);
  std::string damaged = b_.transport->address();
  damaged[0] ^= 1;
  EXPECT_EQ(a_.transport->connect(2, damaged).code(), Code::kInvalidArgument);
  ASSERT_TRUE(a_.connect(2, b_).ok());
  EXPECT_EQ(a_.connect(2, b_).code(), Code::kInvalidArgument) << "it is connected already";
  const auto payload = pattern(10, 1);
  EXPECT_EQ(a_.transport->send(2, header_of(1), payload, 0).code(), Code::kInvalidArgument);
}

INSTANTIATE_TEST_SUITE_P(Bodies, ConformanceEndings, testing::ValuesIn(all_bodies()),
                         [](const auto& kind) { return kind.param.name; });

}  // namespace
}  // namespace gradring::transport::conformance
