// The small languages of the configuration: durations, sizes, addresses.

#include <arpa/inet.h>

#include <charconv>
#include <limits>

#include "daemon/config.h"

namespace gradring::daemon {
namespace {

struct Unit {
  std::string_view suffix;
  uint64_t factor;
};

template <size_t N>
std::optional<uint64_t> parse_with_unit(const std::string& text, const Unit (&units)[N]) {
  uint64_t number = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return std::nullopt;
  const std::string_view suffix(rest, static_cast<size_t>(text.data() + text.size() - rest));
  if (suffix.empty() && number == 0) return 0;
  for (const Unit& unit : units) {
    if (unit.suffix != suffix) continue;
    constexpr uint64_t kMost = std::numeric_limits<int64_t>::max();
    if (number > kMost / unit.factor) return std::nullopt;
    return number * unit.factor;
  }
  return std::nullopt;
}

}  // namespace

std::optional<core::Time> parse_duration(const std::string& text) {
  static constexpr Unit kUnits[] = {{"ms", core::kMillisecond},
                                    {"s", core::kSecond},
                                    {"m", 60 * core::kSecond},
                                    {"h", 3600 * core::kSecond}};
  const auto value = parse_with_unit(text, kUnits);
  if (!value) return std::nullopt;
  return static_cast<core::Time>(*value);
}

std::optional<uint64_t> parse_size(const std::string& text) {
  static constexpr Unit kUnits[] = {{"", 1},
                                    {"K", uint64_t{1} << 10},
                                    {"M", uint64_t{1} << 20},
                                    {"G", uint64_t{1} << 30},
                                    {"T", uint64_t{1} << 40}};
  return parse_with_unit(text, kUnits);
}

std::optional<HostPort> parse_host_port(const std::string& text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0) return std::nullopt;
  HostPort result;
  result.host = text.substr(0, colon);
  if (result.host.front() == '[') {
    if (result.host.size() < 3 || result.host.back() != ']') return std::nullopt;
    result.host = result.host.substr(1, result.host.size() - 2);
  } else if (result.host.find(':') != std::string::npos) {
    return std::nullopt;  // an IPv6 address without brackets: where it ends is a guess
  }
  if (result.host.find_first_of(" \t/;,") != std::string::npos) return std::nullopt;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data() + colon + 1, end, result.port);
  if (error != std::errc() || rest != end || result.port == 0) return std::nullopt;
  return result;
}

std::optional<transport::PortRange> parse_port_range(const std::string& text) {
  transport::PortRange range;
  const char* const end = text.data() + text.size();
  auto parsed = std::from_chars(text.data(), end, range.first);
  if (parsed.ec != std::errc()) return std::nullopt;
  range.last = range.first;
  if (parsed.ptr != end && *parsed.ptr == '-') {
    parsed = std::from_chars(parsed.ptr + 1, end, range.last);
  }
  const bool good =
      parsed.ec == std::errc() && parsed.ptr == end && range.first > 0 && range.first <= range.last;
  return good ? std::optional(range) : std::nullopt;
}

bool is_numeric_address(const std::string& host) {
  in_addr v4{};
  in6_addr v6{};
  return inet_pton(AF_INET, host.c_str(), &v4) == 1 || inet_pton(AF_INET6, host.c_str(), &v6) == 1;
}

bool is_any_address(const std::string& host) {
  in_addr v4{};
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) return v4.s_addr == INADDR_ANY;
  in6_addr v6{};
  return inet_pton(AF_INET6, host.c_str(), &v6) == 1 && IN6_IS_ADDR_UNSPECIFIED(&v6);
}

bool is_loopback(const std::string& host) {
  in_addr v4{};
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
  in6_addr v6{};
  if (inet_pton(AF_INET6, host.c_str(), &v6) == 1) return IN6_IS_ADDR_LOOPBACK(&v6);
  return host == "localhost";
}

}  // namespace gradring::daemon
