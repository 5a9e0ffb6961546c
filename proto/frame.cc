#include "proto/frame.h"

#include <bit>
#include <cstring>

namespace gradring {
namespace {

static_assert(std::endian::native == std::endian::little,
              "the frame is little endian and is written by memcpy");

constexpr std::array<char, 4> kFrameMagic = {'G', 'R', 'D', 'F'};
constexpr size_t kBodyOffset = 56;

class Writer {
 public:
  explicit Writer(FrameBytes& bytes) : bytes_(bytes) {}
  template <typename T>
  void put(T value) {
    std::memcpy(bytes_.data() + at_, &value, sizeof value);
    at_ += sizeof value;
  }
  void put(const DoneBody& done) {
    put(done.upto);
    put(done.beyond);
  }
  void put(const Signature& s) {
    put(static_cast<uint8_t>(s.collective));
    put(static_cast<uint8_t>(s.dtype));
    put(static_cast<uint8_t>(s.op));
    put(static_cast<uint8_t>(s.wire));
    put(s.root);
    put(s.count);
    put(s.ranks);
    put(s.postscale);
    put(s.blocks.digest());
  }

 private:
  FrameBytes& bytes_;
  size_t at_ = 0;
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}
  template <typename T>
  T get() {
    T value;
    std::memcpy(&value, bytes_.data() + at_, sizeof value);
    at_ += sizeof value;
    return value;
  }
  // False when a byte is outside its enumeration or the size would overflow.
  bool get(Signature& s) {
    const auto collective = get<uint8_t>();
    const auto dtype = get<uint8_t>();
    const auto op = get<uint8_t>();
    const auto wire = get<uint8_t>();
    s.root = get<uint32_t>();
    s.count = get<uint64_t>();
    s.ranks = get<uint32_t>();
    s.postscale = get<double>();
    s.blocks = Blocks::told(get<uint64_t>());
    s.collective = static_cast<Collective>(collective);
    s.dtype = static_cast<Dtype>(dtype);
    s.op = static_cast<ReduceOp>(op);
    s.wire = static_cast<WireType>(wire);
    return collective >= 1 && collective <= kCollectiveLast && dtype >= 1 && dtype <= kDtypeLast &&
           op <= kReduceOpLast && wire <= kWireTypeLast && is_sane(s);
  }
  bool get(Phase& phase) {
    const auto value = get<uint8_t>();
    phase = static_cast<Phase>(value);
    return value >= 1 && value <= kPhaseLast;
  }
  void get(DoneBody& done) {
    done.upto = get<uint64_t>();
    done.beyond = get<uint64_t>();
  }

 private:
  std::span<const std::byte> bytes_;
  size_t at_ = 0;
};

void write_body(Writer& w, const Frame& f) {
  switch (f.type) {
    case FrameType::kReady:
      w.put(f.ready.rank);
      w.put(f.ready.contributions);
      w.put(f.ready.signature);
      w.put(static_cast<uint8_t>(f.ready.grows));
      w.put(static_cast<uint8_t>(f.ready.eager));
      w.put(f.ready.length);
      w.put(f.ready.serial);
      w.put(f.ready.done);
      w.put(static_cast<uint8_t>(f.ready.rises));
      w.put(f.ready.late_us);
      w.put(f.ready.waited_ms);
      break;
    case FrameType::kSlice:
      w.put(f.slice.slice);
      w.put(static_cast<uint8_t>(f.slice.phase));
      w.put(f.slice.lane);
      w.put(f.slice.hop);
      w.put(f.slice.ranks);
      w.put(f.slice.length);
      w.put(f.slice.value_epoch);
      w.put(f.slice.serial);
      w.put(f.slice.crc32c);
      w.put(static_cast<uint8_t>(f.slice.checked));
      w.put(f.slice.attempt);
      break;
    case FrameType::kCredit:
      w.put(f.credit.lane);
      w.put(f.credit.freed_total);
      w.put(f.credit.confirmed_total);
      break;
    case FrameType::kStable:
      w.put(f.stable.first);
      w.put(static_cast<uint8_t>(f.stable.kind));
      for (int i = 0; i < 3; ++i) w.put(uint8_t{0});
      for (const uint64_t word : f.stable.bits) w.put(word);
      break;
    case FrameType::kMismatch:
      w.put(f.mismatch.rank_a);
      w.put(f.mismatch.rank_b);
      w.put(f.mismatch.a);
      w.put(f.mismatch.b);
      break;
    case FrameType::kNack:
      w.put(f.nack.slice);
      w.put(static_cast<uint8_t>(f.nack.phase));
      w.put(f.nack.lane);
      w.put(f.nack.hop);
      w.put(f.nack.serial);
      w.put(f.nack.attempt);
      break;
    case FrameType::kHeartbeat:
      w.put(f.heartbeat.sequence);
      w.put(f.heartbeat.progress);
      break;
    case FrameType::kDigest:
      w.put(f.digest.crc32c);
      break;
    case FrameType::kDone:
      w.put(f.done);
      break;
    case FrameType::kAllReady:
      w.put(f.all_ready.contributions);
      w.put(static_cast<uint8_t>(f.all_ready.grows));
      w.put(static_cast<uint8_t>(f.all_ready.rises));
      w.put(f.all_ready.late_us);
      break;
    case FrameType::kWanted:
      w.put(f.wanted.rank);
      w.put(f.wanted.waited);
      w.put(f.wanted.signature);
      break;
    case FrameType::kProbe:
      w.put(static_cast<uint8_t>(f.probe.kind));
      w.put(static_cast<uint8_t>(f.probe.refusal));
      w.put(static_cast<uint8_t>(f.probe.forced));
      w.put(uint8_t{0});
      w.put(f.probe.length);
      w.put(f.probe.probe);
      w.put(f.probe.count);
      w.put(f.probe.at);
      w.put(f.probe.jobs_bytes);
      break;
  }
}

bool read_body(Reader& r, Frame& f) {
  switch (f.type) {
    case FrameType::kReady: {
      f.ready.rank = r.get<uint32_t>();
      f.ready.contributions = r.get<uint32_t>();
      const bool good = r.get(f.ready.signature);
      const auto grows = r.get<uint8_t>();
      f.ready.grows = grows == 1;
      const auto eager = r.get<uint8_t>();
      f.ready.eager = eager == 1;
      f.ready.length = r.get<uint32_t>();
      f.ready.serial = r.get<uint64_t>();
      r.get(f.ready.done);
      const auto rises = r.get<uint8_t>();
      f.ready.rises = rises == 1;
      f.ready.late_us = r.get<uint32_t>();
      f.ready.waited_ms = r.get<uint32_t>();
      const bool numbered = f.ready.eager ? f.ready.serial > 0 : f.ready.length == 0;
      const bool flags = grows <= 1 && eager <= 1 && rises <= 1;
      return good && flags && numbered && f.ready.contributions > 0;
    }
    case FrameType::kSlice: {
      f.slice.slice = r.get<uint32_t>();
      const bool good = r.get(f.slice.phase);
      f.slice.lane = r.get<uint8_t>();
      f.slice.hop = r.get<uint16_t>();
      f.slice.ranks = r.get<uint32_t>();
      f.slice.length = r.get<uint32_t>();
      f.slice.value_epoch = r.get<uint64_t>();
      f.slice.serial = r.get<uint64_t>();
      f.slice.crc32c = r.get<uint32_t>();
      const auto checked = r.get<uint8_t>();
      f.slice.checked = checked == 1;
      f.slice.attempt = r.get<uint8_t>();
      return good && checked <= 1;
    }
    case FrameType::kCredit:
      f.credit.lane = r.get<uint8_t>();
      f.credit.freed_total = r.get<uint64_t>();
      f.credit.confirmed_total = r.get<uint64_t>();
      return true;
    case FrameType::kStable: {
      f.stable.first = r.get<uint32_t>();
      const auto kind = r.get<uint8_t>();
      f.stable.kind = static_cast<StableKind>(kind);
      for (int i = 0; i < 3; ++i) r.get<uint8_t>();
      for (uint64_t& word : f.stable.bits) word = r.get<uint64_t>();
      return kind == 1 || kind == 2;
    }
    case FrameType::kMismatch:
      f.mismatch.rank_a = r.get<uint32_t>();
      f.mismatch.rank_b = r.get<uint32_t>();
      return r.get(f.mismatch.a) && r.get(f.mismatch.b);
    case FrameType::kNack: {
      f.nack.slice = r.get<uint32_t>();
      const bool good = r.get(f.nack.phase);
      f.nack.lane = r.get<uint8_t>();
      f.nack.hop = r.get<uint16_t>();
      f.nack.serial = r.get<uint64_t>();
      f.nack.attempt = r.get<uint8_t>();
      return good;
    }
    case FrameType::kHeartbeat:
      f.heartbeat.sequence = r.get<uint64_t>();
      f.heartbeat.progress = r.get<uint64_t>();
      return true;
    case FrameType::kDigest:
      f.digest.crc32c = r.get<uint32_t>();
      return true;
    case FrameType::kDone:
      r.get(f.done);
      return true;
    case FrameType::kAllReady: {
      f.all_ready.contributions = r.get<uint32_t>();
      const auto grows = r.get<uint8_t>();
      f.all_ready.grows = grows == 1;
      const auto rises = r.get<uint8_t>();
      f.all_ready.rises = rises == 1;
      f.all_ready.late_us = r.get<uint32_t>();
      return grows <= 1 && rises <= 1 && f.all_ready.contributions > 0;
    }
    case FrameType::kWanted:
      f.wanted.rank = r.get<uint32_t>();
      f.wanted.waited = r.get<uint64_t>();
      return r.get(f.wanted.signature);
    case FrameType::kProbe: {
      const auto kind = r.get<uint8_t>();
      f.probe.kind = static_cast<ProbeKind>(kind);
      const auto refusal = r.get<uint8_t>();
      f.probe.refusal = static_cast<ProbeRefusal>(refusal);
      const auto forced = r.get<uint8_t>();
      f.probe.forced = forced == 1;
      r.get<uint8_t>();
      f.probe.length = r.get<uint32_t>();
      f.probe.probe = r.get<uint64_t>();
      f.probe.count = r.get<uint64_t>();
      f.probe.at = r.get<uint64_t>();
      f.probe.jobs_bytes = r.get<uint64_t>();
      const bool refused = f.probe.kind == ProbeKind::kRefused;
      return kind >= 1 && kind <= kProbeKindLast && refusal <= kProbeRefusalLast && forced <= 1 &&
             refused == (f.probe.refusal != ProbeRefusal::kNone) &&
             f.probe.length <= (f.probe.kind == ProbeKind::kData ? kProbeBytesMax : 0);
    }
  }
  return false;
}

}  // namespace

bool is_direct(const Frame& frame) {
  if (frame.type == FrameType::kSlice) return frame.slice.phase >= Phase::kDirect;
  return frame.type == FrameType::kReady && frame.ready.length > 0;
}

uint32_t payload_of(const Frame& frame) {
  if (frame.type == FrameType::kSlice) return frame.slice.length;
  if (frame.type == FrameType::kProbe) return frame.probe.length;
  return frame.type == FrameType::kReady ? frame.ready.length : 0;
}

FrameBytes encode(const Frame& frame) {
  FrameBytes bytes{};
  Writer w(bytes);
  w.put(kFrameMagic);
  w.put(kFrameVersion);
  w.put(static_cast<uint8_t>(frame.type));
  w.put(uint16_t{0});
  w.put(frame.token);
  w.put(frame.job);
  w.put(frame.epoch);
  w.put(frame.key.space);
  w.put(frame.key.sequence);
  write_body(w, frame);
  return bytes;
}

tl::expected<Frame, std::string> decode(std::span<const std::byte> header, size_t payload_bytes) {
  if (header.size() != kFrameBytes) {
    return tl::unexpected("a frame header has " + std::to_string(kFrameBytes) + " bytes, got " +
                          std::to_string(header.size()));
  }
  Reader r(header);
  if (r.get<std::array<char, 4>>() != kFrameMagic)
    return tl::unexpected<std::string>("not a gradring frame");
  const auto version = r.get<uint8_t>();
  if (version != kFrameVersion) {
    return tl::unexpected("frame version " + std::to_string(version) + ", this daemon speaks " +
                          std::to_string(kFrameVersion));
  }
  const auto type = r.get<uint8_t>();
  if (type < 1 || type > kFrameTypeLast) {
    return tl::unexpected("unknown frame type " + std::to_string(type));
  }
  r.get<uint16_t>();
  Frame frame;
  frame.type = static_cast<FrameType>(type);
  frame.token = r.get<uint64_t>();
  frame.job = r.get<JobId>();
  frame.epoch = r.get<uint64_t>();
  frame.key.space = r.get<uint64_t>();
  frame.key.sequence = r.get<uint64_t>();
  static_assert(kBodyOffset == 4 + 1 + 1 + 2 + 8 + 16 + 8 + 16);
  if (!read_body(r, frame)) {
    return tl::unexpected("frame type " + std::to_string(type) + " has a value outside its range");
  }
  const size_t expected = payload_of(frame);
  if (payload_bytes != expected) {
    return tl::unexpected("frame says " + std::to_string(expected) + " payload bytes, " +
                          std::to_string(payload_bytes) + " came");
  }
  return frame;
}

}  // namespace gradring
