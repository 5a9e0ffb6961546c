#include "tools/run/placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "tools/common/text.h"

namespace gradring::tools {
namespace {

constexpr int kSlotsMax = 4096;  // a host with more is a slip of the pen

tl::expected<Slots, std::string> parse_host(std::string_view text) {
  Slots slots{std::string(text), 1};
  const size_t bracket = text.rfind(']');
  const size_t colon = text.rfind(':');
  if (colon != std::string_view::npos && (bracket == std::string_view::npos || bracket < colon)) {
    const std::string_view number = text.substr(colon + 1);
    const auto [end, error] =
        std::from_chars(number.data(), number.data() + number.size(), slots.count);
    if (error != std::errc() || end != number.data() + number.size() || slots.count < 1 ||
        slots.count > kSlotsMax) {
      return tl::unexpected(
          fmt::format("\"{}\": the number of ranks behind the colon is not 1 to {}",
                      printable(text), kSlotsMax));
    }
    slots.host = text.substr(0, colon);
  }
  if (slots.host.size() > 2 && slots.host.front() == '[' && slots.host.back() == ']') {
    slots.host = slots.host.substr(1, slots.host.size() - 2);
  }
  // A leading dash would be an option to ssh.
  if (slots.host.empty() || slots.host[0] == '-' ||
      slots.host.find_first_of(" \t\n'\"\\$`;&|<>()[]") != std::string::npos) {
    return tl::unexpected(fmt::format("\"{}\" is no host name", printable(text)));
  }
  return slots;
}

}  // namespace

tl::expected<std::vector<Slots>, std::string> parse_hosts(std::string_view text) {
  std::vector<Slots> hosts;
  while (true) {
    const size_t comma = text.find(',');
    const auto next = parse_host(text.substr(0, comma));
    if (!next) return tl::unexpected(next.error());
    const auto known = std::ranges::find(hosts, next->host, &Slots::host);
    if (known == hosts.end()) {
      hosts.push_back(*next);
    } else {
      known->count += next->count;
    }
    if (comma == std::string_view::npos) return hosts;
    text.remove_prefix(comma + 1);
  }
}

tl::expected<std::vector<Share>, std::string> place(int ranks, const std::vector<Slots>& hosts) {
  if (hosts.empty()) return std::vector<Share>{{"", 0, ranks}};
  std::vector<Share> shares;
  int next = 0;
  for (const Slots& host : hosts) {
    const int count = std::min(host.count, ranks - next);
    if (count > 0) shares.push_back({host.host, next, count});
    next += count;
  }
  if (next < ranks) {
    return tl::unexpected(fmt::format(
        "-np {} is more than the {} that -H has room for; write host:ranks for each host", ranks,
        next));
  }
  return shares;
}

std::string describe_ranks(const Share& share) {
  if (share.count == 1) return fmt::format("rank {}", share.first_rank);
  return fmt::format("ranks {}-{}", share.first_rank, share.first_rank + share.count - 1);
}

}  // namespace gradring::tools
