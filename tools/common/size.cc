#include "tools/common/size.h"

#include <fmt/format.h>

#include <array>
#include <charconv>

namespace gradring::tools {
namespace {

constexpr std::string_view kUnits = "KMGT";  // each 1024 of the one before it

}  // namespace

std::optional<uint64_t> parse_size(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;
  std::string_view unit(end, static_cast<size_t>(text.data() + text.size() - end));
  unsigned shift = 0;
  if (!unit.empty() && unit != "B") {
    const auto lower = [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; };
    const size_t place = kUnits.find(lower(unit[0]));
    if (place == std::string_view::npos) return std::nullopt;
    unit.remove_prefix(1);
    if (!unit.empty() && unit != "B" && unit != "iB") return std::nullopt;
    shift = 10 * static_cast<unsigned>(place + 1);
  }
  if (value > (uint64_t{1} << 63) >> shift) return std::nullopt;
  return value << shift;
}

std::string format_bytes(uint64_t bytes) {
  if (bytes < 1024) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  while (value >= 1023.95 && unit + 1 < kUnits.size()) {  // would be shown as 1024.0
    value /= 1024;
    ++unit;
  }
  return fmt::format("{:.1f} {}iB", value, kUnits[unit]);
}

}  // namespace gradring::tools
