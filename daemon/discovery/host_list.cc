#include "daemon/discovery/host_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

namespace gradring::daemon {
namespace {

using Hosts = std::vector<std::string>;

constexpr size_t kHostsMax = 65536;
constexpr size_t kDigitsMax = 9;

std::optional<uint32_t> number_of(std::string_view text) {
  uint32_t value = 0;
  if (text.empty() || text.size() > kDigitsMax) return std::nullopt;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || rest != text.data() + text.size()) return std::nullopt;
  return value;
}

// Cuts at the commas that are in no bracket.
std::vector<std::string_view> items_of(std::string_view text) {
  std::vector<std::string_view> items;
  size_t begin = 0;
  int depth = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    if (i == text.size() || (text[i] == ',' && depth <= 0)) {
      items.push_back(text.substr(begin, i - begin));
      begin = i + 1;
    } else if (text[i] == '[') {
      ++depth;
    } else if (text[i] == ']') {
      --depth;
    }
  }
  return items;
}

// "01-03,07", which is what stands in a bracket; the first number's width is that of all.
bool add_numbers(std::string_view text, Hosts* to) {
  for (const std::string_view range : items_of(text)) {
    const size_t dash = range.find('-');
    const std::string_view from = range.substr(0, dash);
    const auto first = number_of(from);
    const auto last = dash == range.npos ? first : number_of(range.substr(dash + 1));
    if (!first || !last || *last < *first || *last - *first >= kHostsMax - to->size()) return false;
    for (uint32_t number = *first; number <= *last; ++number) {
      to->push_back(fmt::format("{:0{}}", number, from.size()));
    }
  }
  return true;
}

bool is_name(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-' || c == '.' || c == '_';
  });
}

// One item: names and brackets by turns.
bool add_item(std::string_view item, Hosts* to) {
  Hosts names = {""};
  while (!item.empty()) {
    Hosts parts;
    if (item.front() == '[') {
      const size_t end = item.find(']');
      if (end == item.npos || !add_numbers(item.substr(1, end - 1), &parts)) return false;
      item.remove_prefix(end + 1);
    } else {
      const std::string_view name = item.substr(0, item.find('['));
      if (!is_name(name)) return false;
      parts.emplace_back(name);
      item.remove_prefix(name.size());
    }
    if (names.size() * parts.size() > kHostsMax) return false;
    Hosts longer;
    for (const std::string& name : names) {
      for (const std::string& part : parts) longer.push_back(name + part);
    }
    names = std::move(longer);
  }
  if (names.front().empty() || to->size() + names.size() > kHostsMax) return false;
  to->insert(to->end(), names.begin(), names.end());
  return true;
}

}  // namespace

tl::expected<Hosts, std::string> expand_host_list(const std::string& text) {
  Hosts hosts;
  for (const std::string_view item : items_of(text)) {
    if (!add_item(item, &hosts)) {
      return tl::unexpected(
          fmt::format("'{}' is no list of hosts such as gpu[01-03,07],login", item));
    }
  }
  return hosts;
}

}  // namespace gradring::daemon
