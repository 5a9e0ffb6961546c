// gradringd: reads the configuration, builds the parts, hands them to one another and waits for the
// end. The only file that names a transport's body.

#include <fmt/format.h>
#include <signal.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "daemon/clock.h"
#include "daemon/config.h"
#include "daemon/control/control_thread.h"
#include "daemon/control/lock_file.h"
#include "daemon/data/data_thread.h"
#include "daemon/fd_store.h"
#include "daemon/flight/recorder.h"
#include "daemon/host_limits.h"
#include "daemon/keep/keeper.h"
#include "proto/version.h"
#include "transport/ucx/ucx_transport.h"

namespace gradring::daemon {
namespace {

constexpr int kDrained = 0;
constexpr int kWrongConfiguration = 2;

// Submissions that may wait for the data thread before trainers are made to wait: some turns of its
// work.
constexpr size_t kCommandsMax = 4096;
// Beyond this the data thread saves itself its pulse; what must be told is told.
constexpr size_t kEventsMax = 65536;

int refuse(const std::string& why) {
  fmt::print(stderr, "gradringd: {}\n", why);
  return kWrongConfiguration;
}

// In every thread that will be: the control thread reads them from a descriptor.
void block_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&set, signal);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
}

void start_logging(const Config& config) {
  auto logger = std::make_shared<spdlog::logger>("gradringd",
                                                 std::make_shared<spdlog::sinks::stderr_sink_mt>());
  // Under systemd the journal has the time already.
  logger->set_pattern(getenv("JOURNAL_STREAM") != nullptr ? "%l: %v"
                                                          : "%Y-%m-%d %H:%M:%S.%e %l: %v");
  logger->set_level(spdlog::level::from_str(config.log_level));
  logger->flush_on(spdlog::level::trace);
  spdlog::set_default_logger(std::move(logger));
}

// Each device that is named is a lane; where none is, all that the transport chooses are one.
tl::expected<Lanes, Status> make_lanes(const Config& config) {
  transport::UcxOptions options;
  options.listen_address = parse_host_port(config.listen)->host;
  Lanes lanes;
  for (size_t lane = 0; lane < std::max<size_t>(config.net_devices.size(), 1); ++lane) {
    if (!config.net_devices.empty()) options.devices = {config.net_devices[lane]};
    auto transport = transport::make_ucx_transport(options);
    if (!transport) return tl::unexpected(transport.error());
    lanes.push_back(std::move(*transport));
  }
  return lanes;
}

StandingFacts facts_of(const Lanes& lanes) {
  StandingFacts facts{lanes.front()->name(), "", lanes.front()->devices_reason(), monotonic_now()};
  for (const auto& lane : lanes) {
    facts.devices += (facts.devices.empty() ? "" : ", ") + lane->devices();
  }
  return facts;
}

// "ucx 1.13.1" -> "ucx 1.13": what must be alike on two nodes that talk.
std::string compatible_name(const std::string& name) {
  const size_t dot = name.find('.');
  const size_t second = dot == std::string::npos ? dot : name.find('.', dot + 1);
  return name.substr(0, second);
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

// Nobody is denied gradients for want of a recorder.
void warn_of(const Status& status) {
  if (!status.ok()) spdlog::warn("no flight recorder: {}", status.message());
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

int serve(const Config& config, Lanes lanes, FdStore* store,
          const std::vector<std::string>& arguments) {
  auto lock = lock_runtime_dir(config.runtime_dir);
  if (!lock) return refuse(lock.error());
  raise_file_limit();
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
  setup.facts = facts_of(lanes);
  setup.identity.node = config.node;
  setup.identity.boot_id = random_u64();
  setup.identity.transport = compatible_name(setup.facts.transport);
  setup.identity.slice_bytes = slice_bytes;
  setup.identity.slots = static_cast<uint32_t>(config.slots);
  for (const auto& lane : lanes) {
    setup.identity.data_addresses.push_back(lane->address());
    setup.identity.devices.push_back(lane->devices());
  }
  setup.commands = &commands;
  setup.events = &events;
  setup.flight = flight.control();
  setup.store = store;
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
  ControlThread control(setup);
  if (const Status status = control.open(); !status.ok()) return refuse(status.message());
  warn_of(flight.publish());
  flight.control()->record({.kind = FlightKind::kDaemonStarted}, kProductVersion);

  DataThread data(std::move(lanes),
                  {engine, config.staging_limit, config.feedback_limit, config.suspect / 4,
                   flight.data(), config.restart_grace > 0, config.tuning == "auto",
                   static_cast<uint32_t>(*config.reduce_threads), config.bundle_bytes},
                  &commands, &events);
  std::thread data_thread([&data] { data.run(); });
  spdlog::info("node {} is ready: runtime-dir {}, listen {}, {} on {} ({})", config.node,
               config.runtime_dir, config.listen, setup.facts.transport, setup.facts.devices,
               setup.facts.devices_reason);
  control.run();
  commands.post(StopData{});
  data_thread.join();
  flight.control()->record({.kind = FlightKind::kDaemonStopped});
  return kDrained;
}

int run(const std::string& program, const std::vector<std::string>& arguments) {
  block_signals();
  const auto invocation = load_config(arguments, process_environment());
  if (!invocation) return refuse(invocation.error());
  using What = Invocation::What;
  if (invocation->what == What::kHelp || invocation->what == What::kVersion) {
    fmt::print("{}", invocation->text);
    return 0;
  }
  const Config& config = invocation->config;
  for (const std::string& fault : {fault_of(config), fault_of_runtime_dir(config.runtime_dir)}) {
    if (!fault.empty()) return refuse(fault);
  }
  start_logging(config);
  if (invocation->what == What::kKeep) return keep(config, program, arguments);
  FdStore store;
  auto lanes = make_lanes(config);
  if (!lanes) return refuse(lanes.error().message());
  if (invocation->what == What::kCheckConfig) {
    const StandingFacts facts = facts_of(*lanes);
    fmt::print("OK: node {}, {} on {} ({})\n", config.node, facts.transport, facts.devices,
               facts.devices_reason);
    return 0;
  }
  return serve(config, std::move(*lanes), &store, arguments);
}

}  // namespace
}  // namespace gradring::daemon

int main(int argc, char** argv) {
  return gradring::daemon::run(argv[0], std::vector<std::string>(argv + 1, argv + argc));
}
