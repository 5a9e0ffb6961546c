#include "proto/bundle.h"

#include <algorithm>
#include <cstring>

namespace gradring {
namespace {

constexpr std::array<char, 4> kBundleMagic = {'G', 'R', 'D', 'B'};
constexpr size_t kVersionAt = 4, kCountAt = 5, kTokenAt = 8, kLengthsAt = 16;
constexpr size_t kSealBytes = 4;
static_assert(kLengthsAt + kBundleFramesMax * sizeof(uint16_t) + kSealBytes == kFrameBytes);

}  // namespace

bool is_bundle(std::span<const std::byte> header) {
  return header.size() == kFrameBytes &&
         std::memcmp(header.data(), kBundleMagic.data(), kBundleMagic.size()) == 0;
}

FrameBytes encode(const Bundle& bundle) {
  FrameBytes bytes{};
  std::memcpy(bytes.data(), kBundleMagic.data(), kBundleMagic.size());
  bytes[kVersionAt] = std::byte{kFrameVersion};
  bytes[kCountAt] = std::byte{bundle.count};
  std::memcpy(bytes.data() + kTokenAt, &bundle.token, sizeof bundle.token);
  std::memcpy(bytes.data() + kLengthsAt, bundle.lengths.data(), sizeof bundle.lengths);
  return bytes;
}

tl::expected<Bundle, std::string> decode_bundle(std::span<const std::byte> header) {
  if (!is_bundle(header)) return tl::unexpected<std::string>("not a bundle of gradring frames");
  const auto version = std::to_integer<uint8_t>(header[kVersionAt]);
  if (version != kFrameVersion) {
    return tl::unexpected("a bundle of frame version " + std::to_string(version) +
                          ", this daemon speaks " + std::to_string(kFrameVersion));
  }
  const auto count = std::to_integer<uint8_t>(header[kCountAt]);
  if (count < 2 || count > kBundleFramesMax) {
    return tl::unexpected("a bundle of " + std::to_string(count) + " frames; 2 to " +
                          std::to_string(kBundleFramesMax) + " go together");
  }
  Bundle bundle;
  std::memcpy(&bundle.token, header.data() + kTokenAt, sizeof bundle.token);
  std::array<uint16_t, kBundleFramesMax> lengths{};
  std::memcpy(lengths.data(), header.data() + kLengthsAt, sizeof lengths);
  for (size_t i = 0; i < count; ++i) {
    if (!bundle.has_room_for(lengths[i], kBundleBytesMax)) {
      return tl::unexpected("a bundle of more than " + std::to_string(kBundleBytesMax) + " bytes");
    }
    bundle.add(lengths[i]);
  }
  if (std::any_of(lengths.begin() + count, lengths.end(),
                  [](uint16_t rest) { return rest != 0; })) {
    return tl::unexpected<std::string>("a bundle with lengths of frames that are not in it");
  }
  return bundle;
}

std::optional<BundleReader::Part> BundleReader::next() {
  if (read_ == bundle_.count) return std::nullopt;
  const size_t payload = bundle_.lengths[read_++];
  const Part part{rest_.first(kFrameBytes), rest_.subspan(kFrameBytes, payload)};
  rest_ = rest_.subspan(kFrameBytes + payload);
  return part;
}

}  // namespace gradring
