#include "daemon/discovery/peer_source.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>
#include <sstream>
#include <string_view>

#include "daemon/config.h"
#include "daemon/discovery/host_list.h"
#include "proto/byte_order_mark.h"

namespace gradring::daemon {
namespace {

constexpr uint16_t kPort = 7300;  // that of `listen`, where nobody says another

constexpr size_t kFileMax = 4 << 20;

bool takes(std::string_view* text, std::string_view prefix) {
  if (!text->starts_with(prefix)) return false;
  text->remove_prefix(prefix.size());
  return true;
}

// "NAME" or "NAME:PORT"; a numeric IPv6 address needs its brackets.
std::optional<HostPort> with_port(const std::string& text) {
  if (auto both = parse_host_port(text)) return both;
  return parse_host_port(fmt::format("{}:{}", text, kPort));
}

std::string written(const HostPort& address) {
  const bool ipv6 = address.host.find(':') != std::string::npos;
  return fmt::format("{}{}{}:{}", ipv6 ? "[" : "", address.host, ipv6 ? "]" : "", address.port);
}

using Infos = std::unique_ptr<addrinfo, void (*)(addrinfo*)>;

Infos look_up(const std::string& name, int* error) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* first = nullptr;
  *error = getaddrinfo(name.c_str(), nullptr, &hints, &first);
  return {*error == 0 ? first : nullptr, freeaddrinfo};
}

std::string numeric(const addrinfo& one) {
  std::array<char, NI_MAXHOST> host{};
  return getnameinfo(one.ai_addr, one.ai_addrlen, host.data(), host.size(), nullptr, 0,
                     NI_NUMERICHOST) == 0
             ? host.data()
             : "";
}

// Of both where that is not told, or where a daemon listens at all addresses of IPv6, and so of
// IPv4.
int family_of(const Addresses& listens) {
  bool ipv4 = false, ipv6 = false;
  for (const std::string& address : listens) {
    const auto at = parse_host_port(address);
    if (!at) continue;
    const bool is_ipv6 = at->host.find(':') != std::string::npos;
    ipv6 |= is_ipv6;
    ipv4 |= !is_ipv6 || is_any_address(at->host);
  }
  return ipv4 == ipv6 ? AF_UNSPEC : ipv4 ? AF_INET : AF_INET6;
}

bool is_host_name(const std::string& host) {
  std::array<char, 256> own{};
  if (gethostname(own.data(), own.size() - 1) != 0) return false;
  const std::string_view short_own =
      std::string_view(own.data()).substr(0, strcspn(own.data(), "."));
  const size_t length = std::min(host.find('.'), host.size());
  return length == short_own.size() && strncasecmp(host.c_str(), own.data(), length) == 0;
}

bool is_own(const std::string& address, const Addresses& listens) {
  const auto at = parse_host_port(address);
  const bool listens_there =
      std::any_of(listens.begin(), listens.end(), [&at](const std::string& own) {
        const auto here = parse_host_port(own);
        return here && at && here->port == at->port && !is_loopback(here->host);
      });
  if (!listens_there || is_numeric_address(at->host) || !is_host_name(at->host)) return false;
  int error = 0;
  const Infos all = look_up(at->host, &error);
  for (const addrinfo* one = all.get(); one != nullptr; one = one->ai_next) {
    if (!is_loopback(numeric(*one))) return false;
  }
  return all != nullptr;
}

std::string trimmed(const std::string& line) {
  const size_t begin = line.find_first_not_of(" \t\r");
  if (begin == std::string::npos) return "";
  return line.substr(begin, line.find_last_not_of(" \t\r") - begin + 1);
}

}  // namespace

std::optional<PeerSource> parse_peer_source(const std::string& text) {
  using Kind = PeerSource::Kind;
  std::string_view rest = text;
  if (takes(&rest, "file:")) {
    if (rest.empty() || rest.front() != '/') return std::nullopt;
    return PeerSource{Kind::kFile, std::string(rest), 0};
  }
  if (takes(&rest, "dns:")) {
    const auto name = with_port(std::string(rest));
    if (!name) return std::nullopt;
    return PeerSource{Kind::kDns, name->host, name->port};
  }
  if (!takes(&rest, "slurm")) return std::nullopt;
  if (rest.empty()) return PeerSource{Kind::kSlurm, "", kPort};
  const auto name = parse_host_port(text);
  if (!name || name->host != "slurm") return std::nullopt;
  return PeerSource{Kind::kSlurm, "", name->port};
}

AddressesOr addresses_in(const std::string& text) {
  Addresses addresses;
  std::istringstream lines{std::string(without_byte_order_mark(text))};
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    line = trimmed(line.substr(0, line.find('#')));
    if (line.empty()) continue;
    const auto address = with_port(line);
    if (!address || line.find_first_of(" \t") != std::string::npos) {
      return tl::unexpected(
          fmt::format("line {}: '{}' is no address; write HOST or HOST:PORT", number, line));
    }
    addresses.push_back(written(*address));
  }
  return addresses;
}

AddressesOr ask_file(const PeerSource& source, const Addresses& listens) {
  std::ifstream file(source.name);
  std::string text;
  if (file) {
    text.resize(kFileMax + 1);
    file.read(text.data(), static_cast<std::streamsize>(text.size()));
    text.resize(static_cast<size_t>(file.gcount()));
  }
  if (!file.eof()) {
    const char* why = text.size() > kFileMax ? "it is too long" : std::strerror(errno);
    return tl::unexpected(fmt::format("{} cannot be read: {}", source.name, why));
  }
  auto addresses = addresses_in(text);
  if (!addresses) return tl::unexpected(fmt::format("{} {}", source.name, addresses.error()));
  std::erase_if(*addresses, [&](const std::string& address) { return is_own(address, listens); });
  return addresses;
}

AddressesOr ask_dns(const PeerSource& source, const Addresses& listens) {
  int error = 0;
  const Infos all = look_up(source.name, &error);
  if (error != 0) {
    return tl::unexpected(
        fmt::format("the name {} cannot be looked up: {}", source.name, gai_strerror(error)));
  }
  const int family = family_of(listens);
  Addresses addresses, others;
  for (const addrinfo* one = all.get(); one != nullptr; one = one->ai_next) {
    const std::string host = numeric(*one);
    if (host.empty()) continue;
    Addresses& of_it = family == AF_UNSPEC || family == one->ai_family ? addresses : others;
    of_it.push_back(written({host, source.port}));
  }
  return addresses.empty() ? others : addresses;
}

AddressesOr ask_slurm(const PeerSource& source, const Variable& variable) {
  const auto list = variable("SLURM_JOB_NODELIST");
  if (!list) {
    return tl::unexpected<std::string>(
        "there is no SLURM_JOB_NODELIST here: discover = slurm is for a gradringd that srun "
        "starts; name peers otherwise");
  }
  const auto hosts = expand_host_list(*list);
  if (!hosts) return tl::unexpected("SLURM_JOB_NODELIST: " + hosts.error());
  const std::string own = variable("SLURMD_NODENAME").value_or("");
  Addresses addresses;
  for (const std::string& host : *hosts) {
    if (host != own) addresses.push_back(written({host, source.port}));
  }
  return addresses;
}

}  // namespace gradring::daemon
