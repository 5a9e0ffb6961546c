#include <arpa/inet.h>
#include <fmt/format.h>
#include <grp.h>
#include <pwd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "daemon/config.h"
#include "daemon/fd.h"
#include "daemon/keys.h"
#include "proto/flight.h"

namespace gradring::daemon {
namespace {

// The same text for the spellings of an address.
std::string normal(const std::string& address) {
  const auto parsed = parse_host_port(address);
  if (!parsed) return address;
  std::string host = parsed->host == "localhost" ? "127.0.0.1" : parsed->host;
  in6_addr numeric{};
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (inet_pton(AF_INET6, host.c_str(), &numeric) == 1 &&
      inet_ntop(AF_INET6, &numeric, text.data(), text.size()) != nullptr) {
    host = text.data();
  }
  return fmt::format("{}:{}", host, parsed->port);
}

std::string fault_of_node(const Config& config) {
  const bool printable = std::all_of(config.node.begin(), config.node.end(),
                                     [](unsigned char c) { return c > 0x20 && c < 0x7f; });
  constexpr size_t kNodeLength = 127;  // fits gradring_result::blamed_node
  if (!printable || config.node.size() > kNodeLength) {
    return fmt::format("node: '{}' is not good: write up to {} characters of ASCII without blanks",
                       config.node, kNodeLength);
  }
  return "";
}

std::string fault_of_runtime_dir(const Config& config) {
  if (config.runtime_dir.front() != '/') {
    return fmt::format("runtime-dir: '{}' is not good: write an absolute path", config.runtime_dir);
  }
  constexpr size_t kPathLength = sizeof(sockaddr_un::sun_path) - 1;
  const std::string longest = config.runtime_dir + "/control.sock";
  if (longest.size() > kPathLength) {
    return fmt::format(
        "runtime-dir: {} has {} characters, a socket's path may have {}; choose a "
        "shorter directory",
        longest, longest.size(), kPathLength);
  }
  return "";
}

// More cards than a host has; each has a connection to each peer.
constexpr size_t kLanesMax = 16;

std::string fault_of_addresses(const Config& config) {
  const auto listen = parse_host_port(config.listen);
  if (!listen || !is_numeric_address(listen->host)) {
    return fmt::format(
        "listen: '{}' is not good: write a numeric address and a port, such as "
        "10.0.0.1:7300",
        config.listen);
  }
  for (const std::string& also : config.listen_also) {
    const auto parsed = parse_host_port(also);
    if (!parsed || !is_numeric_address(parsed->host) || is_any_address(parsed->host)) {
      return fmt::format(
          "listen-also: '{}' is not good: write the numeric address of one network and a port, "
          "such as 10.1.0.1:7300",
          also);
    }
    const auto is_same = [&also](const std::string& one) { return normal(one) == normal(also); };
    if (is_same(config.listen) ||
        std::count_if(config.listen_also.begin(), config.listen_also.end(), is_same) > 1) {
      return fmt::format("listen-also: {} is given twice; name each address once", also);
    }
  }
  if (config.data_ports) {
    std::vector<std::pair<const char*, std::string>> others = {{"listen", config.listen},
                                                               {"metrics", config.metrics}};
    for (const std::string& also : config.listen_also) others.emplace_back("listen-also", also);
    for (const auto& [name, address] : others) {
      const auto parsed = parse_host_port(address);
      if (!parsed || !config.data_ports.has(parsed->port)) continue;
      return fmt::format("data-ports: {} to {} has port {}, which is that of {}; choose others",
                         config.data_ports.first, config.data_ports.last, parsed->port, name);
    }
  }
  if (config.peers.size() > kPeersMax) {
    return fmt::format("peer: {} are given; a daemon can have {}", config.peers.size(), kPeersMax);
  }
  std::vector<std::string> seen;
  for (const std::string& peer : config.peers) {
    const auto parsed = parse_host_port(peer);
    if (!parsed) {
      return fmt::format(
          "peer: '{}' is not good: write HOST:PORT{}", peer,
          peer.find_first_of(", ") == std::string::npos ? "" : ", and say peer once for each");
    }
    if (normal(peer) == normal(config.listen)) {
      return fmt::format("peer: {} is this daemon's own listen address; name only the others",
                         peer);
    }
    if (std::find(seen.begin(), seen.end(), normal(peer)) != seen.end()) {
      return fmt::format("peer: {} is given twice; name each peer once", peer);
    }
    if (is_loopback(listen->host) && !is_loopback(parsed->host)) {
      return fmt::format(
          "listen: peer {} cannot reach {}, which is this machine alone; listen on an "
          "address of the network that the peers are on",
          peer, config.listen);
    }
    seen.push_back(normal(peer));
  }
  if (config.peers.size() > config.control_links && !config.discover.empty()) {
    return fmt::format(
        "discover: peers that come and go do not go together with {} peers and control-links = "
        "{}; "
        "raise control-links, or find them all by discover",
        config.peers.size(), config.control_links);
  }
  if (config.peers.size() > config.control_links && config.allowed_keys_file.empty() &&
      is_any_address(listen->host)) {
    return fmt::format(
        "listen: {} is no address that peers know this node by, and with {} peers and "
        "control-links = {} they need one; write the address that they have as peer",
        config.listen, config.peers.size(), config.control_links);
  }
  if (config.net_devices.size() > kLanesMax) {
    return fmt::format("net-device: {} are given; a node can have {} lanes",
                       config.net_devices.size(), kLanesMax);
  }
  for (const std::string& device : config.net_devices) {
    if (std::count(config.net_devices.begin(), config.net_devices.end(), device) > 1) {
      return fmt::format("net-device: {} is given twice; name each device once", device);
    }
  }
  return "";
}

std::string fault_of_security(const Config& config) {
  if (config.key_file.empty() != config.allowed_keys_file.empty()) {
    return config.key_file.empty()
               ? "key: allowed-keys is given without the key of this node; make one with: "
                 "gradringctl keygen"
               : "allowed-keys: key is given without the file that lists the keys of all nodes";
  }
  if (config.key_file.empty()) {
    if (config.insecure) return "";
    std::vector<std::string> addresses = {config.listen};
    addresses.insert(addresses.end(), config.listen_also.begin(), config.listen_also.end());
    for (const std::string& address : addresses) {
      if (is_loopback(parse_host_port(address)->host)) continue;
      return fmt::format(
          "listen: {} can be reached by other machines, and there is no key: give key and "
          "allowed-keys (gradringctl keygen), or say insecure if the network is yours alone",
          address);
    }
    return "";
  }
  if (config.insecure) return "insecure: contradicts key; leave one of them out";
  const auto own = read_key_file(config.key_file);
  if (!own) return own.error();
  const auto allowed = read_allowed_keys(config.allowed_keys_file);
  if (!allowed) return allowed.error();
  for (const AllowedKey& key : *allowed) {
    if (key.node == config.node && key.public_key != own->public_key) {
      return fmt::format("allowed-keys: {} lists another public key for node {} than {} holds",
                         config.allowed_keys_file, config.node, config.key_file);
    }
    if (key.node != config.node && key.public_key == own->public_key) {
      return fmt::format("node: {} lists the key of {} for node {}, and this is node {}",
                         config.allowed_keys_file, config.key_file, key.node, config.node);
    }
  }
  for (const std::string& peer : config.peers) {
    if (std::none_of(allowed->begin(), allowed->end(),
                     [&peer](const AllowedKey& key) { return key.address == peer; })) {
      return fmt::format("allowed-keys: {} has no line for peer {}; add: NODE {} KEY",
                         config.allowed_keys_file, peer, peer);
    }
  }
  return "";
}

// It may be an address that other machines reach, if the operator names it: there is nothing on the
// page that trainers' users could not ask for. But nobody is to open it to all networks by the way.
std::string fault_of_metrics(const Config& config) {
  if (config.metrics.empty()) return "";
  const auto where = parse_host_port(config.metrics);
  if (!where || !is_numeric_address(where->host)) {
    return fmt::format(
        "metrics: '{}' is not good: write a numeric address and a port, such as 127.0.0.1:7390",
        config.metrics);
  }
  if (is_any_address(where->host)) {
    return fmt::format(
        "metrics: {} would show this node's jobs on every network, to whoever asks; write "
        "127.0.0.1:{}, or the address that Prometheus comes by",
        config.metrics, where->port);
  }
  if (normal(config.metrics) == normal(config.listen)) {
    return fmt::format("metrics: {} is where peers reach this daemon; choose another port",
                       config.metrics);
  }
  return "";
}

std::string fault_of_sockets(const Config& config) {
  if (config.socket_group.empty()) return "";
  const group* entry = getgrnam(config.socket_group.c_str());
  if (entry == nullptr) {
    return fmt::format("socket-group: there is no group {}", config.socket_group);
  }
  // Who may give a file to which group the kernel knows best.
  const Fd file(memfd_create("socket-group", MFD_CLOEXEC));
  if (!file || fchown(file.get(), static_cast<uid_t>(-1), entry->gr_gid) == 0) return "";
  const passwd* user = getpwuid(geteuid());
  return fmt::format(
      "socket-group: {} cannot give its sockets to the group {}, which it is not in: usermod -aG "
      "{} {}",
      user != nullptr ? user->pw_name : std::to_string(geteuid()), config.socket_group,
      config.socket_group, user != nullptr ? user->pw_name : "USER");
}

std::string fault_of_times(const Config& config) {
  if (config.decide <= config.suspect) {
    return "decide: must be longer than suspect, or nobody would see a suspicion";
  }
  return "";
}

std::string fault_of_limits(const Config& config) {
  const uint64_t needed = (config.slots + kStartBuffers) * config.slice_bytes;
  if (config.slice_bytes > (64u << 20) || config.slice_bytes % 4096 != 0) {
    return fmt::format("slice-bytes: {} is not good: write a multiple of 4K, at most 64M",
                       config.slice_bytes);
  }
  if (needed > config.staging_limit) {
    return fmt::format(
        "staging-limit: {} slots and {} start buffers of {} bytes need {} bytes a job, "
        "above the limit of {}; raise it, or lower slots or slice-bytes",
        config.slots, kStartBuffers, config.slice_bytes, needed, config.staging_limit);
  }
  constexpr uint64_t kLeast = 4096;  // a page; less keeps nothing worth reading
  for (const auto& [name, size] : {std::pair("flight-recorder-size", config.flight_recorder_size),
                                   std::pair("trace-size", config.trace_size)}) {
    if (size != 0 && (size < kLeast || size > kFlightRingBytesMax)) {
      return fmt::format("{}: {} is not good: write 0, or 4K to 64M", name, size);
    }
  }
  return "";
}

std::string fault_of_gpu_sums(const Config& config) {
  if (config.gpu_direct && !config.gpu_sums) {
    return "gpu-direct: cards send from GPUs what is summed there; turn gpu-sums on as well";
  }
  if (!config.gpu_sums || config.restart_grace == 0) return "";
  return "gpu-sums: what GPUs have summed is in no record, so that a restart would lose it; leave "
         "it off, or restart-grace at 0";
}

std::string fault_of_machine(const Config& config) {
  for (const std::string& wish : config.gpu_nics) {
    const size_t equals = wish.find('=');
    if (equals == 0 || equals == std::string::npos || equals + 1 == wish.size()) {
      return fmt::format("gpu-nic: '{}' is not good: write GPU=NIC, such as 0=mlx5_0", wish);
    }
  }
  std::error_code error;
  const std::string& folder = config.machine_recording;
  if (folder.empty() || std::filesystem::is_directory(folder, error)) return "";
  return fmt::format("machine-recording: there is no folder {}", folder);
}

}  // namespace

std::string fault_of(const Config& config) {
  using Check = std::string (*)(const Config&);
  for (const Check check : {fault_of_node, fault_of_runtime_dir, fault_of_addresses,
                            fault_of_security, fault_of_metrics, fault_of_sockets, fault_of_times,
                            fault_of_limits, fault_of_gpu_sums, fault_of_machine}) {
    if (std::string fault = check(config); !fault.empty()) return fault;
  }
  return "";
}

}  // namespace gradring::daemon
