#include "tools/run/placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <sstream>

#include "proto/byte_order_mark.h"
#include "tools/common/text.h"
#include "tools/run/here.h"

namespace gradring::tools {
namespace {

tl::expected<int, std::string> parse_slots(std::string_view number, std::string_view shown) {
  int slots = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), slots);
  if (error != std::errc() || end != number.data() + number.size() || slots < 1 ||
      slots > kSlotsMax) {
    return tl::unexpected(
        fmt::format("\"{}\": the number of ranks is not 1 to {}", printable(shown), kSlotsMax));
  }
  return slots;
}

std::string_view without_blanks(std::string_view text) {
  const auto begin = std::min(text.find_first_not_of(" \t\n"), text.size());
  return text.substr(begin, text.find_last_not_of(" \t\n") + 1 - begin);
}

tl::expected<Slots, std::string> parse_host(std::string_view text, int default_slots) {
  Slots slots{std::string(text), default_slots};
  const size_t bracket = text.rfind(']');
  const size_t colon = text.rfind(':');
  if (bracket == std::string_view::npos && text.find(':') != colon) {
    return tl::unexpected(
        fmt::format("\"{}\": where does the address end? Put it into brackets, as in [fe80::1]:2",
                    printable(text)));
  }
  if (colon != std::string_view::npos && (bracket == std::string_view::npos || bracket < colon)) {
    const auto count = parse_slots(text.substr(colon + 1), text);
    if (!count) return tl::unexpected(count.error());
    slots = {std::string(text.substr(0, colon)), *count};
  }
  if (slots.host.size() > 2 && slots.host.front() == '[' && slots.host.back() == ']') {
    slots.host = slots.host.substr(1, slots.host.size() - 2);
  }
  // A leading dash would be an option to ssh, which also takes USER@HOST.
  const std::string& host = slots.host;
  if (host.empty() || host.front() == '-' || host.front() == '@' || host.back() == '@' ||
      host.find_first_of(" \t\n'\"\\$`;&|<>()[]") != std::string::npos) {
    return tl::unexpected(fmt::format("\"{}\" is no host name", printable(text)));
  }
  return slots;
}

// One line of a file without its comment; its host may be followed by words of which slots= counts.
tl::expected<Slots, std::string> parse_line(const std::vector<std::string>& words, int slots) {
  auto host = parse_host(words[0], slots);
  for (size_t i = 1; host && i < words.size(); ++i) {
    const std::string_view word = words[i];
    if (word.starts_with("max_slots=") || word.starts_with("max-slots=")) continue;
    if (!word.starts_with("slots=")) {
      return tl::unexpected(
          fmt::format("\"{}\" is not understood; write: HOST slots=N", printable(word)));
    }
    const auto count = parse_slots(word.substr(word.find('=') + 1), word);
    if (!count) return tl::unexpected(count.error());
    host->count = *count;
  }
  return host;
}

// By its other name it would count its ranks anew, and two of them would take one GPU.
bool are_one(const std::string& host, const std::string& other) {
  return host == other || (is_here(host) && is_here(other));
}

void add(const Slots& next, std::vector<Slots>* hosts) {
  const auto known = std::ranges::find_if(
      *hosts, [&](const Slots& host) { return are_one(host.host, next.host); });
  if (known == hosts->end()) {
    hosts->push_back(next);
  } else {
    known->count += next.count;
  }
}

}  // namespace

tl::expected<std::vector<Slots>, std::string> parse_hosts(std::string_view text, int slots) {
  std::vector<Slots> hosts;
  while (true) {
    const size_t comma = text.find(',');
    const auto next = parse_host(without_blanks(text.substr(0, comma)), slots);
    if (!next) return tl::unexpected(next.error());
    add(*next, &hosts);
    if (comma == std::string_view::npos) return hosts;
    text.remove_prefix(comma + 1);
  }
}

tl::expected<std::vector<Slots>, std::string> parse_hostfile(std::string_view text, int slots) {
  std::vector<Slots> hosts;
  std::istringstream lines{std::string(without_byte_order_mark(text))};
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    std::istringstream stream(line.substr(0, line.find('#')));
    const std::vector<std::string> words(std::istream_iterator<std::string>(stream), {});
    if (words.empty()) continue;
    const auto next = parse_line(words, slots);
    if (!next) return tl::unexpected(fmt::format("line {}: {}", number, next.error()));
    add(*next, &hosts);
  }
  if (hosts.empty()) return tl::unexpected(std::string("it names no host"));
  return hosts;
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
    return tl::unexpected(
        fmt::format("-np {} is more than the {} that the hosts have room for; write HOST:N for "
                    "each (in a hostfile: HOST slots=N)",
                    ranks, next));
  }
  return shares;
}

std::string describe_ranks(const Share& share) {
  if (share.count == 1) return fmt::format("rank {}", share.first_rank);
  return fmt::format("ranks {}-{}", share.first_rank, share.first_rank + share.count - 1);
}

}  // namespace gradring::tools
