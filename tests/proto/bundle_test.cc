#include "proto/bundle.h"

#include <gmock/gmock.h>

#include <cstring>
#include <vector>

namespace gradring {
namespace {

using ::testing::HasSubstr;

Bundle bundle_of(const std::vector<size_t>& lengths) {
  Bundle bundle;
  bundle.token = 0x1122334455667788;
  for (const size_t length : lengths) bundle.add(length);
  return bundle;
}

std::string refusal_of(const FrameBytes& header) {
  const auto bundle = decode_bundle(header);
  return bundle ? "" : bundle.error();
}

TEST(Bundle, SurvivesTheTrip) {
  const Bundle sent = bundle_of({0, 1024, 7});
  EXPECT_EQ(sent.bytes, 3 * kFrameBytes + 1031);
  const FrameBytes header = encode(sent);
  EXPECT_TRUE(is_bundle(header));
  const auto came = decode_bundle(header);
  ASSERT_TRUE(came) << came.error();
  EXPECT_EQ(came->token, sent.token);
  EXPECT_EQ(came->count, 3);
  EXPECT_EQ(came->lengths, sent.lengths);
  EXPECT_EQ(came->bytes, sent.bytes);
}

TEST(Bundle, IsNoFrameAndAFrameIsNone) {
  EXPECT_FALSE(decode(encode(bundle_of({0, 0})), 2 * kFrameBytes));
  const FrameBytes frame = encode(Frame{});
  EXPECT_FALSE(is_bundle(frame));
  EXPECT_THAT(refusal_of(frame), HasSubstr("not a bundle"));
  const FrameBytes header = encode(bundle_of({0, 0}));
  EXPECT_FALSE(is_bundle(std::span(header).first(kFrameBytes - 1)));
  EXPECT_FALSE(decode_bundle(std::span(header).first(3)));
}

// The token stands where a frame's does (daemon/data/seal.h).
TEST(Bundle, HasItsTokenWhereAFrameHasIt) {
  Frame frame;
  frame.token = bundle_of({}).token;
  const FrameBytes of_frame = encode(frame), of_bundle = encode(bundle_of({0, 0}));
  EXPECT_EQ(std::memcmp(of_frame.data() + 8, of_bundle.data() + 8, sizeof frame.token), 0);
}

TEST(Bundle, IsRefusedWhenItMakesNoSense) {
  FrameBytes header = encode(bundle_of({0, 0}));
  header[4] = std::byte{kFrameVersion + 1};
  EXPECT_THAT(refusal_of(header), HasSubstr("version"));
  for (const int count : {0, 1, 63, 255}) {
    header = encode(bundle_of({0, 0}));
    header[5] = static_cast<std::byte>(count);
    EXPECT_THAT(refusal_of(header), HasSubstr("of " + std::to_string(count) + " frames"));
  }
  header = encode(bundle_of({5, 6, 7}));
  header[5] = std::byte{2};
  EXPECT_THAT(refusal_of(header), HasSubstr("not in it"));
  header = encode(bundle_of({UINT16_MAX, UINT16_MAX}));
  EXPECT_THAT(refusal_of(header), HasSubstr("more than 65536 bytes"));
}

TEST(Bundle, HasRoomForSoManyFramesAndBytes) {
  Bundle bundle;
  EXPECT_FALSE(bundle.has_room_for(200, kFrameBytes + 199));
  EXPECT_FALSE(bundle.has_room_for(UINT16_MAX + size_t{1}, 1 << 20));
  while (bundle.has_room_for(0, kBundleBytesMax)) bundle.add(0);
  EXPECT_EQ(bundle.count, kBundleFramesMax);
  EXPECT_TRUE(decode_bundle(encode(bundle)));
}

TEST(Bundle, IsReadFrameByFrame) {
  const Bundle bundle = bundle_of({2, 0, 3});
  std::vector<std::byte> payload(bundle.bytes);
  for (size_t i = 0; i < payload.size(); ++i) payload[i] = static_cast<std::byte>(i / 16);
  BundleReader reader(bundle, payload);
  size_t at = 0;
  for (const size_t length : {2, 0, 3}) {
    const auto part = reader.next();
    ASSERT_TRUE(part);
    EXPECT_EQ(part->header.data(), payload.data() + at);
    EXPECT_EQ(part->header.size(), kFrameBytes);
    EXPECT_EQ(part->payload.size(), length);
    EXPECT_EQ(part->payload.data(), payload.data() + at + kFrameBytes);
    at += kFrameBytes + length;
  }
  EXPECT_FALSE(reader.next());
  EXPECT_EQ(at, payload.size());
}

}  // namespace
}  // namespace gradring
