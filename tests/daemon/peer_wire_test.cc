#include "daemon/wire/peer_wire.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <string>

#include "tests/daemon/wire_samples.h"

namespace gradring::daemon {
namespace {

// Through the bytes, as between two daemons.
std::optional<core::JobMessage> read(const wire::PeerMessage& message) {
  wire::PeerMessage received;
  EXPECT_TRUE(received.ParseFromString(message.SerializeAsString()));
  return job_message_of(received);
}

// Whether it is still believed after `bend`.
bool believed(const core::JobMessage& message,
              const std::function<void(wire::PeerMessage*)>& bend) {
  wire::PeerMessage bent = to_wire(message);
  bend(&bent);
  return read(bent).has_value();
}

template <typename Message>
const core::JobMessage& sample() {
  static const std::vector<core::JobMessage> kSamples = sample_messages();
  const core::JobMessage* found = nullptr;
  for (const core::JobMessage& message : kSamples) {
    if (std::holds_alternative<Message>(message)) found = &message;
  }
  return *found;
}

TEST(PeerWire, EveryMessageSurvivesTheTrip) {
  std::set<size_t> seen;
  for (const core::JobMessage& message : sample_messages()) {
    seen.insert(message.index());
    const auto received = read(to_wire(message));
    ASSERT_TRUE(received.has_value()) << message.index();
    EXPECT_EQ(*received, message) << message.index();
  }
  EXPECT_EQ(seen.size(), std::variant_size_v<core::JobMessage>);
}

TEST(PeerWire, WhatSaysAlmostNothingSurvivesTheTripToo) {
  core::change::Promise promise{sample_job(), 1, {1, "a"}, std::nullopt, {}};
  promise.report.node = "a";
  core::change::Accept accept{sample_job(), 1, {1, "a"}, {}};
  accept.proposal.view = sample_view();
  accept.proposal.view.epoch = 2;
  accept.proposal.view.grown = 1;
  accept.proposal.view.size = 0;
  accept.proposal.view.members.clear();
  accept.proposal.view.explanation.clear();
  for (const core::JobMessage& message : {core::JobMessage(promise), core::JobMessage(accept),
                                          core::JobMessage(core::change::Ask{sample_job(), 0})}) {
    const auto received = read(to_wire(message));
    ASSERT_TRUE(received.has_value()) << message.index();
    EXPECT_EQ(*received, message) << message.index();
  }
}

// A guest is invited to a view of epoch 0, whose ranks came in whenever.
TEST(PeerWire, AnInvitationSurvivesTheTrip) {
  core::Propose propose{"token", sample_view()};
  propose.view.epoch = 0;
  const auto received = read(to_wire(propose));
  ASSERT_TRUE(received.has_value());
  EXPECT_EQ(std::get<core::Propose>(*received), propose);
}

// In every message that has one, found by its name.
TEST(PeerWire, AJobIdHasSixteenBytes) {
  int tried = 0;
  for (const core::JobMessage& message : sample_messages()) {
    wire::PeerMessage bent = to_wire(message);
    const auto* body = bent.GetReflection()->GetOneofFieldDescriptor(
        bent, wire::PeerMessage::descriptor()->FindOneofByName("body"));
    const auto* incarnation = body->message_type()->FindFieldByName("incarnation");
    if (incarnation == nullptr) continue;
    ++tried;
    google::protobuf::Message* inner = bent.GetReflection()->MutableMessage(&bent, body);
    for (const size_t length : {0, 15, 17}) {
      inner->GetReflection()->SetString(inner, incarnation, std::string(length, 'x'));
      EXPECT_FALSE(read(bent)) << message.index() << ", " << length << " bytes";
    }
  }
  EXPECT_EQ(tried, 14);
}

TEST(PeerWire, OtherMessagesAreNotOfAJob) {
  EXPECT_FALSE(read(wire::PeerMessage()));
  wire::PeerMessage message;
  message.mutable_heartbeat();
  EXPECT_FALSE(read(message));
}

// Else one sentence too many would keep all members from ever agreeing.
TEST(PeerWire, ASentenceThatGrewTooLongIsCutBetweenTwoCharacters) {
  core::change::Commit commit = std::get<core::change::Commit>(sample<core::change::Commit>());
  commit.proposal.view.explanation.clear();
  for (size_t i = 0; i < kTextMax; ++i) commit.proposal.view.explanation += "\u00e9";
  commit.proposal.view.closed->blame.evidence = "x" + commit.proposal.view.explanation;
  const auto received = read(to_wire(commit));
  ASSERT_TRUE(received.has_value());
  const core::View& view = std::get<core::change::Commit>(*received).proposal.view;
  EXPECT_EQ(view.explanation, commit.proposal.view.explanation.substr(0, kTextMax));
  EXPECT_EQ(view.closed->blame.evidence,
            commit.proposal.view.closed->blame.evidence.substr(0, kTextMax - 1));
  EXPECT_FALSE(believed(commit, [](auto* m) {
    m->mutable_commit_view()->mutable_proposal()->mutable_view()->set_explanation(
        std::string(kTextMax + 1, 'x'));
  }));
}

TEST(PeerWire, WhatIsClaimedHasNotComeInBefore) {
  const auto with = [](uint64_t since) {
    return believed(sample<core::Claims>(),
                    [since](auto* m) { m->mutable_claims()->mutable_ranks(0)->set_since(since); });
  };
  EXPECT_TRUE(with(1));
  EXPECT_FALSE(with(0));
  EXPECT_FALSE(with(2));
}

TEST(PeerWire, ABallotHasARoundWithRoomAboveAndANode) {
  const auto with = [](uint64_t round, const std::string& node) {
    return believed(sample<core::change::Prepare>(), [&](auto* m) {
      m->mutable_prepare()->mutable_ballot()->set_round(round);
      m->mutable_prepare()->mutable_ballot()->set_node(node);
    });
  };
  EXPECT_TRUE(with(1, "a"));
  EXPECT_FALSE(with(0, "a"));
  EXPECT_FALSE(with(UINT64_MAX, "a"));
  EXPECT_FALSE(with(1, ""));
  EXPECT_FALSE(with(1, std::string(kNodeNameMax + 1, 'a')));
  EXPECT_FALSE(believed(sample<core::change::Accepted>(),
                        [](auto* m) { m->mutable_accepted()->clear_ballot(); }));
  EXPECT_FALSE(believed(sample<core::change::Refuse>(),
                        [](auto* m) { m->mutable_refuse()->clear_promised(); }));
  EXPECT_FALSE(believed(sample<core::change::Promise>(),
                        [](auto* m) { m->mutable_promise()->mutable_accepted()->clear_ballot(); }));
}

}  // namespace
}  // namespace gradring::daemon
