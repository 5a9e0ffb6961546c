// Addresses over TCP, and the ways between them: without a connection.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/transport/endpoint.h"
#include "transport/tcp/endpoints.h"
#include "transport/tcp/outgoing.h"

namespace gradring::transport {
namespace {

TEST(TcpWays, NeighboursComeFirstAndEachLeavesByAnAddressOfItsKind) {
  const std::vector<Endpoint> ours = {endpoint("10.0.0.1", 24, 1), endpoint("10.7.0.1", 16, 2),
                                      endpoint("fd00::1", 64, 3)};
  const std::vector<Endpoint> theirs = {endpoint("192.168.1.2", 0, 11), endpoint("10.7.9.2", 0, 12),
                                        endpoint("fd01::2", 0, 13), endpoint("fd00::2", 0, 14)};
  const std::vector<Way> ways = ways_between(ours, theirs, true);
  ASSERT_EQ(ways.size(), 4u);
  EXPECT_EQ(ways[0].to.text(), "10.7.9.2:12");
  EXPECT_EQ(ways[0].from->text(), "10.7.0.1:0") << "at a port that the kernel chooses";
  EXPECT_EQ(ways[1].to.text(), "[fd00::2]:14");
  EXPECT_EQ(ways[1].from->text(), "[fd00::1]:0");
  EXPECT_EQ(ways[2].to.text(), "192.168.1.2:11");
  EXPECT_EQ(ways[2].from->text(), "10.0.0.1:0");
  EXPECT_EQ(ways[3].to.text(), "[fd01::2]:13");
  for (const Way& way : ways_between(ours, theirs, false)) EXPECT_FALSE(way.from.has_value());
  EXPECT_TRUE(ways_between({endpoint("10.0.0.1", 24)}, {endpoint("fd00::2", 0)}, true).empty());
}

TEST(TcpWays, NoneLeadsToOurselvesWhereTheOtherMachineHasAnAddressOfOurs) {
  const std::vector<Endpoint> ours = {endpoint("169.254.3.1", 24, 7400),
                                      endpoint("10.0.0.1", 24, 7400)};
  const std::vector<Endpoint> theirs = {endpoint("169.254.3.1", 0, 7400),
                                        endpoint("10.0.0.2", 0, 7400)};
  const std::vector<Endpoint> others = others_of(theirs, ours);
  ASSERT_EQ(others.size(), 1u);
  EXPECT_EQ(others[0].text(), "10.0.0.2:7400");
  const auto beside = others_of({endpoint("10.0.0.1", 0, 7401)}, ours);
  EXPECT_EQ(beside.size(), 1u) << "another daemon of this machine";
}

TEST(TcpWays, AnAddressThatThisNodeHasNoMoreIsNamed) {
  Outgoing out({}, {}, {{endpoint("127.0.0.1", 0, 9), endpoint("192.0.2.7", 24)}});
  const Status status = out.open();
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_THAT(status.message(),
              testing::HasSubstr("has not the address 192.0.2.7 any more, which it had when "
                                 "gradringd was started"));
  EXPECT_THAT(status.message(), testing::HasSubstr("restart gradringd"));
}

TEST(TcpAddress, IsReadAsItWasWrittenAndNothingElseIs) {
  RawAddress address;
  address.identity.fill(std::byte{7});
  address.endpoints = {endpoint("10.0.0.1", 0, 4711), endpoint("fd00::1", 0, 65535)};
  const std::string bytes = encode_address(address);
  const auto read = decode_address(bytes);
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->identity, address.identity);
  ASSERT_EQ(read->endpoints.size(), 2u);
  EXPECT_EQ(read->endpoints[0].text(), "10.0.0.1:4711");
  EXPECT_EQ(read->endpoints[1].text(), "[fd00::1]:65535");
  for (size_t cut = 0; cut < bytes.size(); ++cut) {
    const auto shorter = decode_address(bytes.substr(0, cut));
    EXPECT_TRUE(!shorter || shorter->endpoints.size() == 1) << cut;
  }
  std::string odd = bytes;
  odd[sizeof(Identity)] = 5;
  EXPECT_FALSE(decode_address(odd).has_value());
}

}  // namespace
}  // namespace gradring::transport
