#include "proto/frame.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace gradring {
namespace {

using ::testing::HasSubstr;

// Offsets that the tests below bend; the drawing is in proto/frame.h.
constexpr size_t kVersionAt = 4;
constexpr size_t kTypeAt = 5;
constexpr size_t kBodyAt = 56;

Frame frame_of(FrameType type) {
  Frame frame;
  frame.type = type;
  frame.token = 0x1122334455667788;
  for (size_t i = 0; i < frame.job.size(); ++i) frame.job[i] = static_cast<uint8_t>(0xa0 + i);
  frame.epoch = 3;
  frame.key = {0x0102030405060708, 9};
  return frame;
}

Frame full_ready() {
  Frame frame = frame_of(FrameType::kReady);
  frame.ready.rank = 0x21222324;
  frame.ready.contributions = 0x11121314;
  frame.ready.grows = true;
  frame.ready.eager = true;
  frame.ready.serial = 0x9192939495969798;
  frame.ready.done = {0xa1a2a3a4a5a6a7a8, 0xb1b2b3b4b5b6b7b8};
  frame.ready.rises = true;
  frame.ready.late_us = 0xc1c2c3c4;
  frame.ready.waited_ms = 0xd1d2d3d4;
  frame.ready.signature = {Collective::kAllreduce, Dtype::kBfloat16, ReduceOp::kAverage, 0,
                           uint64_t{1} << 40};
  return frame;
}

Frame slice() {
  Frame frame = frame_of(FrameType::kSlice);
  frame.slice = {0x31323334, Phase::kFinal, 5, 0x0607,     0x41424344, 0x00010000,
                 2,          true,          3, 0x61626364, 0x51525354};
  return frame;
}

// Seven words that differ, so that none can stand in another's place.
Frame stable() {
  Frame frame = frame_of(FrameType::kStable);
  frame.stable.kind = StableKind::kConfirm;
  frame.stable.first = 0x71727374;
  for (size_t i = 0; i < frame.stable.bits.size(); ++i) frame.stable.bits[i] = 0xe0 + i;
  frame.stable.bits.back() |= uint64_t{1} << 63;
  return frame;
}

std::vector<Frame> one_of_each() {
  std::vector<Frame> frames = {full_ready(), slice()};
  frames.push_back(frame_of(FrameType::kCredit));
  frames.back().credit = {7, UINT64_MAX, UINT64_MAX - 1};
  frames.push_back(stable());
  frames.push_back(frame_of(FrameType::kMismatch));
  frames.back().mismatch = {1,
                            6,
                            {Collective::kBroadcast, Dtype::kInt64, ReduceOp::kNone, 4, 10},
                            {Collective::kBarrier, Dtype::kUint8, ReduceOp::kNone, 0, 0}};
  frames.push_back(frame_of(FrameType::kNack));
  frames.back().nack = {8, Phase::kPartial, 1, 2, 3, UINT64_MAX};
  frames.push_back(frame_of(FrameType::kHeartbeat));
  frames.back().heartbeat = {100, 1u << 31};
  frames.push_back(frame_of(FrameType::kDigest));
  frames.back().digest = {0xfeedbeef};
  frames.push_back(frame_of(FrameType::kDone));
  frames.back().done = {UINT64_MAX - 2, UINT64_MAX};
  frames.push_back(frame_of(FrameType::kAllReady));
  frames.back().all_ready = {0xc1c2c3c4, true, true};
  frames.push_back(frame_of(FrameType::kWanted));
  frames.back().wanted = {
      0xd1d2d3d4,
      UINT64_MAX,
      {Collective::kAllreduce, Dtype::kFloat64, ReduceOp::kMax, 0, uint64_t{1} << 33}};
  frames.push_back(frame_of(FrameType::kProbe));
  frames.back().probe = {ProbeKind::kData, ProbeRefusal::kNone, true, 4096, UINT64_MAX, 1, 2, 3};
  return frames;
}

void expect_equal(const Frame& a, const Frame& b) {
  EXPECT_EQ(a.type, b.type);
  EXPECT_EQ(a.token, b.token);
  EXPECT_EQ(a.job, b.job);
  EXPECT_EQ(a.epoch, b.epoch);
  EXPECT_EQ(a.key, b.key);
  EXPECT_EQ(a.ready, b.ready);
  EXPECT_EQ(a.slice, b.slice);
  EXPECT_EQ(a.credit, b.credit);
  EXPECT_EQ(a.stable, b.stable);
  EXPECT_EQ(a.mismatch, b.mismatch);
  EXPECT_EQ(a.nack, b.nack);
  EXPECT_EQ(a.heartbeat, b.heartbeat);
  EXPECT_EQ(a.digest, b.digest);
  EXPECT_EQ(a.done, b.done);
  EXPECT_EQ(a.all_ready, b.all_ready);
  EXPECT_EQ(a.wanted, b.wanted);
  EXPECT_EQ(a.probe, b.probe);
}

std::string in_hex(const FrameBytes& bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (i > 0 && i % 16 == 0) text += '\n';
    text += kDigits[static_cast<uint8_t>(bytes[i]) >> 4];
    text += kDigits[static_cast<uint8_t>(bytes[i]) & 15];
  }
  return text;
}

// The sentence with which a header is refused; empty when it is accepted.
std::string refusal(const FrameBytes& bytes, size_t payload_bytes) {
  const auto frame = decode(bytes, payload_bytes);
  return frame ? "" : frame.error();
}
std::string refusal_with(const Frame& frame, size_t at, uint8_t value) {
  FrameBytes bytes = encode(frame);
  bytes.at(at) = std::byte{value};
  return refusal(bytes, payload_of(frame));
}

TEST(Frame, EveryTypeSurvivesTheTrip) {
  const auto frames = one_of_each();
  EXPECT_EQ(frames.size(), kFrameTypeLast);
  for (const Frame& frame : frames) {
    const FrameBytes bytes = encode(frame);
    const auto decoded = decode(bytes, payload_of(frame));
    ASSERT_TRUE(decoded.has_value()) << decoded.error();
    expect_equal(*decoded, frame);
    EXPECT_EQ(encode(*decoded), bytes);
  }
}

// The layout is an agreement with daemons of other builds: when one of these fails, the change
// needs a new kFrameVersion.
TEST(Frame, TheBytesOfReadyAreTheseForEver) {
  EXPECT_EQ(in_hex(encode(full_ready())),
            "47524446070100008877665544332211"
            "\na0a1a2a3a4a5a6a7a8a9aaabacadaeaf"
            "\n03000000000000000807060504030201"
            "\n09000000000000002423222114131211"
            "\n01040200000000000000000000010000"
            "\n00000000000000000000f03f00000000"
            "\n00000000010100000000989796959493"
            "\n9291a8a7a6a5a4a3a2a1b8b7b6b5b4b3"
            "\nb2b101c4c3c2c1d4d3d2d10000000000");
}

TEST(Frame, TheBytesOfSliceAreTheseForEver) {
  EXPECT_EQ(in_hex(encode(slice())),
            "47524446070200008877665544332211"
            "\na0a1a2a3a4a5a6a7a8a9aaabacadaeaf"
            "\n03000000000000000807060504030201"
            "\n09000000000000003433323102050706"
            "\n44434241000001000200000000000000"
            "\n64636261000000005453525101030000"
            "\n00000000000000000000000000000000"
            "\n00000000000000000000000000000000"
            "\n00000000000000000000000000000000");
}

TEST(Frame, TheBytesOfStableAreTheseForEver) {
  EXPECT_EQ(in_hex(encode(stable())),
            "47524446070400008877665544332211"
            "\na0a1a2a3a4a5a6a7a8a9aaabacadaeaf"
            "\n03000000000000000807060504030201"
            "\n09000000000000007473727102000000"
            "\ne000000000000000e100000000000000"
            "\ne200000000000000e300000000000000"
            "\ne400000000000000e500000000000000"
            "\ne600000000000080"
            "0000000000000000"
            "\n00000000000000000000000000000000");
}

TEST(Frame, StableTellsOfEachOfItsSlicesAlone) {
  Frame frame = frame_of(FrameType::kStable);
  for (uint32_t i = 0; i < kStableSlices; ++i) {
    frame.stable.bits.fill(0);
    frame.stable.bits[i / 64] = uint64_t{1} << (i % 64);
    const auto decoded = decode(encode(frame), 0);
    ASSERT_TRUE(decoded.has_value()) << decoded.error();
    EXPECT_EQ(decoded->stable, frame.stable) << i;
  }
  EXPECT_EQ(kStableSlices, frame.stable.bits.size() * 64);
}

// A member without contributions has no part in the op, and could not have said that it is ready.
TEST(Frame, ReadyWithoutContributionsIsRefused) {
  Frame frame = full_ready();
  frame.ready.contributions = 0;
  EXPECT_EQ(refusal(encode(frame), 0), "frame type 1 has a value outside its range");
}

TEST(Frame, ReadySaysWhetherTheJobGrows) {
  Frame frame = full_ready();
  for (const bool grows : {false, true}) {
    frame.ready.grows = grows;
    const auto decoded = decode(encode(frame), 0);
    ASSERT_TRUE(decoded.has_value()) << decoded.error();
    EXPECT_EQ(decoded->ready.grows, grows);
  }
}

TEST(Frame, ReadyMayHaveItsDataWithIt) {
  Frame frame = full_ready();
  frame.ready.length = 4096;
  EXPECT_TRUE(is_direct(frame));
  const auto decoded = decode(encode(frame), 4096);
  ASSERT_TRUE(decoded.has_value()) << decoded.error();
  EXPECT_EQ(decoded->ready, frame.ready);
  EXPECT_THAT(refusal(encode(frame), 0), HasSubstr("says 4096 payload bytes, 0 came"));
}

TEST(Frame, DataWithoutANumberIsRefused) {
  Frame frame = full_ready();
  frame.ready.serial = 0;
  EXPECT_EQ(refusal(encode(frame), 0), "frame type 1 has a value outside its range");
  frame.ready.eager = false;
  EXPECT_EQ(refusal(encode(frame), 0), "");
  frame.ready.length = 64;
  EXPECT_EQ(refusal(encode(frame), 64), "frame type 1 has a value outside its range");
}

TEST(Frame, AProbeHasAPayloadInItsDataAlone) {
  Frame frame = frame_of(FrameType::kProbe);
  frame.probe.kind = ProbeKind::kData;
  frame.probe.length = kProbeBytesMax;
  EXPECT_EQ(refusal(encode(frame), kProbeBytesMax), "");
  frame.probe.length = kProbeBytesMax + 1;
  EXPECT_THAT(refusal(encode(frame), kProbeBytesMax + 1), HasSubstr("outside its range"));
  frame.probe.length = 1;
  for (const ProbeKind kind :
       {ProbeKind::kAsk, ProbeKind::kGranted, ProbeKind::kEcho, ProbeKind::kEnd}) {
    frame.probe.kind = kind;
    EXPECT_THAT(refusal(encode(frame), 1), HasSubstr("outside its range"));
  }
}

TEST(Frame, AProbeIsRefusedWithAReason) {
  Frame frame = frame_of(FrameType::kProbe);
  frame.probe.kind = ProbeKind::kRefused;
  EXPECT_THAT(refusal(encode(frame), 0), HasSubstr("outside its range"));
  frame.probe.refusal = ProbeRefusal::kBusy;
  EXPECT_EQ(refusal(encode(frame), 0), "");
  EXPECT_THAT(refusal_with(frame, 57, kProbeRefusalLast + 1), HasSubstr("outside its range"));
  frame.probe.kind = ProbeKind::kGranted;
  EXPECT_THAT(refusal(encode(frame), 0), HasSubstr("outside its range"));
  EXPECT_THAT(refusal_with(frame, 56, kProbeKindLast + 1), HasSubstr("outside its range"));
}

TEST(Frame, ASliceMayComeStraight) {
  Frame frame = slice();
  EXPECT_FALSE(is_direct(frame));
  frame.slice.phase = Phase::kDirect;
  EXPECT_TRUE(is_direct(frame));
  const auto decoded = decode(encode(frame), frame.slice.length);
  ASSERT_TRUE(decoded.has_value()) << decoded.error();
  EXPECT_EQ(decoded->slice, frame.slice);
}

TEST(Frame, AHeaderOfAnotherLengthIsRefused) {
  const FrameBytes bytes = encode(slice());
  for (size_t length = 0; length < kFrameBytes; ++length) {
    const auto frame = decode(std::span(bytes).first(length), slice().slice.length);
    ASSERT_FALSE(frame.has_value()) << length;
    EXPECT_THAT(frame.error(), HasSubstr("144 bytes, got " + std::to_string(length)));
  }
  std::vector<std::byte> longer(bytes.begin(), bytes.end());
  longer.push_back({});
  EXPECT_FALSE(decode(longer, slice().slice.length).has_value());
}

TEST(Frame, GarbageIsRefused) {
  FrameBytes bytes{};
  EXPECT_EQ(refusal(bytes, 0), "not a gradring frame");
  bytes.fill(std::byte{0xff});
  EXPECT_EQ(refusal(bytes, 0), "not a gradring frame");
  for (size_t at = 0; at < kVersionAt; ++at) {
    EXPECT_EQ(refusal_with(slice(), at, 'x'), "not a gradring frame");
  }
}

TEST(Frame, AnotherVersionIsRefusedWithBothNumbers) {
  for (const uint8_t version : {0, kFrameVersion - 1, kFrameVersion + 1, 255}) {
    EXPECT_EQ(refusal_with(full_ready(), kVersionAt, version),
              "frame version " + std::to_string(version) + ", this daemon speaks 7");
  }
}

TEST(Frame, AnUnknownTypeIsRefused) {
  for (const uint8_t type : {0, kFrameTypeLast + 1, 255}) {
    EXPECT_EQ(refusal_with(frame_of(FrameType::kHeartbeat), kTypeAt, type),
              "unknown frame type " + std::to_string(type));
  }
}

// In every byte that holds an enumerator, every value outside it.
TEST(Frame, AValueOutsideItsEnumerationIsRefused) {
  struct Field {
    FrameType type;
    size_t at;
    uint8_t first;
    uint8_t last;
    uint8_t besides = 0;  // one more
  };
  // Those that say nothing of ranks, as the frames here do.
  constexpr auto kWithoutRanks = static_cast<uint8_t>(Collective::kJoinPoint);
  constexpr auto kNorJoin = static_cast<uint8_t>(Collective::kJoin);
  const std::vector<Field> fields = {
      {FrameType::kReady, 8, 1, kWithoutRanks, kNorJoin},
      {FrameType::kReady, 9, 1, kDtypeLast},
      {FrameType::kReady, 10, 0, kReduceOpLast},
      {FrameType::kReady, 44, 0, 1},
      {FrameType::kReady, 45, 0, 1},
      {FrameType::kSlice, 4, 1, kPhaseLast},
      {FrameType::kSlice, 36, 0, 1},
      {FrameType::kStable, 4, 1, 2},
      {FrameType::kMismatch, 8, 1, kWithoutRanks, kNorJoin},
      {FrameType::kMismatch, 9, 1, kDtypeLast},
      {FrameType::kMismatch, 10, 0, kReduceOpLast},
      {FrameType::kMismatch, 44, 1, kWithoutRanks, kNorJoin},
      {FrameType::kMismatch, 45, 1, kDtypeLast},
      {FrameType::kMismatch, 46, 0, kReduceOpLast},
      {FrameType::kNack, 4, 1, kPhaseLast},
      {FrameType::kAllReady, 4, 0, 1},
      {FrameType::kWanted, 12, 1, kWithoutRanks, kNorJoin},
      {FrameType::kWanted, 13, 1, kDtypeLast},
      {FrameType::kWanted, 14, 0, kReduceOpLast},
  };
  const auto frames = one_of_each();
  for (const Field& field : fields) {
    const auto frame = std::find_if(frames.begin(), frames.end(),
                                    [&](const Frame& f) { return f.type == field.type; });
    for (int value = 0; value <= 255; ++value) {
      const bool good = (value >= field.first && value <= field.last) ||
                        (field.besides != 0 && value == field.besides);
      const std::string type = std::to_string(static_cast<int>(field.type));
      EXPECT_EQ(refusal_with(*frame, kBodyAt + field.at, static_cast<uint8_t>(value)),
                good ? "" : "frame type " + type + " has a value outside its range")
          << "byte " << field.at << " value " << value;
    }
  }
}

TEST(Frame, PayloadOfAnotherLengthIsRefused) {
  const Frame frame = slice();
  for (const size_t came : {size_t{0}, size_t{0xffff}, size_t{0x10001}}) {
    EXPECT_EQ(refusal(encode(frame), came),
              "frame says 65536 payload bytes, " + std::to_string(came) + " came");
  }
  for (const Frame& other : one_of_each()) {
    if (other.type == FrameType::kSlice) continue;
    const uint32_t own = other.type == FrameType::kProbe ? other.probe.length : 0;
    EXPECT_EQ(refusal(encode(other), 1),
              "frame says " + std::to_string(own) + " payload bytes, 1 came");
  }
}

}  // namespace
}  // namespace gradring
