// The header in front of several frames, as any host that reaches the data port may send it.
#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "proto/bundle.h"
#include "tests/fuzz/fuzz.h"

namespace {

using namespace gradring;
using fuzz::require;

std::vector<std::string> make_samples() {
  std::vector<std::string> samples;
  for (const size_t frames : {size_t{2}, size_t{3}, kBundleFramesMax}) {
    Bundle bundle;
    for (size_t i = 0; i < frames; ++i) bundle.add(i % 2 == 0 ? 0 : 32);
    const FrameBytes header = encode(bundle);
    std::string sample(reinterpret_cast<const char*>(header.data()), header.size());
    sample.append(bundle.bytes, 'x');
    samples.push_back(std::move(sample));
  }
  return samples;
}

}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t size_max,
                                          unsigned seed) {
  static const auto kSamples = make_samples();
  return fuzz::mutate(kSamples, data, size, size_max, seed);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto input = std::as_bytes(std::span(data, size));
  const auto header = input.first(std::min(size, kFrameBytes));
  const auto bundle = decode_bundle(header);
  if (!bundle) {
    require(!bundle.error().empty(), "a refusal says why");
    return 0;
  }
  require(header.size() == kFrameBytes, "only a whole header is accepted");
  require(bundle->count >= 2 && bundle->count <= kBundleFramesMax, "it has some frames");
  require(bundle->bytes <= kBundleBytesMax, "its length is bounded");
  FrameBytes again = encode(*bundle);
  require(std::memcmp(again.data(), header.data(), 6) == 0 &&
              std::memcmp(again.data() + 8, header.data() + 8, kFrameBytes - 12) == 0,
          "what is accepted is written as it was read");

  // As many bytes as it says, and not one behind them: the sanitizer sees to that.
  std::vector<std::byte> payload(bundle->bytes);
  const auto came = input.subspan(kFrameBytes);
  std::memcpy(payload.data(), came.data(), std::min(came.size(), payload.size()));
  BundleReader reader(*bundle, payload);
  size_t frames = 0, bytes = 0;
  while (const auto part = reader.next()) {
    require(part->header.size() == kFrameBytes, "each frame has a whole header");
    (void)decode(part->header, part->payload.size());
    bytes += part->header.size() + part->payload.size();
    if (!part->payload.empty()) {
      require(&part->payload.back() < payload.data() + payload.size(), "no frame ends outside");
    }
    ++frames;
  }
  require(frames == bundle->count && bytes == bundle->bytes, "all of it is read, once");
  return 0;
}
