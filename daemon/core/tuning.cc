#include "daemon/core/tuning.h"

#include <algorithm>
#include <bit>
#include <charconv>

namespace gradring::core {
namespace {

constexpr uint64_t kFirstEnd = 1 << 10;
constexpr uint32_t kSliceMax = 1 << 30;  // whoever sends more means something else

// Slices have a boundary that suits every element and vector load, as those of a plan have.
constexpr uint32_t kSliceAlign = 64;

std::optional<uint64_t> bytes_of_text(const std::string& text) {
  uint64_t bytes = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, bytes);
  if (error != std::errc() || bytes > kSliceMax) return std::nullopt;
  const std::string unit(rest, end);
  if (unit == "K") return bytes << 10;
  if (unit == "M") return bytes << 20;
  if (unit.empty()) return bytes;
  return std::nullopt;
}

tl::expected<Choice, std::string> choice_of_text(const std::string& text) {
  if (text == "default") return Choice{};
  if (text == "ring") return Choice{Choice::Way::kRing, 0};
  if (text == "whole") return Choice{Choice::Way::kWhole, 0};
  if (text == "parts") return Choice{Choice::Way::kParts, 0};
  const auto bytes = bytes_of_text(text);
  if (!bytes) {
    return tl::unexpected("\"" + text +
                          "\" is not a way: it must be default, ring, whole, parts, or a size of "
                          "slices such as 128K");
  }
  if (*bytes < kTunedSliceMin || *bytes > kSliceMax || *bytes % kSliceAlign != 0) {
    return tl::unexpected("slices of " + text +
                          " cannot be: they must have at least 4K, at most 1024M, and a multiple "
                          "of 64 bytes");
  }
  return Choice{Choice::Way::kRing, static_cast<uint32_t>(*bytes)};
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  std::string part;
  for (const char c : text + ",") {
    if (c == ',') {
      parts.push_back(std::exchange(part, {}));
    } else if (c != ' ') {
      part += c;
    }
  }
  return parts;
}

}  // namespace

uint32_t size_class_of(uint64_t bytes) {
  if (bytes <= kFirstEnd) return 0;
  const auto doublings = static_cast<uint32_t>(std::bit_width((bytes - 1) / kFirstEnd));
  return std::min(doublings, kSizeClasses - 1);
}

uint64_t size_class_end(uint32_t size_class) { return kFirstEnd << size_class; }

const TunedClass* Tuning::find(uint32_t size_class) const {
  const auto it = std::find_if(classes.begin(), classes.end(), [size_class](const TunedClass& c) {
    return c.size_class == size_class;
  });
  return it == classes.end() ? nullptr : &*it;
}

Choice Tuning::settled(uint32_t size_class) const {
  const TunedClass* const known = find(size_class);
  return known == nullptr ? Choice{} : known->settled;
}

Choice Tuning::choice(const OpKey& key, uint32_t size_class) const {
  const TunedClass* const known = find(size_class);
  if (known == nullptr) return {};
  return known->tried && tries(key) ? *known->tried : known->settled;
}

bool Tuning::searching() const {
  return std::any_of(classes.begin(), classes.end(),
                     [](const TunedClass& c) { return c.tried.has_value(); });
}

void Tuning::set(const TunedClass& entry) {
  std::erase_if(classes, [&](const TunedClass& c) { return c.size_class == entry.size_class; });
  if (entry.settled == Choice{} && !entry.tried) return;
  const auto behind = std::find_if(classes.begin(), classes.end(), [&](const TunedClass& c) {
    return c.size_class > entry.size_class;
  });
  classes.insert(behind, entry);
}

// Neighbouring numbers must not alternate: what trainers submit does so as well.
bool tries(const OpKey& key) {
  uint64_t x = key.space ^ (key.sequence * 0x9e3779b97f4a7c15u);
  x = (x ^ (x >> 31)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return ((x >> 33) & 1) != 0;
}

std::string fault_of(const Tuning& tuning) {
  const TunedClass* before = nullptr;
  for (const TunedClass& entry : tuning.classes) {
    if (entry.size_class >= kSizeClasses) return "the table has a size that does not exist";
    if (before != nullptr && before->size_class >= entry.size_class) {
      return "the sizes of the table do not ascend";
    }
    before = &entry;
    for (const Choice& choice : {entry.settled, entry.tried.value_or(Choice{})}) {
      if (static_cast<uint8_t>(choice.way) > kChoiceWayLast) return "a way that does not exist";
      if (choice.slice_bytes == 0) continue;
      const bool sound = choice.way == Choice::Way::kRing && choice.slice_bytes <= kSliceMax &&
                         choice.slice_bytes >= kSliceAlign && choice.slice_bytes % kSliceAlign == 0;
      if (!sound) return "the table has slices of " + std::to_string(choice.slice_bytes) + " bytes";
    }
  }
  return "";
}

PlanOptions tuned(PlanOptions options, const Tuning& tuning, const OpKey& key,
                  const Signature& signature, uint32_t members) {
  if (signature.collective != Collective::kAllreduce || members < 2) return options;
  const Choice choice = tuning.choice(key, size_class_of(signature.bytes()));
  const uint32_t unit = std::max(options.direct_whole_max, options.direct_part_max);
  switch (choice.way) {
    case Choice::Way::kDefault:
      break;
    case Choice::Way::kRing:
      options.direct_members_max = 0;
      options.slice_bytes_tuned = std::min(choice.slice_bytes, options.slice_bytes_max);
      break;
    case Choice::Way::kWhole:
      options.direct_whole_max = unit;
      break;
    case Choice::Way::kParts:
      options.direct_whole_max = 0;
      options.direct_part_max = unit;
      break;
  }
  return options;
}

tl::expected<Tuning, std::string> parse_tuning(const std::string& text) {
  Tuning tuning;
  if (text.empty() || text == "default") return tuning;
  uint32_t next = 0;  // the first class that nothing is said of
  for (const std::string& part : split(text)) {
    const size_t colon = part.find(':');
    if (colon == std::string::npos) {
      return tl::unexpected("\"" + part + "\" must be SIZE:WAY, such as 64K:parts");
    }
    const std::string size = part.substr(0, colon);
    uint32_t last = kSizeClasses - 1;
    if (size != "rest") {
      const auto bytes = bytes_of_text(size);
      if (!bytes || !std::has_single_bit(*bytes) || *bytes < kFirstEnd ||
          *bytes >= size_class_end(last)) {
        return tl::unexpected(
            "\"" + size + "\" is not a size: it must be a power of two from 1K to 64M, or rest");
      }
      last = size_class_of(*bytes);
    }
    if (last < next) return tl::unexpected("the sizes must ascend, and " + size + " does not");
    const auto choice = choice_of_text(part.substr(colon + 1));
    if (!choice) return tl::unexpected(choice.error());
    for (; next <= last; ++next) tuning.set({next, *choice, {}});
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
    text += (text.empty() ? "" : ",") + (last ? "rest" : text_of_bytes(size_class_end(c))) + ":" +
            to_text(choice);
  }
  return text.empty() ? "default" : text;
}

std::string to_text(const Choice& choice) {
  switch (choice.way) {
    case Choice::Way::kDefault:
      break;
    case Choice::Way::kRing:
      return choice.slice_bytes == 0 ? "ring" : text_of_bytes(choice.slice_bytes);
    case Choice::Way::kWhole:
      return "whole";
    case Choice::Way::kParts:
      return "parts";
  }
  return "default";
}

std::string text_of_bytes(uint64_t bytes) {
  if (bytes >= (1 << 20) && bytes % (1 << 20) == 0) return std::to_string(bytes >> 20) + "M";
  if (bytes >= (1 << 10) && bytes % (1 << 10) == 0) return std::to_string(bytes >> 10) + "K";
  return std::to_string(bytes);
}

}  // namespace gradring::core
