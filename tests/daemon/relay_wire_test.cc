#include "daemon/wire/relay_wire.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>

namespace gradring::daemon {
namespace {

core::Parcel sample_parcel() {
  return {"a", "z", {7, 0, UINT32_MAX}, {{1, 2}, {3, 4}, 5, 6, 7, true, true, 8, 9, "words"}};
}
core::Notice sample_notice() { return {"b", 1, 2, true, true, "it did not answer"}; }

// As a neighbour receives it.
wire::PeerMessage sent(const wire::PeerMessage& message) {
  wire::PeerMessage read;
  EXPECT_TRUE(read.ParseFromString(message.SerializeAsString()));
  return read;
}

bool believed(const std::function<void(wire::Relay*)>& bend) {
  wire::PeerMessage message = to_wire(sample_parcel());
  bend(message.mutable_relay());
  return parcel_of(message.relay()).has_value();
}

TEST(RelayWire, AParcelArrivesAsItWas) {
  const auto read = parcel_of(sent(to_wire(sample_parcel())).relay());
  ASSERT_TRUE(read);
  EXPECT_EQ(read->from, "a");
  EXPECT_EQ(read->to, "z");
  EXPECT_EQ(read->passed, sample_parcel().passed);
  EXPECT_EQ(read->letter, sample_parcel().letter);
}

TEST(RelayWire, AParcelOfNobodyOrOfTooManyHopsIsNotBelieved) {
  EXPECT_TRUE(believed([](auto*) {}));
  EXPECT_FALSE(believed([](auto* relay) { relay->clear_from(); }));
  EXPECT_FALSE(believed([](auto* relay) { relay->clear_to(); }));
  EXPECT_FALSE(believed([](auto* relay) { relay->set_to(std::string(301, 'x')); }));
  EXPECT_FALSE(believed([](auto* relay) { relay->mutable_passed()->Resize(4097, 1); }));
}

TEST(RelayWire, NoticesArriveAsTheyWere) {
  const std::vector<core::Notice> notices = {sample_notice(), {"c", 3, 4, false, false, ""}};
  EXPECT_EQ(notices_of(sent(to_wire(notices)).notices()), notices);
}

TEST(RelayWire, ANoticeOfNobodyIsLeftOut) {
  EXPECT_EQ(notices_of(to_wire({core::Notice{}, sample_notice()}).notices()),
            std::vector{sample_notice()});
}

// Who gets a message with half a character cannot read any of it.
TEST(RelayWire, LongEvidenceIsCutBetweenTwoCharacters) {
  core::Notice notice = sample_notice();
  for (notice.evidence = "!"; notice.evidence.size() < 2000;) notice.evidence += "ü";
  const auto read = notices_of(sent(to_wire({notice})).notices());
  ASSERT_EQ(read.size(), 1u);
  EXPECT_TRUE(read[0].evidence == notice.evidence.substr(0, 999)) << read[0].evidence.size();
}

}  // namespace
}  // namespace gradring::daemon
