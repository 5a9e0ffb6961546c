#include "daemon/control/sessions/segment_name.h"

#include <fmt/format.h>

#include <charconv>

namespace gradring::daemon {
namespace {

constexpr std::string_view kPrefix = "seg.";

bool parse_all(std::string_view text, int base, uint64_t* value) {
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), *value, base);
  return error == std::errc() && rest == text.data() + text.size();
}

}  // namespace

std::string to_string(const SegmentName& name) {
  return fmt::format("{}{:x}.{}", kPrefix, name.session, name.segment);
}

std::optional<SegmentName> parse_segment_name(std::string_view text) {
  const size_t dot = text.find('.', kPrefix.size());
  if (text.substr(0, kPrefix.size()) != kPrefix || dot == text.npos) return std::nullopt;
  SegmentName name;
  if (!parse_all(text.substr(kPrefix.size(), dot - kPrefix.size()), 16, &name.session) ||
      !parse_all(text.substr(dot + 1), 10, &name.segment) || to_string(name) != text) {
    return std::nullopt;
  }
  return name;
}

}  // namespace gradring::daemon
