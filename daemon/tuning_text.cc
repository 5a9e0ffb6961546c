#include "daemon/tuning_text.h"

#include <fmt/format.h>

#include <bit>
#include <optional>
#include <vector>

#include "daemon/config.h"

namespace gradring::daemon {
namespace {

using core::Choice;
using core::kSizeClasses;
using core::Tuning;
using Way = Choice::Way;

// Smaller ones are good for nothing but many messages.
constexpr uint64_t kSliceLeast = 4 << 10;

std::string text_of_bytes(uint64_t bytes) {
  if (bytes >= (1 << 20) && bytes % (1 << 20) == 0) return fmt::format("{}M", bytes >> 20);
  if (bytes >= (1 << 10) && bytes % (1 << 10) == 0) return fmt::format("{}K", bytes >> 10);
  return std::to_string(bytes);
}

tl::expected<Choice, std::string> parse_choice(const std::string& text) {
  for (const Way way : {Way::kDefault, Way::kRing, Way::kWhole, Way::kParts}) {
    if (text == to_text(Choice{way, 0})) return Choice{way, 0};
  }
  const auto bytes = parse_size(text);
  if (!bytes) {
    return tl::unexpected(fmt::format(
        "'{}' is not a way: write default, ring, whole, parts, or a size of slices such as 128K",
        text));
  }
  if (*bytes < kSliceLeast || *bytes > core::kTunedSliceMax ||
      *bytes % core::kTunedSliceAlign != 0) {
    return tl::unexpected(fmt::format(
        "slices of {} cannot be: write at least 4K, at most 1G, and a multiple of {} bytes", text,
        core::kTunedSliceAlign));
  }
  return Choice{Way::kRing, static_cast<uint32_t>(*bytes)};
}

std::optional<uint32_t> parse_size_class(const std::string& text) {
  constexpr uint32_t kLast = kSizeClasses - 1;
  if (text == name_of_size(kLast)) return kLast;
  const auto bytes = parse_size(text);
  if (!bytes || !std::has_single_bit(*bytes)) return std::nullopt;
  const uint32_t size_class = core::size_class_of(*bytes);
  if (size_class == kLast || core::size_class_end(size_class) != *bytes) return std::nullopt;
  return size_class;
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == ',') {
      parts.emplace_back();
    } else if (c != ' ') {
      parts.back() += c;
    }
  }
  return parts;
}

}  // namespace

tl::expected<Tuning, std::string> parse_tuning(const std::string& text) {
  Tuning tuning;
  if (text == "default") return tuning;
  uint32_t next = 0;  // the first class that nothing is said of
  for (const std::string& part : split(text)) {
    const size_t colon = part.find(':');
    if (colon == std::string::npos) {
      return tl::unexpected(fmt::format("'{}' must be SIZE:WAY, such as 64K:parts", part));
    }
    const std::string size = part.substr(0, colon);
    const auto last = parse_size_class(size);
    if (!last) {
      return tl::unexpected(
          fmt::format("'{}' is not a size: write a power of two from 1K to 64M, or rest", size));
    }
    if (*last < next) {
      return tl::unexpected(fmt::format("the sizes must ascend, and {} does not", size));
    }
    const auto choice = parse_choice(part.substr(colon + 1));
    if (!choice) return tl::unexpected(choice.error());
    for (; next <= *last; ++next) tuning.set({next, *choice, {}});
  }
  return tuning;
}

std::string to_text(const Tuning& tuning) {
  std::string text;
  for (uint32_t c = 0; c < kSizeClasses; ++c) {
    const Choice choice = tuning.settled(c);
    const bool last = c + 1 == kSizeClasses;
    if (!last && tuning.settled(c + 1) == choice) continue;
    if (last && choice == Choice{}) continue;
    text += fmt::format("{}{}:{}", text.empty() ? "" : ",", name_of_size(c), to_text(choice));
  }
  return text.empty() ? "default" : text;
}

std::string to_text(const Choice& choice) {
  switch (choice.way) {
    case Way::kDefault:
      break;
    case Way::kRing:
      return choice.slice_bytes == 0 ? "ring" : text_of_bytes(choice.slice_bytes);
    case Way::kWhole:
      return "whole";
    case Way::kParts:
      return "parts";
  }
  return "default";
}

std::string name_of_size(uint32_t size_class) {
  if (size_class + 1 == kSizeClasses) return "rest";
  return text_of_bytes(core::size_class_end(size_class));
}

}  // namespace gradring::daemon
