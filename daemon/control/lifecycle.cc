// From the first signal to the end.

#include <fmt/format.h>
#include <grp.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "daemon/control/control_thread.h"

namespace gradring::daemon {
namespace {

// For the data thread to give back every buffer and for trainers to be told.
constexpr core::Time kStopTime = 1 * core::kSecond;

// What was told goes out by libzmq's own thread, and a trainer that sees its attach socket close
// before it has read why would blame a crash. So the sockets stay open a moment longer, or until
// all have gone.
constexpr core::Time kLastWordsTime = 200 * core::kMillisecond;

}  // namespace

Status set_access(const std::string& path, uint32_t mode, const std::string& group) {
  if (!group.empty()) {
    const struct group* entry = getgrnam(group.c_str());
    if (entry == nullptr) {
      return {Code::kInvalidArgument, fmt::format("socket-group: there is no group {}", group)};
    }
    if (chown(path.c_str(), static_cast<uid_t>(-1), entry->gr_gid) != 0) {
      return {Code::kPermissionDenied,
              fmt::format("socket-group: cannot give {} to group {}: {}; is this user in it?", path,
                          group, std::strerror(errno))};
    }
  }
  if (chmod(path.c_str(), mode) != 0) {
    return {Code::kPermissionDenied,
            fmt::format("socket-mode: cannot change {}: {}", path, std::strerror(errno))};
  }
  return {};
}

Status ControlThread::open_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&set, signal);
  signals_.reset(signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC));
  if (!signals_ || !epoll_.add(signals_.get(), tag_of(Source::kSignals))) {
    return {Code::kInternal, fmt::format("cannot watch for signals: {}", std::strerror(errno))};
  }
  uint64_t microseconds = 0;
  if (sd_watchdog_enabled(0, &microseconds) > 0) {
    watchdog_interval_ = static_cast<core::Time>(microseconds) * 1000 / 2;
  }
  return {};
}

void ControlThread::read_signals(core::Time now) {
  signalfd_siginfo info{};
  while (read(signals_.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
    setup_.flight->record(
        {.kind = FlightKind::kSignal, .code = static_cast<uint8_t>(info.ssi_signo)});
    if (info.ssi_signo == SIGHUP) {
      reload();
    } else if (phase_ == Phase::kServing) {
      start_draining(now);
    } else if (phase_ == Phase::kDraining) {
      start_stopping(now);
    }
  }
}

void ControlThread::reload() {
  auto config = setup_.reload();
  if (!config) {
    spdlog::error("configuration not reread: {}", config.error());
    return;
  }
  if (!config->allowed_keys_file.empty()) {
    auto keys = read_allowed_keys(config->allowed_keys_file);
    if (!keys) {
      spdlog::error("configuration not reread: {}", keys.error());
      return;
    }
    peers_.set_allowed_keys(std::move(*keys));
  }
  spdlog::set_level(spdlog::level::from_str(config->log_level));
  sessions_.set_limits(session_limits_of(*config));
  spdlog::info(
      "reread log-level, the limits of sessions and segments, and allowed-keys; other settings "
      "need a restart");
}

void ControlThread::start_draining(core::Time now) {
  phase_ = Phase::kDraining;
  setup_.flight->record({.kind = FlightKind::kDraining});
  phase_deadline_ = now + setup_.config.drain_timeout;
  requests_.set_draining();
  queries_.set_draining();
  tell_systemd("STOPPING=1");
  advance_phase(now);
  if (phase_ == Phase::kDraining) {
    spdlog::info("draining: running jobs have {} s to end; a second signal stops at once",
                 setup_.config.drain_timeout / core::kSecond);
  }
}

void ControlThread::start_stopping(core::Time now) {
  phase_ = Phase::kStopping;
  setup_.flight->record({.kind = FlightKind::kStopping});
  phase_deadline_ = now + kStopTime;
  Failure failure{Cause::kDrained, {}};
  failure.blame.node = setup_.config.node;
  failure.blame.evidence = "the daemon was told to stop";
  membership_.shut_down(failure);
}

void ControlThread::advance_phase(core::Time now) {
  if (phase_ == Phase::kDraining) {
    size_t forming = 0;  // these will not become complete any more
    for (const core::JobInfo& info : membership_.jobs()) {
      forming += info.state == core::JobState::kForming ? 1 : 0;
    }
    if (membership_.busy_jobs() <= forming || now >= phase_deadline_) start_stopping(now);
  }
  if (phase_ == Phase::kStopping) {
    bool lent = false;
    sessions_.for_each([&lent](const Session& session) { lent = lent || !session.open.empty(); });
    flush_answers();
    if ((!lent && !clients_.waiting()) || now >= phase_deadline_) {
      phase_ = Phase::kLastWords;
      phase_deadline_ = now + kLastWordsTime;
    }
  }
  if (phase_ == Phase::kLastWords && (sessions_.count() == 0 || now >= phase_deadline_)) {
    phase_ = Phase::kStopped;
    spdlog::info("stopped");
  }
}

void ControlThread::tell_systemd(const std::string& state) const {
  const Config& config = setup_.config;
  sd_notify(0, fmt::format("{}\nSTATUS=node {}, listening at {}, {} on {}", state, config.node,
                           config.listen, setup_.facts.transport, setup_.facts.devices)
                   .c_str());
}

// Only while the data thread moves as well: this thread alone is not the daemon.
void ControlThread::feed_watchdog(core::Time now) {
  if (watchdog_interval_ == 0 || now - watchdog_fed_ < watchdog_interval_ / 2) return;
  if (progress_ == progress_fed_) return;
  progress_fed_ = progress_;
  watchdog_fed_ = now;
  sd_notify(0, "WATCHDOG=1");
}

}  // namespace gradring::daemon
