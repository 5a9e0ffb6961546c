// The header in front of a slice, as any host that reaches the data port may send it.
#include <algorithm>
#include <span>

#include "proto/frame.h"
#include "tests/fuzz/fuzz.h"

namespace {

using namespace gradring;
using fuzz::require;

std::vector<std::string> make_samples() {
  std::vector<std::string> samples;
  for (uint8_t type = 1; type <= kFrameTypeLast; ++type) {
    Frame frame;
    frame.type = static_cast<FrameType>(type);
    frame.ready.contributions = 1;
    frame.all_ready.contributions = 1;
    frame.slice.length = 4096;
    frame.ready.eager = type % 2 == 1;
    frame.ready.length = frame.ready.eager ? 4096 : 0;
    frame.ready.serial = 1;
    frame.probe.kind = ProbeKind::kData;
    frame.probe.length = 4096;
    const FrameBytes bytes = encode(frame);
    samples.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  return samples;
}

void check(std::span<const std::byte> header, size_t payload_bytes) {
  const auto frame = decode(header, payload_bytes);
  if (!frame) {
    require(!frame.error().empty(), "a refusal says why");
    return;
  }
  require(header.size() == kFrameBytes, "only a whole header is accepted");
  require(payload_bytes == payload_of(*frame), "only the announced payload is accepted");

  const FrameBytes bytes = encode(*frame);
  require(std::equal(bytes.begin(), bytes.begin() + 6, header.begin()) &&
              std::equal(bytes.begin() + 8, bytes.begin() + 56, header.begin() + 8),
          "what stands in front of the body is written as it was read");
  const auto again = decode(bytes, payload_bytes);
  require(again.has_value() && encode(*again) == bytes, "what is accepted survives the trip");

  for (const Signature& s :
       {frame->ready.signature, frame->mismatch.a, frame->mismatch.b, frame->wanted.signature}) {
    require(!describe(s).empty() && size_of(s.dtype) != 0,
            "an accepted signature can be described");
    require(s.count == 0 || s.bytes() / s.count == size_of(s.dtype), "its bytes do not overflow");
  }
}

}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t size_max,
                                          unsigned seed) {
  static const auto kSamples = make_samples();
  return fuzz::mutate(kSamples, data, size, size_max, seed);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto input = std::as_bytes(std::span(data, size));
  check(input, 0);
  check(input, 4096);
  if (size <= kFrameBytes) return 0;
  check(input.first(kFrameBytes), size - kFrameBytes);
  return 0;
}
