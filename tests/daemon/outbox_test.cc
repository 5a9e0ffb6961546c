#include "daemon/data/outbox.h"

#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "daemon/data/seal.h"

namespace gradring::daemon {
namespace {

// Takes as many sends as it has room for.
class NarrowTransport final : public transport::Transport {
 public:
  std::string name() const override { return "narrow"; }
  std::string devices() const override { return ""; }
  std::string devices_reason() const override { return ""; }
  std::string address() const override { return ""; }
  Status connect(transport::PeerId, const std::string&) override { return {}; }
  void disconnect(transport::PeerId) override {}
  Status send(transport::PeerId, const FrameBytes& header, std::span<const std::byte> payload,
              uint64_t token) override {
    if (lost) return {Code::kUnavailable, "lost"};
    if (room == 0) return {Code::kResourceExhausted, "full"};
    --room;
    sent.push_back(static_cast<int>(header[0]));
    messages.push_back({header, {payload.begin(), payload.end()}, token});
    return {};
  }
  int progress(transport::Events&) override { return 0; }
  int event_fd() const override { return -1; }
  bool arm() override { return true; }
  transport::Counters counters() const override { return {}; }
  size_t preferred_payload_bytes() const override { return 4096; }

  int room = 0;
  bool lost = false;
  std::vector<int> sent;
  struct Message {
    FrameBytes header;
    std::vector<std::byte> payload;
    uint64_t token = 0;
  };
  std::vector<Message> messages;
};

FrameBytes frame(int number) {
  FrameBytes bytes{};
  bytes[0] = static_cast<std::byte>(number);
  return bytes;
}

// Two lanes without room, until they get some.
class OutboxTest : public testing::Test {
 protected:
  OutboxTest() {
    for (NarrowTransport*& narrow : narrow_) {
      auto made = std::make_unique<NarrowTransport>();
      narrow = made.get();
      lanes_.push_back(std::move(made));
    }
    outbox_.emplace(&lanes_, kBundleBytes);
  }
  static constexpr size_t kBundleBytes = 2048;

  bool send(uint8_t lane, transport::PeerId peer, int number, uint64_t loan = 0) {
    return outbox_->send(lane, peer, frame(number), {}, loan) != Outbox::Sent::kNowhere;
  }

  Lanes lanes_;
  std::array<NarrowTransport*, 2> narrow_{};
  std::optional<Outbox> outbox_;
};

TEST_F(OutboxTest, KeepsTheOrderWhenTheTransportHasNoRoom) {
  std::vector<uint64_t> returned;
  narrow_[0]->room = 1;
  for (int i = 1; i <= 4; ++i) EXPECT_TRUE(send(0, 0, i));
  EXPECT_EQ(narrow_[0]->sent, (std::vector<int>{1}));
  EXPECT_EQ(outbox_->retry(&returned), 0);
  narrow_[0]->room = 2;
  EXPECT_EQ(outbox_->retry(&returned), 2);
  narrow_[0]->room = 5;
  EXPECT_TRUE(send(0, 0, 5)) << "room again, but the fourth is older";
  EXPECT_EQ(outbox_->retry(&returned), 2);
  EXPECT_EQ(narrow_[0]->sent, (std::vector<int>{1, 2, 3, 4, 5}));
  EXPECT_TRUE(outbox_->empty());
  EXPECT_TRUE(returned.empty());
}

TEST_F(OutboxTest, OnePeerWithoutRoomDoesNotHoldUpAnother) {
  EXPECT_TRUE(send(0, 0, 1));
  narrow_[0]->room = 1;
  EXPECT_TRUE(send(0, 1, 2));
  EXPECT_EQ(narrow_[0]->sent, (std::vector<int>{2}));
}

TEST_F(OutboxTest, OneLaneWithoutRoomDoesNotHoldUpAnother) {
  EXPECT_TRUE(send(0, 0, 1));
  narrow_[1]->room = 1;
  EXPECT_TRUE(send(1, 0, 2));
  EXPECT_EQ(narrow_[1]->sent, (std::vector<int>{2}));
}

TEST_F(OutboxTest, GivesLoansBackWhenTheConnectionIsLost) {
  std::vector<uint64_t> returned;
  EXPECT_TRUE(send(0, 0, 1, 11));
  EXPECT_TRUE(send(0, 0, 2));
  EXPECT_TRUE(send(0, 0, 3, 13));
  narrow_[0]->lost = true;
  EXPECT_EQ(outbox_->retry(&returned), 0);
  EXPECT_EQ(returned, (std::vector<uint64_t>{11, 13}));
  EXPECT_TRUE(outbox_->empty());
  EXPECT_FALSE(send(0, 0, 4, 14)) << "nothing is kept for a lost peer";
}

// A peer that takes bundles, over a lane that has room.
class GatheringTest : public OutboxTest {
 protected:
  using Sent = Outbox::Sent;

  GatheringTest() {
    outbox_->takes_bundles(0, kBundleBytesMax);
    narrow_[0]->room = 1000;
  }
  Sent send_small(int number, size_t payload_bytes = 0) {
    payloads_.emplace_back(payload_bytes, static_cast<std::byte>(number));
    return outbox_->send(0, 0, frame(number), payloads_.back(),
                         payload_bytes == 0 ? 0 : 100 + number);
  }
  // The frames that went, in order, whichever messages they were in.
  std::vector<int> frames() const {
    std::vector<int> all;
    for (const auto& [header, payload, token] : narrow_[0]->messages) {
      if (!is_bundle(header)) {
        all.push_back(static_cast<int>(header[0]));
        continue;
      }
      EXPECT_TRUE(is_sound(header));
      const auto bundle = decode_bundle(header);
      EXPECT_TRUE(bundle && bundle->bytes == payload.size() && payload.size() <= kBundleBytes);
      BundleReader reader(*bundle, payload);
      while (const auto part = reader.next()) {
        all.push_back(static_cast<int>(part->header[0]));
        for (const std::byte byte : part->payload) EXPECT_EQ(byte, part->header[0]);
      }
    }
    return all;
  }
  size_t messages() const { return narrow_[0]->messages.size(); }

  std::deque<std::vector<std::byte>> payloads_;  // they are lent
};

TEST_F(GatheringTest, TheFirstOfATurnGoesAtOnceAndTheOthersTogether) {
  EXPECT_EQ(send_small(1, 8), Sent::kLent);
  EXPECT_EQ(narrow_[0]->messages.back().token, 101u);
  EXPECT_EQ(send_small(2, 8), Sent::kCopied);
  EXPECT_EQ(send_small(3), Sent::kCopied);
  EXPECT_EQ(send_small(4, 100), Sent::kCopied);
  EXPECT_EQ(messages(), 1u);
  outbox_->flush();
  EXPECT_EQ(messages(), 2u);
  EXPECT_EQ(frames(), (std::vector<int>{1, 2, 3, 4}));
  EXPECT_EQ(outbox_->bundles(), 1u);
  EXPECT_EQ(outbox_->frames_bundled(), 3u);
  EXPECT_EQ(send_small(5, 8), Sent::kLent) << "another turn";
  outbox_->flush();
  EXPECT_EQ(messages(), 3u);
}

TEST_F(GatheringTest, OneAloneIsNoBundle) {
  send_small(1);
  send_small(2);
  outbox_->flush();
  EXPECT_EQ(narrow_[0]->messages.back().token, 0u);
  send_small(3);
  send_small(4, 8);
  outbox_->flush();
  EXPECT_EQ(narrow_[0]->messages.back().payload.size(), 8u);
  EXPECT_NE(narrow_[0]->messages.back().token, 104u) << "it was a copy";
  EXPECT_EQ(frames(), (std::vector<int>{1, 2, 3, 4}));
  EXPECT_EQ(outbox_->bundles(), 0u);
}

TEST_F(GatheringTest, WhatIsLargeGoesBehindWhatWasGatheredBefore) {
  send_small(1);
  send_small(2);
  send_small(3);
  EXPECT_EQ(send_small(4, kBundleBytes), Sent::kLent);
  send_small(5);
  outbox_->flush();
  EXPECT_EQ(frames(), (std::vector<int>{1, 2, 3, 4, 5}));
  EXPECT_EQ(messages(), 4u);
}

TEST_F(GatheringTest, AFullBundleGoesBeforeTheTurnEnds) {
  std::vector<int> expected;
  for (int i = 1; i <= 50; ++i) {
    send_small(i, 100);
    expected.push_back(i);
  }
  EXPECT_EQ(messages(), 7u) << "one, and eight in each of the others";
  outbox_->flush();
  EXPECT_EQ(frames(), expected);
}

TEST_F(GatheringTest, OrderIsKeptWhereTheTransportHasNoRoom) {
  std::vector<uint64_t> returned;
  narrow_[0]->room = 1;
  std::vector<int> expected;
  for (int i = 1; i <= 40; ++i) {
    send_small(i, i % 3 == 0 ? kBundleBytes : 20);
    expected.push_back(i);
    if (i % 7 == 0) outbox_->flush();
  }
  outbox_->flush();
  EXPECT_EQ(frames(), (std::vector<int>{1}));
  for (int i = 0; i < 60; ++i) {
    narrow_[0]->room = 1;
    outbox_->retry(&returned);
  }
  EXPECT_TRUE(outbox_->empty());
  EXPECT_EQ(frames(), expected);
}

TEST_F(GatheringTest, WhatIsGatheredForALostPeerIsThrownAway) {
  std::vector<uint64_t> returned;
  send_small(1, 8);
  send_small(2, 8);
  send_small(3, 8);
  outbox_->drop(0, 0, &returned);
  EXPECT_TRUE(returned.empty()) << "what was copied is nobody's loan";
  outbox_->flush();
  EXPECT_EQ(frames(), (std::vector<int>{1}));

  narrow_[0]->room = 0;
  for (int i = 4; i <= 6; ++i) send_small(i, 8);
  outbox_->flush();
  EXPECT_FALSE(outbox_->empty()) << "a frame, and a bundle";
  narrow_[0]->lost = true;
  outbox_->retry(&returned);
  EXPECT_EQ(returned, (std::vector<uint64_t>{104}));
  EXPECT_TRUE(outbox_->empty());
  send_small(7, 8);
  EXPECT_EQ(send_small(8, 8), Sent::kCopied);
  outbox_->flush();
  EXPECT_TRUE(outbox_->empty());
}

TEST_F(GatheringTest, APeerThatHasNeverHeardOfBundlesGetsNone) {
  outbox_->takes_bundles(0, 0);
  for (int i = 1; i <= 3; ++i) EXPECT_EQ(send_small(i, 8), Sent::kLent);
  EXPECT_EQ(messages(), 3u);
  outbox_->takes_bundles(0, 2 * kFrameBytes + 16);
  for (int i = 4; i <= 6; ++i) send_small(i, 8);
  EXPECT_EQ(outbox_->bundles(), 0u);
  outbox_->flush();
  EXPECT_EQ(messages(), 5u) << "two fit into what it takes";
  EXPECT_EQ(frames(), (std::vector<int>{1, 2, 3, 4, 5, 6}));
}

}  // namespace
}  // namespace gradring::daemon
