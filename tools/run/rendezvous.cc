#include "tools/run/rendezvous.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <random>

#include "tools/run/here.h"
#include "tools/run/launch.h"

namespace gradring::tools {
namespace {

constexpr const char* kAddress = "MASTER_ADDR";
constexpr const char* kPort = "MASTER_PORT";

// Below those that Linux gives to whoever asks for any (net.ipv4.ip_local_port_range).
constexpr int kFirstPort = 20000;
constexpr int kPorts = 10000;
constexpr int kTries = 100;

int choose_port(bool here) {
  std::random_device random;
  std::uniform_int_distribution<int> any(kFirstPort, kFirstPort + kPorts - 1);
  int port = any(random);
  for (int tries = 1; here && tries < kTries && !port_is_free(port); ++tries) port = any(random);
  return port;
}

std::string said(const std::string& name, const std::vector<std::string>& more) {
  if (const auto value = value_set(name, more)) return *value;
  if (std::getenv("RANK") != nullptr) return "";
  return value_of(name, more);
}

std::vector<std::string> variables(const std::string& address, const std::string& port) {
  return {fmt::format("{}={}", kAddress, address), fmt::format("{}={}", kPort, port)};
}

std::vector<std::string> rendezvous_at(const std::string& host, bool here,
                                       const std::vector<std::string>& more) {
  std::string address = said(kAddress, more);
  std::string port = said(kPort, more);
  if (address.empty()) address = host;
  if (port.empty()) port = std::to_string(choose_port(here));
  return variables(address, port);
}

}  // namespace

std::vector<std::string> rendezvous(const std::vector<Share>& shares,
                                    const std::vector<std::string>& more) {
  const std::string& first = shares.front().host;
  const bool all_here =
      std::ranges::all_of(shares, [](const Share& share) { return is_here(share.host); });
  return rendezvous_at(all_here ? "127.0.0.1" : name_for_others(first), is_here(first), more);
}

std::vector<std::string> rendezvous_to_hand_over(const RunOptions& options) {
  if (options.launcher == Launcher::kSrun)
    return variables(said(kAddress, options.send), said(kPort, options.send));
  const std::string first = options.hosts.empty() ? "" : options.hosts.front().host;
  return rendezvous_at(name_for_others(first), is_here(first), options.send);
}

std::vector<std::string> rendezvous_in_step() {
  const char* nodes = std::getenv("SLURM_STEP_NODELIST");
  const char* job = std::getenv("SLURM_JOB_ID");
  const char* step = std::getenv("SLURM_STEP_ID");
  std::string address = value_of(kAddress, {});
  std::string port = value_of(kPort, {});
  if (address.empty() && nodes != nullptr) address = first_of_nodelist(nodes);
  if (port.empty() && job != nullptr && step != nullptr) {
    // Steps of a job run side by side, and jobs that have followed one another as well.
    const uint64_t number =
        std::strtoull(job, nullptr, 10) + 101 * std::strtoull(step, nullptr, 10);
    port = std::to_string(kFirstPort + number % kPorts);
  }
  if (address.empty() || port.empty()) return {};
  return variables(address, port);
}

std::string first_of_nodelist(std::string_view list) {
  std::string name;
  for (size_t i = 0; i < list.size() && list[i] != ','; ++i) {
    if (list[i] != '[') {
      name += list[i];
      continue;
    }
    const size_t end = std::min(list.find_first_of(",-]", i), list.size());
    name += list.substr(i + 1, end - i - 1);
    i = std::min(list.find(']', end), list.size());
  }
  return name;
}

}  // namespace gradring::tools
