#include "daemon/await_network.h"

#include <fmt/format.h>
#include <netdb.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <systemd/sd-daemon.h>

#include <cerrno>
#include <cstdlib>
#include <memory>
#include <vector>

#include "daemon/clock.h"
#include "daemon/fd.h"
#include "daemon/lanes.h"

namespace gradring::daemon {
namespace {

// Less than any distribution's own limit for a start.
constexpr core::Time kPatience = 30 * core::kSecond;
constexpr timespec kBetweenLooks{0, 250'000'000};

// Also false of an IPv6 address that the kernel still asks the network about.
bool has_address(const std::string& host) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_PASSIVE;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), nullptr, &hints, &found) != 0) return true;  // not for us to judge
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> list(found, freeaddrinfo);
  const Fd socket(::socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket) return true;
  return bind(socket.get(), list->ai_addr, list->ai_addrlen) == 0 || errno != EADDRNOTAVAIL;
}

std::string missing_address(const char* option, const std::string& address) {
  const auto parsed = parse_host_port(address);
  if (!parsed || has_address(parsed->host)) return "";
  return fmt::format("{}: no network interface of this machine has the address of {}", option,
                     address);
}

std::string missing_of(const Config& config) {
  if (auto missing = missing_address("listen", config.listen); !missing.empty()) return missing;
  for (const std::string& also : config.listen_also) {
    if (auto missing = missing_address("listen-also", also); !missing.empty()) return missing;
  }
  if (auto missing = missing_address("metrics", config.metrics); !missing.empty()) return missing;
  return missing_device(config);
}

bool told_to_end_within(const timespec& pause) {
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGINT);
  sigaddset(&ends, SIGTERM);
  return sigtimedwait(&ends, nullptr, &pause) > 0;
}

}  // namespace

NetworkWait await_network(const Config& config) {
  NetworkWait wait;
  if (std::getenv("NOTIFY_SOCKET") == nullptr) return wait;
  const core::Time until = monotonic_now() + kPatience;
  std::string said;
  while (!(wait.missing = missing_of(config)).empty() && monotonic_now() < until) {
    if (wait.missing != said) {
      said = wait.missing;
      spdlog::warn("waiting for the network, for {} s at most: {}", kPatience / core::kSecond,
                   said);
      sd_notifyf(0, "STATUS=waiting for the network: %s", said.c_str());
    }
    wait.told_to_end = told_to_end_within(kBetweenLooks);
    if (wait.told_to_end) break;
  }
  return wait;
}

}  // namespace gradring::daemon
