// One suite, many bodies: messages, their order and their completion. What happens when connections
// end is in conformance_endings_test.cc.
#include "tests/transport/conformance.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

namespace gradring::transport::conformance {
namespace {

class Conformance : public testing::TestWithParam<BodyKind> {
 protected:
  Conformance() : body_(GetParam().make()), a_(body_->make("a")), b_(body_->make("b")) {}

  // Both ways: a calls b 2, b calls a 1.
  void join() {
    ASSERT_TRUE(a_.connect(2, b_).ok());
    ASSERT_TRUE(b_.connect(1, a_).ok());
  }
  bool both(const std::function<bool()>& done) { return pump({&a_, &b_}, done); }

  std::unique_ptr<Body> body_;
  Node a_, b_;
};

bool readable(int fd, int patience_ms) {
  pollfd ready{fd, POLLIN, 0};
  return poll(&ready, 1, patience_ms) == 1;
}

TEST_P(Conformance, DeliversPayloadToTheLandingPlace) {
  join();
  const auto payload = pattern(100'000, 7);
  ASSERT_TRUE(a_.transport->send(2, header_of(7), payload, 70).ok());
  ASSERT_TRUE(both([&] { return b_.seen.received == 1 && a_.seen.sent.size() == 1; }));
  EXPECT_EQ(number_of(b_.seen.messages[0].header), 7u);
  EXPECT_EQ(b_.seen.messages[0].payload, payload);
  EXPECT_TRUE(a_.seen.sent.at({2, 70}));
}

TEST_P(Conformance, DeliversHeadersWithoutPayload) {
  join();
  ASSERT_TRUE(a_.transport->send(2, header_of(1), {}, 0).ok());
  ASSERT_TRUE(a_.transport->send(2, header_of(2), {}, 20).ok());
  ASSERT_TRUE(both([&] { return b_.seen.received == 2 && a_.seen.sent.size() == 1; }));
  EXPECT_EQ(number_of(b_.seen.messages[1].header), 2u);
  EXPECT_TRUE(b_.seen.messages[1].payload.empty());
  EXPECT_TRUE(a_.seen.sent.at({2, 20})) << "the send with a token, and only that, is reported";
}

TEST_P(Conformance, MessagesOfOneLinkArriveInOrder) {
  join();
  // Slices of all sizes among headers: the mixture that a ring sends. A header must not overtake
  // the slice before it; that its payload is complete earlier is another matter (rendezvous).
  const size_t largest = a_.transport->preferred_payload_bytes();
  const auto payload = pattern(largest, 3);
  const size_t sizes[] = {0, 1, 200, 8'000, 0, 16'383, 16'384, 0, 60'000, largest, 0};
  constexpr uint64_t kMessages = 400;
  std::vector<uint64_t> announced;
  class Order : public Recorder {
   public:
    Landing on_header(std::span<const std::byte> header, size_t payload_bytes) override {
      FrameBytes copy;
      std::memcpy(copy.data(), header.data(), kFrameBytes);
      numbers.push_back(number_of(copy));
      return Recorder::on_header(header, payload_bytes);
    }
    std::vector<uint64_t> numbers;
  } order;
  order.keep = false;
  for (uint64_t i = 0; i < kMessages; ++i) {
    const std::span<const std::byte> part(payload.data(), sizes[i % std::size(sizes)]);
    ASSERT_TRUE(a_.transport->send(2, header_of(i), part, i + 1).ok());
  }
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (order.received < kMessages && std::chrono::steady_clock::now() < deadline) {
    a_.turn();
    b_.transport->progress(order);
  }
  ASSERT_EQ(order.received, kMessages);
  for (uint64_t i = 0; i < kMessages; ++i) ASSERT_EQ(order.numbers[i], i);
}

TEST_P(Conformance, EveryPayloadSizeArrivesWhole) {
  join();
  std::vector<std::vector<std::byte>> payloads;
  for (const size_t bytes : {1ul, 127ul, 4'096ul, 8'191ul, 16'383ul, 16'385ul, 32'768ul, 65'535ul,
                             65'537ul, 262'144ul, 300ul << 10, 306'000ul, 4ul << 20}) {
    payloads.push_back(pattern(bytes, bytes));
  }
  // One after the other, as larger ones may overtake.
  for (size_t i = 0; i < payloads.size(); ++i) {
    ASSERT_TRUE(a_.transport->send(2, header_of(i), payloads[i], i + 1).ok());
    ASSERT_TRUE(both([&] { return b_.seen.received == i + 1 && a_.seen.sent.size() == i + 1; }))
        << payloads[i].size() << " bytes";
    EXPECT_TRUE(b_.seen.messages[i].payload == payloads[i]) << payloads[i].size() << " bytes";
  }
}

TEST_P(Conformance, TwoHundredSendsMayBeUnderWay) {
  join();
  const auto payload = pattern(64 << 10, 5);
  for (uint64_t token = 1; token <= 200; ++token) {
    ASSERT_TRUE(a_.transport->send(2, header_of(token), payload, token).ok());
  }
  ASSERT_TRUE(both([&] { return b_.seen.received == 200 && a_.seen.sent.size() == 200; }));
  EXPECT_EQ(a_.seen.sent_ok(), 200u);
  for (const auto& message : b_.seen.messages) ASSERT_EQ(message.payload, payload);
}

TEST_P(Conformance, WhatPilesUpHasABound) {
  join();
  Status refused;
  for (int i = 0; i < 100'000 && refused.ok(); ++i) {
    refused = a_.transport->send(2, header_of(1), {}, static_cast<uint64_t>(i) + 1);
    if (i % 4096 == 0) a_.turn();  // to be told, not to let the receiver take any
  }
  // A kernel's socket buffers may have swallowed many; those were taken, as far as we can know.
  if (!refused.ok()) {
    EXPECT_EQ(refused.code(), Code::kResourceExhausted);
  }
  EXPECT_TRUE(both([&] { return b_.seen.received >= 4096; }));
}

TEST_P(Conformance, DiscardedPayloadIsNotAnError) {
  join();
  b_.seen.discard = true;
  const auto payload = pattern(256 << 10, 9);
  ASSERT_TRUE(a_.transport->send(2, header_of(1), payload, 1).ok());
  ASSERT_TRUE(both([&] { return a_.seen.sent.size() == 1 && b_.seen.headers == 1; }));
  EXPECT_TRUE(a_.seen.sent.at({2, 1}));
  EXPECT_EQ(b_.seen.received + b_.seen.aborted, 0u);
  b_.seen.discard = false;
  ASSERT_TRUE(a_.transport->send(2, header_of(2), payload, 2).ok());
  ASSERT_TRUE(both([&] { return b_.seen.received == 1 && a_.seen.sent.size() == 2; }));
  EXPECT_TRUE(b_.seen.messages[0].payload == payload) << "the stream goes on behind it";
}

TEST_P(Conformance, AnswersFromInsideCallbacks) {
  join();
  constexpr uint64_t kRounds = 100;
  const auto payload = pattern(20'000, 2);
  const auto answer = [&](Node* node, PeerId to) {
    node->seen.then = [node, to, &payload](const Recorder::Message& message) {
      const uint64_t round = number_of(message.header);
      if (round < kRounds) {
        EXPECT_TRUE(node->transport->send(to, header_of(round + 1), payload, round + 1).ok());
      }
    };
  };
  answer(&a_, 2);
  answer(&b_, 1);
  ASSERT_TRUE(a_.transport->send(2, header_of(1), payload, 1).ok());
  ASSERT_TRUE(both([&] { return a_.seen.received + b_.seen.received == kRounds; }));
}

TEST_P(Conformance, HearsAPeerItDidNotConnectTo) {
  ASSERT_TRUE(a_.connect(2, b_).ok());
  const auto payload = pattern(256 << 10, 4);
  ASSERT_TRUE(a_.transport->send(2, header_of(1), payload, 1).ok());
  ASSERT_TRUE(both([&] { return b_.seen.received == 1 && a_.seen.sent.size() == 1; }));
  EXPECT_TRUE(b_.seen.messages[0].payload == payload);
}

TEST_P(Conformance, ThreeNodesHearEachOther) {
  Node c(body_->make("c"));
  const std::vector<Node*> nodes = {&a_, &b_, &c};
  const auto payload = pattern(200'000, 6);
  for (PeerId from = 0; from < 3; ++from) {
    for (PeerId to = 0; to < 3; ++to) {
      if (from == to) continue;
      ASSERT_TRUE(nodes[from]->connect(to, *nodes[to]).ok());
      ASSERT_TRUE(nodes[from]->transport->send(to, header_of(from * 10 + to), payload, 1).ok());
    }
  }
  ASSERT_TRUE(pump(nodes, [&] {
    return a_.seen.received == 2 && b_.seen.received == 2 && c.seen.received == 2 &&
           a_.seen.sent.size() == 2 && b_.seen.sent.size() == 2 && c.seen.sent.size() == 2;
  }));
  for (PeerId to = 0; to < 3; ++to) {
    for (const auto& message : nodes[to]->seen.messages) {
      EXPECT_EQ(number_of(message.header) % 10, to);
    }
  }
}

TEST_P(Conformance, ANodeMayBeItsOwnPeer) {
  ASSERT_TRUE(a_.connect(1, a_).ok());
  const auto payload = pattern(256 << 10, 8);
  ASSERT_TRUE(a_.transport->send(1, header_of(1), payload, 1).ok());
  ASSERT_TRUE(pump({&a_}, [&] { return a_.seen.received == 1 && a_.seen.sent.size() == 1; }));
  EXPECT_TRUE(a_.seen.messages[0].payload == payload);
}

TEST_P(Conformance, SleepsOnTheEventFdAndWakes) {
  join();
  ASSERT_TRUE(a_.transport->send(2, header_of(0), {}, 0).ok());
  ASSERT_TRUE(both([&] { return b_.seen.received == 1; }));
  constexpr uint64_t kWakes = 20;
  std::atomic<uint64_t> wakes{0}, received{1};
  std::thread sleeper([&] {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (b_.seen.received < 1 + kWakes && std::chrono::steady_clock::now() < deadline) {
      const bool worked = b_.turn() != 0;
      received = b_.seen.received;
      if (worked || !b_.transport->arm()) continue;
      if (readable(b_.transport->event_fd(), 1000)) ++wakes;
    }
  });
  for (uint64_t i = 0; i < kWakes; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_TRUE(a_.transport->send(2, header_of(i), {}, 0).ok());
    // One at a time, however late a busy machine lets the other have its turn.
    if (!pump({&a_}, [&] { return received == i + 2; })) break;
  }
  sleeper.join();
  EXPECT_EQ(b_.seen.received, 1 + kWakes);
  EXPECT_GE(wakes.load(), kWakes / 4) << "it was woken, it did not find the messages by timeout";
}

TEST_P(Conformance, AFloodBetweenSleepersLosesNoWakeUp) {
  join();
  constexpr uint64_t kMessages = 200;
  constexpr int kTooLongMs = 3000;
  const auto payload = pattern(1 << 20, 1);
  const auto live = [&](Node& me, PeerId peer) {
    me.seen.keep = false;
    uint64_t next = 1;
    while (me.seen.received < kMessages || me.seen.sent.size() < kMessages) {
      // Of all kinds: a header, a small one, a slice, and one that needs several pieces.
      const size_t sizes[] = {0, 5'000, 256 << 10, 1 << 20};
      while (next <= kMessages && next - me.seen.sent.size() <= 8) {
        const std::span<const std::byte> part(payload.data(), sizes[next % 4]);
        ASSERT_TRUE(me.transport->send(peer, header_of(next), part, next).ok());
        ++next;
      }
      if (me.turn() != 0 || !me.transport->arm()) continue;
      ASSERT_TRUE(readable(me.transport->event_fd(), kTooLongMs)) << "asleep, and work to do";
    }
    // The other side still needs its last messages taken from our buffers, and to be answered.
    const auto linger = std::chrono::steady_clock::now() + std::chrono::milliseconds(300);
    while (std::chrono::steady_clock::now() < linger) {
      if (me.turn() == 0 && me.transport->arm()) readable(me.transport->event_fd(), 20);
    }
  };
  std::thread other([&] { live(b_, 1); });
  live(a_, 2);
  other.join();
  EXPECT_EQ(a_.seen.received, kMessages);
  EXPECT_EQ(b_.seen.received, kMessages);
}

TEST_P(Conformance, NothingHappensWithoutTraffic) {
  join();
  ASSERT_TRUE(a_.transport->send(2, header_of(0), {}, 0).ok());
  ASSERT_TRUE(b_.transport->send(1, header_of(0), {}, 0).ok());
  ASSERT_TRUE(both([&] { return b_.seen.received == 1 && a_.seen.received == 1; }));
  // It may take a few turns to come to rest, but then it rests.
  ASSERT_TRUE(both([&] { return a_.transport->arm() && b_.transport->arm(); }));
  idle({&a_, &b_}, std::chrono::milliseconds(50));
  int wakes = 0;
  for (int look = 0; look < 20; ++look) {
    while (!a_.transport->arm()) a_.turn();
    if (readable(a_.transport->event_fd(), 10)) ++wakes;
    EXPECT_LE(a_.turn(), 1);
  }
  EXPECT_LE(wakes, 2) << "an idle transport sleeps";
  EXPECT_EQ(a_.seen.received, 1u);
  EXPECT_TRUE(a_.seen.lost.empty());
}

TEST_P(Conformance, CountsWhatWentThrough) {
  join();
  const auto payload = pattern(10'000, 1);
  for (uint64_t i = 1; i <= 5; ++i) {
    ASSERT_TRUE(a_.transport->send(2, header_of(i), payload, i).ok());
  }
  ASSERT_TRUE(a_.transport->send(2, header_of(6), {}, 6).ok());
  ASSERT_TRUE(both([&] { return b_.seen.received == 6 && a_.seen.sent.size() == 6; }));
  const Counters sent = a_.transport->counters();
  const Counters received = b_.transport->counters();
  EXPECT_EQ(sent.messages_sent, 6u);
  EXPECT_EQ(sent.payload_bytes_sent, 50'000u);
  EXPECT_EQ(received.messages_received, 6u);
  EXPECT_EQ(received.payload_bytes_received, 50'000u);
  EXPECT_EQ(received.messages_dropped, 0u);
}

TEST_P(Conformance, EachTransportMayLiveOnItsOwnThread) {
  join();
  constexpr uint64_t kMessages = 300;
  const auto payload = pattern(50'000, 1);
  // Whoever has sent all may still hold bytes that the other waits for.
  std::atomic<int> done = 0;
  const auto live = [&payload, &done](Node& me, PeerId peer) {
    me.seen.keep = false;
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    uint64_t next = 1;
    bool all = false;
    while (done < 2 && std::chrono::steady_clock::now() < deadline) {
      const bool now = me.seen.received >= kMessages && me.seen.sent.size() >= kMessages;
      if (now && !std::exchange(all, true)) ++done;
      if (next <= kMessages && next - me.seen.sent.size() < 16) {
        ASSERT_TRUE(me.transport->send(peer, header_of(next), payload, next).ok());
        ++next;
      }
      if (me.turn() == 0) std::this_thread::yield();
    }
  };
  std::thread other([&] { live(b_, 1); });
  live(a_, 2);
  other.join();
  EXPECT_EQ(a_.seen.received, kMessages);
  EXPECT_EQ(b_.seen.received, kMessages);
  EXPECT_EQ(a_.seen.sent_ok(), kMessages);
  EXPECT_EQ(b_.seen.sent_ok(), kMessages);
}

TEST_P(Conformance, TellsWhatItIs) {
  EXPECT_FALSE(a_.transport->name().empty());
  EXPECT_EQ(a_.transport->name(), b_.transport->name());
  EXPECT_FALSE(a_.transport->devices().empty());
  EXPECT_FALSE(a_.transport->devices_reason().empty());
  EXPECT_GE(a_.transport->event_fd(), 0);
  EXPECT_GE(a_.transport->preferred_payload_bytes(), size_t{64} << 10);
}

INSTANTIATE_TEST_SUITE_P(Bodies, Conformance, testing::ValuesIn(all_bodies()),
                         [](const auto& kind) { return kind.param.name; });

}  // namespace
}  // namespace gradring::transport::conformance
