// gradringd: reads the configuration, builds the parts, hands them to one another and waits for the
// end.

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "daemon/await_network.h"
#include "daemon/check_as.h"
#include "daemon/clock.h"
#include "daemon/config.h"
#include "daemon/control/control_thread.h"
#include "daemon/control/door/lock_file.h"
#include "daemon/control/hardware/ports.h"
#include "daemon/control/peers/lane_paths.h"
#include "daemon/data/data_thread.h"
#include "daemon/discovery/discovery.h"
#include "daemon/fd_store.h"
#include "daemon/flight/recorder.h"
#include "daemon/gpu_direct.h"
#include "daemon/host_limits.h"
#include "daemon/keep/exit_status.h"
#include "daemon/keep/keeper.h"
#include "daemon/lanes.h"
#include "daemon/metrics/board.h"
#include "daemon/metrics/server.h"
#include "daemon/notice.h"
#include "daemon/process_start.h"
#include "proto/version.h"
#include "transport/cuda/fold_kernels.h"
#include "transport/cuda/gpus.h"
#include "transport/machine/gpu_watch.h"
#include "transport/machine/look_apart.h"
#include "transport/machine/port_watch.h"

namespace gradring::daemon {
namespace {

using keep::kWrongConfiguration;

constexpr int kDrained = 0;
constexpr int kNotYet = 1;  // a later start may find what this one missed

// Submissions that may wait for the data thread before trainers are made to wait: some turns of its
// work.
constexpr size_t kCommandsMax = 4096;
// Beyond this the data thread saves itself its pulse; what must be told is told.
constexpr size_t kEventsMax = 65536;
// What gradringctl events can tell of, some hundred bytes each: a bad day of one node.
constexpr size_t kEventsKept = 512;

int refuse(const std::string& why) {
  std::fputs(fmt::format("gradringd: {}\n", why).c_str(), stderr);
  return kWrongConfiguration;
}

// The exit status. What fmt::print throws where a disk is full would end the process by a signal.
int put_out(const std::string& text) {
  const bool taken = std::fputs(text.c_str(), stdout) >= 0;
  if (std::fflush(stdout) == 0 && taken) return 0;
  std::fputs("gradringd: cannot write the answer\n", stderr);
  return kNotYet;
}

// At the end, for the transport to give back every buffer, and for a driver to unpin many GB.
constexpr auto kDataEndsWithin = std::chrono::seconds(10);
constexpr auto kGpusCloseWithin = std::chrono::seconds(10);

// For what a GPU is at work with, and does not end, a driver waits for ever when anybody gives it
// back; the system takes it all back with the process.
[[noreturn]] void leave_gpus_behind() {
  spdlog::warn(
      "a GPU has not ended what the daemon gave it, or its driver does not come back: its memory "
      "is left to the system; see nvidia-smi and the kernel's log");
  std::_Exit(kDrained);
}

StandingFacts facts_of(const MadeLanes& made) {
  const Lanes& lanes = made.lanes;
  StandingFacts facts;
  facts.transport = lanes.front()->name();
  facts.devices_reason = lanes.front()->devices_reason();
  facts.started = monotonic_now();
  for (size_t i = 0; i < lanes.size(); ++i) {
    facts.devices += (facts.devices.empty() ? "" : ", ") + lanes[i]->devices();
    StandingFacts::Lane& lane = facts.lanes.emplace_back(
        StandingFacts::Lane{lanes[i]->devices(), lanes[i]->devices_reason(), {}});
    lane.reaches_gpus = lanes[i]->reaches_gpus();
    if (const auto& gid = made.gids[i]) {
      lane.gid.set_index(gid->index);
      lane.gid.set_type(gid->type);
      lane.gid.set_address(gid->address);
      lane.gid.set_interface(gid->interface);
    }
  }
  return facts;
}

// Small sums go with READY as long as that goes to all; on more nodes along its tree. All nodes
// must agree, so that another number is another protocol.
constexpr uint32_t kDirectMembersMax = core::kReadyTreeAbove;
constexpr uint32_t kTreeMax = 64 << 10;

core::EngineOptions engine_options_of(const Config& config, size_t slice_bytes) {
  core::EngineOptions options;
  options.plan.slice_bytes_max = static_cast<uint32_t>(slice_bytes);
  options.plan.slice_bytes_alone = kSliceBytesAlone;
  options.plan.direct_members_max = kDirectMembersMax;
  options.plan.tree_max = kTreeMax;
  options.slots = static_cast<uint32_t>(config.slots);
  options.start_buffers = kStartBuffers;
  options.op_deadline = config.op_deadline;
  options.stable_completion = config.completion == "stable";
  options.checksum = config.checksum;
  options.verify = config.verify;
  return options;
}

machine::LookOptions look_options_of(const Config& config) {
  return {config.machine_recording, config.nvml_library, {config.net_devices, config.gpu_nics}};
}

// Nobody is denied gradients for want of a recorder.
void warn_of(const Status& status) {
  if (!status.ok()) spdlog::warn("no flight recorder: {}", status.message());
}

// Nothing where nobody is to be told.
tl::expected<std::unique_ptr<metrics::Server>, Status> serve_metrics(const Config& config,
                                                                     const metrics::Board& board) {
  if (config.metrics.empty()) return nullptr;
  if (!is_loopback(parse_host_port(config.metrics)->host)) {
    spdlog::warn("metrics at {} name jobs and nodes to whoever reaches that address",
                 config.metrics);
  }
  return metrics::Server::start(config.metrics, &board);
}

transport::GpuSumsBy gpu_sums_by(const std::string& engine) {
  if (engine == "nccl") return transport::GpuSumsBy::kNccl;
  return engine == "measured" ? transport::GpuSumsBy::kMeasured : transport::GpuSumsBy::kKernels;
}

// Null where GPUs are not to sum, or there are none: then what lies on one goes by way of the host.
std::shared_ptr<transport::Gpus> open_gpus(const Config& config, StandingFacts* facts) {
  facts->gpu_sums_reason = "gpu-sums is off";
  if (!config.gpu_sums) return nullptr;
  auto gpus = transport::open_gpus(transport::fold_kernels(), {gpu_sums_by(config.gpu_engine)});
  if (!gpus) {
    facts->gpu_sums_reason = "gpu-sums is on, but " + gpus.error().message();
    spdlog::warn("no GPU sums here: {}", facts->gpu_sums_reason);
    return nullptr;
  }
  // Now, since nobody waits for this daemon yet.
  if (const Status started = (*gpus)->start(); !started.ok()) spdlog::warn(started.message());
  facts->gpu_sums_by = (*gpus)->name();
  facts->gpu_sums_reason = "gpu-sums is on";
  facts->gpu_sums_way = (*gpus)->way();
  facts->gpus_under_mps = (*gpus)->under_mps();
  spdlog::info("what ranks here have on GPUs is summed on {}, {}", facts->gpu_sums_by,
               facts->gpu_sums_way);
  return *gpus;
}

// What can be known at once: a node list that is not there will not come.
std::string fault_of_sources(const Config& config) {
  for (const std::string& text : config.discover) {
    const PeerSource source = *parse_peer_source(text);
    if (source.kind != PeerSource::Kind::kSlurm) continue;
    if (const auto nodes = ask_slurm(source, process_environment()); !nodes) return nodes.error();
  }
  return "";
}

// Nothing where nobody is to be found.
std::unique_ptr<Discovery> start_discovery(const Config& config, EventBox* events) {
  if (config.discover.empty()) return nullptr;
  std::vector<PeerSource> sources;
  for (const std::string& source : config.discover) sources.push_back(*parse_peer_source(source));
  Addresses listens = config.listen_also;
  listens.push_back(config.listen);
  return std::make_unique<Discovery>(
      std::move(sources), process_environment(),
      [events](const Addresses& addresses) { events->post(PeersFound{addresses}); },
      std::move(listens));
}

// What systemd does where there is systemd: see daemon/keep.
int keep(const Config& config, const std::string& program, std::vector<std::string> arguments) {
  auto lock = lock_runtime_dir(config.runtime_dir, "keeper.lock");
  if (!lock) return refuse(lock.error());
  raise_file_limit();
  std::erase(arguments, "--keep");
  arguments.insert(arguments.begin(), program);
  keep::KeeperOptions options;
  options.command = std::move(arguments);
  options.notify_socket = config.runtime_dir + "/keeper.sock";
  return keep::run_keeper(options);
}

// What was begun while there was one thread.
struct Children {
  machine::GpuWatch gpu_watch;
  machine::LookApart look;
};

int serve(const Config& config, MadeLanes made, FdStore* store, Children* children,
          const std::vector<std::string>& arguments) {
  auto lock = lock_runtime_dir(config.runtime_dir);
  if (!lock) return refuse(lock.error());
  const std::string risk = risk_of_runtime_dir(config.runtime_dir);
  if (!risk.empty()) spdlog::warn("{}", risk);
  transport::set_nccl_environment(gpu_sums_by(config.gpu_engine));
  raise_file_limit();
  const StandingFacts facts = facts_of(made);
  Lanes lanes = std::move(made.lanes);
  static EventRing happened(kEventsKept);  // notices outlive every thread
  remember_in(&happened);
  FlightRecorder flight;
  warn_of(flight.open(config.runtime_dir, config.node, config.flight_recorder_size));

  size_t slice_bytes = config.slice_bytes;
  for (const auto& lane : lanes) {
    slice_bytes = std::min(slice_bytes, lane->preferred_payload_bytes());
  }
  CommandBox commands(kCommandsMax);
  EventBox events(kEventsMax);

  ControlThread::Setup setup;
  setup.config = config;
  setup.facts = facts;
  setup.identity.node = config.node;
  setup.identity.boot_id = random_u64();
  setup.identity.transport = compatible_name(setup.facts.transport);
  setup.identity.slice_bytes = slice_bytes;
  setup.identity.slots = static_cast<uint32_t>(config.slots);
  for (const auto& lane : lanes) {
    setup.identity.data_addresses.push_back(lane->address());
    setup.identity.devices.push_back(lane->devices());
    setup.identity.lane_hosts.push_back(address_of_lane(lane->devices()));
  }
  setup.commands = &commands;
  setup.events = &events;
  setup.flight = flight.control();
  setup.recorder = &flight;
  setup.store = store;
  setup.look = &children->look;
  setup.gpu_watch = &children->gpu_watch;
  setup.happened = &happened;
  machine::PortWatch port_watch({ports_of_lanes(setup.facts.device_names())});
  setup.port_watch = &port_watch;
  const core::EngineOptions engine = engine_options_of(config, slice_bytes);
  setup.plan = engine.plan;
  setup.job_sizes = {
      StagingMemory::bytes_for(engine.slots, engine.start_buffers, engine.plan.slice_bytes_max),
      kept_bytes(engine, config.staging_limit)};
  setup.reload = [arguments]() -> tl::expected<Config, std::string> {
    auto invocation = load_config(arguments, process_environment());
    if (!invocation) return tl::unexpected(invocation.error());
    if (std::string fault = fault_of(invocation->config); !fault.empty())
      return tl::unexpected(fault);
    return invocation->config;
  };
  metrics::Board board;
  if (!config.metrics.empty()) setup.metrics = &board;
  const auto metrics = serve_metrics(config, board);
  if (!metrics) return refuse(metrics.error().message());
  const std::shared_ptr<transport::Gpus> gpus = open_gpus(config, &setup.facts);
  setup.gpus = gpus.get();
  setup.facts.gpu_direct = gpu_direct_of(config, gpus.get(), lanes);
  ControlThread control(setup);
  if (const Status status = control.open(); !status.ok()) return refuse(status.message());
  warn_of(flight.publish());
  flight.control()->record({.kind = FlightKind::kDaemonStarted}, kProductVersion);

  DataThread data(std::move(lanes),
                  {engine, config.staging_limit, config.feedback_limit, config.pulse(),
                   flight.data(), config.restart_grace > 0, config.tuning == "auto",
                   static_cast<uint32_t>(*config.reduce_threads), config.bundle_bytes,
                   !config.metrics.empty(), gpus, setup.facts.gpu_direct.on},
                  &commands, &events);
  std::promise<void> data_over;
  std::thread data_thread([&data, &data_over] {
    pthread_setname_np(pthread_self(), "gr-data");
    data.run();
    data_over.set_value();
  });
  tell(Notice::kReady, spdlog::level::info, {{"GRADRING_NODE", config.node}},
       fmt::format("node {} is ready: runtime-dir {}, listen {}, {} on {} ({})", config.node,
                   config.runtime_dir, config.listen, setup.facts.transport, setup.facts.devices,
                   setup.facts.devices_reason));
  const auto discovery = start_discovery(config, &events);
  control.run();
  commands.post(StopData{});
  const bool hang =
      gpus != nullptr &&
      (data_over.get_future().wait_for(kDataEndsWithin) != std::future_status::ready ||
       data.gpus_hang() || !control.gpus_rest_within(kGpusCloseWithin));
  flight.control()->record({.kind = FlightKind::kDaemonStopped});
  if (hang) leave_gpus_behind();
  data_thread.join();
  return kDrained;
}

int check(const Config& config, const std::string& whose) {
  const auto lanes = make_lanes(config);
  if (!lanes) return refuse(whose + lanes.error().message());
  if (const std::string fault = metrics::Server::fault_of(config.metrics); !fault.empty()) {
    return refuse(whose + fault);
  }
  const StandingFacts facts = facts_of(*lanes);
  return put_out(fmt::format("OK: node {}, {} on {} ({})\n", config.node, facts.transport,
                             facts.devices, facts.devices_reason));
}

int run(const std::string& program, const std::vector<std::string>& arguments) {
  block_signals();
  auto invocation = load_config(arguments, process_environment());
  if (!invocation) return refuse(invocation.error());
  using What = Invocation::What;
  if (invocation->what == What::kHelp || invocation->what == What::kVersion) {
    return put_out(invocation->text);
  }
  std::string whose;  // whose daemon it is that would find a fault, where that is not clear
  if (invocation->what == What::kCheckConfig) {
    const std::string directory = invocation->config.runtime_dir;
    if (const std::string user = become_user_of(directory); !user.empty()) {
      whose = fmt::format("for {}, whose {} is: ", user, directory);
      invocation = load_config(arguments, process_environment());
      if (!invocation) return refuse(whose + invocation.error());
    }
  }
  const Config& config = invocation->config;
  for (const std::string& fault :
       {fault_of(config), fault_of_sources(config), fault_of_runtime_dir(config.runtime_dir)}) {
    if (!fault.empty()) return refuse(whose + fault);
  }
  start_logging(config.log_level);
  if (invocation->what == What::kKeep) return keep(config, program, arguments);
  if (invocation->what == What::kCheckConfig) return check(config, whose);
  const NetworkWait wait = await_network(config);
  if (wait.told_to_end) return kDrained;
  // First of all: they fork, and must not inherit what is opened below.
  Children children;
  children.gpu_watch.start(config.nvml_library);
  children.look.start(look_options_of(config));
  FdStore store;
  auto lanes = make_lanes(config);
  const int status = lanes ? serve(config, std::move(*lanes), &store, &children, arguments)
                           : refuse(lanes.error().message());
  return status == kWrongConfiguration && !wait.missing.empty() ? kNotYet : status;
}

}  // namespace
}  // namespace gradring::daemon

int main(int argc, char** argv) {
  gradring::daemon::fill_standard_descriptors();
  try {
    return gradring::daemon::run(argv[0], std::vector<std::string>(argv + 1, argv + argc));
  } catch (const std::exception& error) {  // the system has no room for a socket, or a thread
    gradring::daemon::refuse(error.what());
    return gradring::daemon::kNotYet;
  }
}
