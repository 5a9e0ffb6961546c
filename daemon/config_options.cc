#include "daemon/config_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "daemon/core/overlay.h"
#include "daemon/discovery/peer_source.h"
#include "daemon/tuning_text.h"
#include "proto/bundle.h"
#include "proto/policy.h"

namespace gradring::daemon {
namespace {

constexpr bool kReread = true;

// UCX keeps it in a byte.
constexpr uint32_t kGidIndexMost = 255;

using Setter = std::function<std::string(Config&, const std::string&)>;

Setter text(std::string Config::*member) {
  return [member](Config& config, const std::string& value) -> std::string {
    if (value.empty()) return "it must not be empty";
    config.*member = value;
    return "";
  };
}

Setter list(std::vector<std::string> Config::*member) {
  return [member](Config& config, const std::string& value) -> std::string {
    if (value.empty()) return "it must not be empty";
    (config.*member).push_back(value);
    return "";
  };
}

Setter one_of(std::string Config::*member, std::vector<std::string> words) {
  return
      [member, words = std::move(words)](Config& config, const std::string& value) -> std::string {
        if (std::find(words.begin(), words.end(), value) == words.end()) {
          return fmt::format("write {}", fmt::join(words, ", "));
        }
        config.*member = value;
        return "";
      };
}

// A century. Deadlines are sums of such times and of a clock, and have to fit into the same type.
constexpr core::Time kHoursMost = 1'000'000;

Setter duration(core::Time Config::*member, core::Time least) {
  return [member, least](Config& config, const std::string& value) -> std::string {
    const auto time = parse_duration(value);
    if (!time) return "write a duration such as 300s, 500ms or 5m";
    if (*time < least) return fmt::format("it must be at least {} ms", least / core::kMillisecond);
    if (*time > kHoursMost * 3600 * core::kSecond) {
      return fmt::format("it must be at most {}h", kHoursMost);
    }
    config.*member = *time;
    return "";
  };
}

Setter size(uint64_t Config::*member, uint64_t least) {
  return [member, least](Config& config, const std::string& value) -> std::string {
    const auto bytes = parse_size(value);
    if (!bytes) return "write a size such as 64M, 2G or a number of bytes";
    if (*bytes < least) return fmt::format("it must be at least {} bytes", least);
    config.*member = *bytes;
    return "";
  };
}

Setter at_most(uint64_t Config::*member, uint64_t most) {
  return [member, most](Config& config, const std::string& value) -> std::string {
    const auto bytes = parse_size(value);
    if (!bytes || *bytes > most) return fmt::format("write a size of up to {} bytes", most);
    config.*member = *bytes;
    return "";
  };
}

Setter auto_or(std::optional<uint32_t> Config::*member, uint32_t most) {
  return [member, most](Config& config, const std::string& value) -> std::string {
    uint32_t parsed = 0;
    const char* end = value.data() + value.size();
    const auto [rest, error] = std::from_chars(value.data(), end, parsed);
    const bool good = error == std::errc() && rest == end && parsed <= most;
    if (!good && value != "auto") return fmt::format("write auto, or a number from 0 to {}", most);
    config.*member = good ? std::optional(parsed) : std::nullopt;
    return "";
  };
}

std::string set_data_ports(Config& config, const std::string& value) {
  const auto range = parse_port_range(value);
  if (!range && value != "auto") return "write auto, or ports from 1 to 65535, as in 7310-7317";
  config.data_ports = range.value_or(transport::PortRange());
  return "";
}

// UCX has no 256.
std::string set_path_mtu(Config& config, const std::string& value) {
  config.rdma_path_mtu.reset();
  for (const uint32_t mtu : {512u, 1024u, 2048u, 4096u}) {
    if (value == std::to_string(mtu)) config.rdma_path_mtu = mtu;
  }
  return value == "auto" || config.rdma_path_mtu ? "" : "write auto, 512, 1024, 2048 or 4096";
}

// Beyond that the card's exponent means for ever.
std::string set_rdma_timeout(Config& config, const std::string& value) {
  const auto time = parse_duration(value);
  if (!time || *time < core::kMillisecond || *time > 3600 * core::kSecond) {
    return "write a duration from 1ms to 1h";
  }
  config.rdma_timeout = *time;
  return "";
}

template <typename Number>
Setter number(Number Config::*member, uint64_t least, uint64_t most) {
  return [member, least, most](Config& config, const std::string& value) -> std::string {
    uint64_t parsed = 0;
    const char* end = value.data() + value.size();
    const auto [rest, error] = std::from_chars(value.data(), end, parsed);
    if (error != std::errc() || rest != end || parsed < least || parsed > most) {
      return fmt::format("write a number from {} to {}", least, most);
    }
    config.*member = static_cast<Number>(parsed);
    return "";
  };
}

Setter on_off(bool Config::*member) {
  return [member](Config& config, const std::string& value) -> std::string {
    if (value == "true" || value == "on" || value == "yes" || value == "1") {
      config.*member = true;
    } else if (value == "false" || value == "off" || value == "no" || value == "0") {
      config.*member = false;
    } else {
      return "write on or off";
    }
    return "";
  };
}

std::string set_socket_mode(Config& config, const std::string& value) {
  uint32_t mode = 0;
  const char* end = value.data() + value.size();
  const auto [rest, error] = std::from_chars(value.data(), end, mode, 8);
  if (error != std::errc() || rest != end || mode > 0777 || (mode & 0600) != 0600) {
    return "write an octal mode that lets the owner read and write, such as 0666 or 0660";
  }
  config.socket_mode = mode;
  return "";
}

std::string set_tuning(Config& config, const std::string& value) {
  if (value != "auto") {
    if (const auto table = parse_tuning(value); !table) {
      return "write default, auto, or a table such as 64K:parts,1M:128K,rest:ring; " +
             table.error();
    }
  }
  config.tuning = value;
  return "";
}

std::string set_discover(Config& config, const std::string& value) {
  if (!parse_peer_source(value)) {
    return "write file:PATH (absolute), dns:NAME, dns:NAME:PORT, slurm or slurm:PORT";
  }
  config.discover.push_back(value);
  return "";
}

std::string set_policy(Config& config, const std::string& value) {
  if (!parse_policy(value)) return "write fail, or elastic, with min=A and max=B as you like";
  config.policy = value;
  return "";
}

}  // namespace

const std::vector<Option>& all_options() {
  static const std::vector<Option> kOptions = {
      {"node", "NAME", "",
       "id of this node, unique among its peers; default: host name and port of "
       "listen, as in host:7300",
       false, text(&Config::node)},
      {"runtime-dir", "DIR", "/run/gradring",
       "where the sockets and the lock live; one daemon each", false, text(&Config::runtime_dir)},
      {"listen", "ADDRESS:PORT", "127.0.0.1:7300",
       "where peers reach this daemon; its network also "
       "carries the gradients unless net-device says otherwise",
       false, text(&Config::listen)},
      {"listen-also", "ADDRESS:PORT", "",
       "where peers reach this daemon when the network of listen is lost; once for each further "
       "network",
       true, list(&Config::listen_also)},
      {"peer", "HOST:PORT", "", "another daemon's listen address; once for each", true,
       list(&Config::peers)},
      {"discover", "SOURCE", "",
       "where more peers are found, which may come and go: file:PATH with an address on each line, "
       "dns:NAME:PORT with all addresses of a name, or slurm, the nodes of the allocation; once "
       "for "
       "each source",
       true, set_discover},
      {"peers-from", "SOURCE", "", "the same as discover, which was called so once", true,
       set_discover},
      {"control-links", "COUNT", "64",
       "peers to keep a control connection with; with more peers than that the others pass on what "
       "is for the rest; the same on all nodes",
       false, number(&Config::control_links, core::Overlay::kLinksLeast, 65536)},
      {"net-device", "DEVICE", "",
       "network device for gradients, as in eth0 or mlx5_0:1; once for each lane, in the same "
       "order on all nodes; default: the one that carries the listen address",
       true, list(&Config::net_devices)},
      {"tcp-by", "ENGINE", "sockets",
       "what moves gradients over TCP: sockets of the kernel, or ucx, which copies them once more; "
       "the same on all nodes",
       false, one_of(&Config::tcp_by, {"sockets", "ucx"})},
      {"tcp-send-thread", "WHICH", "auto",
       "whether a thread for each lane sends what is large over TCP, beside the one that receives "
       "and sums: on, off, or auto, from eight processors on",
       false, one_of(&Config::tcp_send_thread, {"auto", "on", "off"})},
      {"data-ports", "FIRST-LAST", "auto",
       "TCP ports for gradients, as in 7310-7317, of which each address of a lane's interface "
       "takes "
       "one that is free; auto: the kernel chooses",
       false, set_data_ports},
      {"rdma-gid-index", "INDEX", "auto",
       "which of an RDMA port's addresses is used, as gradringctl topology lists them; auto: of "
       "RoCE v2, the one in the network of listen or of a peer, else as UCX chooses",
       false, auto_or(&Config::rdma_gid_index, kGidIndexMost)},
      {"rdma-traffic-class", "NUMBER", "auto",
       "of RDMA packets, 0 to 255: with RoCE v2 DSCP times 4, plus 2 where switches mark by ECN; "
       "auto: 106, which is DSCP 26, and 0 on InfiniBand; the same on all nodes",
       false, auto_or(&Config::rdma_traffic_class, 255)},
      {"rdma-service-level", "NUMBER", "auto",
       "InfiniBand's service level, 0 to 15, and on RoCE the VLAN's priority; auto: as UCX "
       "chooses, as a rule 0; the same on all nodes",
       false, auto_or(&Config::rdma_service_level, 15)},
      {"rdma-path-mtu", "BYTES", "auto",
       "largest payload of an RDMA packet: 512, 1024, 2048 or 4096; auto: the port's active MTU; "
       "the same on all nodes",
       false, set_path_mtu},
      {"rdma-timeout", "TIME", "1s",
       "how long a card waits for an acknowledgement before it sends again, to the nearest 4.096 "
       "us times a power of 2",
       false, set_rdma_timeout},
      {"rdma-retries", "COUNT", "7",
       "how often a card sends again what is not acknowledged before the lane is lost, 0 to 7",
       false, number(&Config::rdma_retries, 0, 7)},
      {"rdma-rnr-retries", "COUNT", "7",
       "the same where the receiver says that it has no buffer ready, 0 to 6, or 7 for ever", false,
       number(&Config::rdma_rnr_retries, 0, 7)},
      {"gpu-nic", "GPU=NIC", "",
       "card that a GPU uses, as in 0=mlx5_0, where gradringctl topology chose another; once for "
       "each GPU",
       true, list(&Config::gpu_nics)},
      {"nvml-library", "FILE", "libnvidia-ml.so.1", "NVML of NVIDIA's driver, which knows the GPUs",
       false, text(&Config::nvml_library)},
      {"machine-recording", "DIR", "",
       "what gradringctl topology shows instead of this machine: the recording of another", false,
       text(&Config::machine_recording)},
      {"key", "FILE", "", "secret key of this node, made by gradringctl keygen; mode 0600", false,
       text(&Config::key_file)},
      {"allowed-keys", "FILE", "", "public keys of all nodes, one line each: NODE HOST:PORT KEY",
       false, text(&Config::allowed_keys_file), kReread},
      {"insecure", "", "false",
       "speak to peers without encryption or authentication although they "
       "are not on this machine",
       false, on_off(&Config::insecure)},
      {"form-deadline", "TIME", "300s",
       "how long a job waits for all of its ranks; whose trainer says a time waits that, "
       "op-deadline at most",
       false, duration(&Config::form_deadline, core::kMillisecond)},
      {"op-deadline", "TIME", "1800s", "an op that some rank never submits fails after this", false,
       duration(&Config::op_deadline, core::kMillisecond)},
      {"suspect", "TIME", "1s", "silence after which a peer is shown as suspect", false,
       duration(&Config::suspect, 20 * core::kMillisecond)},
      {"decide", "TIME", "3s", "silence after which a peer is given up", false,
       duration(&Config::decide, 20 * core::kMillisecond)},
      {"restart-grace", "TIME", "0",
       "how long others wait for this daemon when its connections close; 0: its end is a death",
       false, duration(&Config::restart_grace, 0)},
      {"quorum-wait", "TIME", "60s",
       "how long an elastic job waits for a majority of its nodes before it gives up", false,
       duration(&Config::quorum_wait, core::kMillisecond)},
      {"policy", "POLICY", "fail",
       "policy of a job that does not say its own: fail, or elastic with min=A and max=B", false,
       set_policy},
      {"completion", "WHEN", "local",
       "an op is complete when its result is on this node (local), or on every node (stable)",
       false, one_of(&Config::completion, {"local", "stable"})},
      {"verify", "ON", "off",
       "the results of every op are compared on all ranks (on), or not (off); the same on all "
       "nodes",
       false, on_off(&Config::verify)},
      {"checksum", "ON", "off",
       "slices carry a checksum, and one that came damaged is sent again (on), or not (off)", false,
       on_off(&Config::checksum)},
      {"gpu-sums", "ON", "off",
       "what the ranks of this node have on its GPUs is summed there before it goes to other nodes "
       "(on), or in the host's memory (off)",
       false, on_off(&Config::gpu_sums)},
      {"gpu-engine", "ENGINE", "kernels",
       "what adds what lies on several GPUs: kernels of the daemon's own, nccl, or measured: the "
       "faster one of them when the daemon starts",
       false, one_of(&Config::gpu_engine, {"kernels", "nccl", "measured"})},
      {"gpu-direct", "ON", "off",
       "RDMA cards send what gpu-sums sums from the GPUs' memory and write into it (on), or from "
       "and into the host's (off)",
       false, on_off(&Config::gpu_direct)},
      {"tuning", "TABLE", "default",
       "how sums go between nodes, by their size: default, auto (measured while jobs run), or a "
       "table such as 64K:parts,1M:128K,rest:ring; the same on all nodes",
       false, set_tuning},
      {"tuning-file", "FILE", "/var/lib/gradring/tuning",
       "where tables that auto has found are kept for later jobs", false,
       text(&Config::tuning_file)},
      {"deterministic", "ON", "off",
       "jobs keep the table that they begin with, and begin with none that was measured (on), or "
       "as each job asks (off)",
       false, on_off(&Config::deterministic)},
      {"drain-timeout", "TIME", "25s", "how long running jobs may go on after SIGTERM", false,
       duration(&Config::drain_timeout, 0)},
      {"segment-limit", "SIZE", "",
       "shared memory that the trainers of one uid may hold; default: "
       "half of this host's memory",
       false, size(&Config::segment_limit, 1 << 20), kReread},
      {"segments-per-session", "COUNT", "1024", "shared segments of one trainer", false,
       number(&Config::segments_per_session, 1, 65536), kReread},
      {"staging-limit", "SIZE", "64M", "memory for slices under way, of one job", false,
       size(&Config::staging_limit, 1 << 12)},
      {"feedback-limit", "SIZE", "1G",
       "memory for what int8 on the wire took away, of one job; 0: it is not fed back", false,
       size(&Config::feedback_limit, 0)},
      {"slice-bytes", "SIZE", "256K", "largest slice; the same on all nodes", false,
       size(&Config::slice_bytes, 1 << 12)},
      {"slots", "COUNT", "16", "slices that may wait here for one job; the same on all nodes",
       false, number(&Config::slots, 2, 4096)},
      {"bundle-bytes", "SIZE", "16K",
       "small frames that go to a peer at the same time share messages of this length; 0: each has "
       "its own",
       false, at_most(&Config::bundle_bytes, kBundleBytesMax)},
      {"reduce-threads", "COUNT", "",
       "threads that help to sum large slices; default: one for each eight of this host's "
       "processors, and at least one of two",
       false, number(&Config::reduce_threads, 0, 64)},
      {"max-sessions", "COUNT", "1024", "trainers attached at one time", false,
       number(&Config::max_sessions, 1, 65536), kReread},
      {"sessions-per-uid", "COUNT", "512", "trainers of one uid attached at one time", false,
       number(&Config::sessions_per_uid, 1, 65536), kReread},
      {"max-jobs", "COUNT", "256", "jobs that form or run at one time", false,
       number(&Config::max_jobs, 1, 65536)},
      {"flight-recorder-size", "SIZE", "1M",
       "file in runtime-dir that keeps each thread's last events for gradringctl flight-recorder; "
       "0: none",
       false, size(&Config::flight_recorder_size, 0)},
      {"trace-size", "SIZE", "32M",
       "the same for gradringctl trace, taken when the first one begins; 0: no traces", false,
       size(&Config::trace_size, 0)},
      {"socket-mode", "MODE", "0666",
       "octal mode of the trainers' sockets; who a trainer is, is "
       "checked by the kernel's word in any case",
       false, set_socket_mode},
      {"socket-group", "GROUP", "",
       "group of the trainers' sockets, for a socket-mode such as 0660", false,
       text(&Config::socket_group)},
      {"metrics", "ADDRESS:PORT", "",
       "where Prometheus reads metrics, as in 127.0.0.1:7390; default: nowhere", false,
       text(&Config::metrics)},
      {"log-level", "LEVEL", "info", "debug, info, warning or error", false,
       one_of(&Config::log_level, {"debug", "info", "warning", "error"}), kReread},
  };
  return kOptions;
}

}  // namespace gradring::daemon
