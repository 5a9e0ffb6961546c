#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "daemon/core/time.h"
#include "transport/port_range.h"

namespace gradring::daemon {

inline constexpr size_t kPeersMax = 8192;  // for whom libzmq may have sockets enough: 65,535 in all

// All that an operator can set. One definition each (config_options.cc) makes the flag, the key in
// the INI file and the environment variable (GRADRING_, upper case, dashes as underscores).
struct Config {
  std::string node;  // empty in the table: host name and port of `listen`
  std::string runtime_dir;
  std::string listen;                    // ADDRESS:PORT, numeric
  std::vector<std::string> peers;        // HOST:PORT, where we dial
  std::vector<std::string> discover;     // where more of them are found (discovery/peer_source.h)
  std::vector<std::string> listen_also;  // where else, on other networks
  uint64_t control_links = 0;            // connections to peers; above, others pass messages on
  std::vector<std::string> net_devices;  // empty: chosen by the transport, with a reason
  std::string tcp_by;                    // sockets or ucx
  std::string tcp_send_thread;           // on, off, or auto: by this host's processors
  transport::PortRange data_ports;       // of TCP; none: auto
  // Of the devices that are RDMA's; nothing: auto.
  std::optional<uint32_t> rdma_gid_index;
  std::optional<uint32_t> rdma_traffic_class;
  std::optional<uint32_t> rdma_service_level;
  std::optional<uint32_t> rdma_path_mtu;
  core::Time rdma_timeout = 0;
  uint32_t rdma_retries = 0;
  uint32_t rdma_rnr_retries = 0;
  std::vector<std::string> gpu_nics;  // GPU=NIC
  std::string nvml_library;
  std::string machine_recording;  // folder; empty: this machine is looked at
  std::string key_file;
  std::string allowed_keys_file;
  bool insecure = false;

  core::Time form_deadline = 0;
  core::Time op_deadline = 0;
  core::Time suspect = 0;
  // How often the daemon says that it lives, looks who else does, and counts. Watchdogs and who
  // reads metrics rely on seconds.
  core::Time pulse() const { return std::min(suspect / 4, core::kSecond); }
  core::Time decide = 0;
  core::Time restart_grace = 0;
  core::Time quorum_wait = 0;
  core::Time drain_timeout = 0;
  std::string policy;
  std::string completion;
  bool checksum = false;
  bool verify = false;
  bool gpu_sums = false;
  std::string gpu_engine;  // kernels, nccl or measured
  bool gpu_direct = false;
  bool deterministic = false;
  std::string tuning;       // default, auto, or a table
  std::string tuning_file;  // of tables that were found

  uint64_t segment_limit = 0;   // bytes per uid; 0 in the table: half of this host's memory
  uint64_t staging_limit = 0;   // bytes per job
  uint64_t feedback_limit = 0;  // likewise
  uint64_t slice_bytes = 0;
  uint64_t slots = 0;
  uint64_t bundle_bytes = 0;
  std::optional<uint64_t> reduce_threads;  // nothing in the table: by this host's processors
  uint64_t max_sessions = 0;
  uint64_t sessions_per_uid = 0;
  uint64_t segments_per_session = 0;
  uint64_t max_jobs = 0;
  uint64_t flight_recorder_size = 0;  // bytes per thread; 0: none
  uint64_t trace_size = 0;            // likewise

  uint32_t socket_mode = 0;
  std::string socket_group;
  std::string metrics;  // ADDRESS:PORT, numeric; empty: nobody is told
  std::string log_level;

  // By option, what all of this was made of, as it was written.
  std::map<std::string, std::vector<std::string>> words;
};

// What the command line asks for.
struct Invocation {
  enum class What { kRun, kKeep, kCheckConfig, kHelp, kVersion };
  What what = What::kRun;
  std::string text;  // of kHelp and kVersion
  Config config;
};

// Empty when the variable is not set.
using Environment = std::function<std::optional<std::string>(const std::string&)>;
Environment process_environment();

inline constexpr const char* kDefaultConfigFile = "/etc/gradring/gradringd.conf";

// Reads flags, then the environment, then the file, then defaults: the first that says something
// about an option wins. An error is one line that names the source, the option and what would be
// right. `arguments` without the program's name. Touches no file but the configuration.
tl::expected<Invocation, std::string> load_config(
    const std::vector<std::string>& arguments, const Environment& environment,
    const std::string& default_file = kDefaultConfigFile);

// The options that say something else in `read` than in `running`, and are not reread while the
// daemon runs; by name.
std::vector<std::string> wait_for_restart(const Config& running, const Config& read);

// What one option cannot know of the others: addresses, limits that contradict, security. One line,
// or empty. Reads nothing but the key files.
std::string fault_of(const Config& config);

// "10.0.0.1:7300", "[::1]:7300", "node-b:7300".
struct HostPort {
  std::string host;
  uint16_t port = 0;
};
std::optional<HostPort> parse_host_port(const std::string& text);
// 127.0.0.0/8, ::1 or localhost.
bool is_loopback(const std::string& host);
bool is_numeric_address(const std::string& host);
// 0.0.0.0 or ::, on which a daemon is reached from everywhere.
bool is_any_address(const std::string& host);

// "300s", "500ms", "5m", "1h"; and "0", which needs no unit.
std::optional<core::Time> parse_duration(const std::string& text);
// "4096", "256K", "64M", "2G": powers of 1024.
std::optional<uint64_t> parse_size(const std::string& text);
// "7310-7313", "7310".
std::optional<transport::PortRange> parse_port_range(const std::string& text);

// A slice of a job that is on one node only: many parts for several threads, and a fraction of a
// millisecond for whatever waits behind it.
inline constexpr uint32_t kSliceBytesAlone = 1 << 20;

// Start buffers beside the `slots` of a job: enough to sum the next slices while the first ones are
// on their way out.
inline constexpr uint32_t kStartBuffers = 4;

}  // namespace gradring::daemon
