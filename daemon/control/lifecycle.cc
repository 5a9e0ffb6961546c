// From the first signal to the end.

#include <fcntl.h>
#include <fmt/format.h>
#include <grp.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "daemon/clock.h"
#include "daemon/control/control_thread.h"
#include "daemon/keep/exit_status.h"
#include "daemon/notice.h"

namespace gradring::daemon {
namespace {

// For the data thread to give back every buffer and for trainers to be told.
constexpr core::Time kStopTime = 1 * core::kSecond;

// What was told goes out by libzmq's own thread, and a trainer that sees its attach socket close
// before it has read why would blame a crash; a peer that hears of the end of its own connection to
// us before it has what came on ours to it, too. So the sockets stay open a moment longer, or until
// all have gone.
constexpr core::Time kLastWordsTime = 200 * core::kMillisecond;

// What is sent to a keeper and its daemon at once, as by `pkill gradringd` or to all of a cgroup,
// comes a second time from the keeper, which passes it on.
constexpr core::Time kEchoTime = 1 * core::kSecond;

// Of a machine that is busy, on top of these.
constexpr core::Time kStopMargin = 10 * core::kSecond;

void tell_not_reread(const std::string& why) {
  tell(Notice::kNotReread, spdlog::level::err, {}, "configuration not reread: " + why);
}

}  // namespace

// Of that socket and no other file: whoever may write to the directory can have put a link there.
Status set_access(const std::string& path, uint32_t mode, const std::string& group) {
  const Fd file(open(path.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  struct stat state {};
  if (!file || fstat(file.get(), &state) != 0 || !S_ISSOCK(state.st_mode)) {
    return {Code::kPermissionDenied,
            fmt::format("{} is not the socket any more that was made there: others write to the "
                        "directory; choose another runtime-dir",
                        path)};
  }
  const std::string itself = fmt::format("/proc/self/fd/{}", file.get());
  if (!group.empty()) {
    const struct group* entry = getgrnam(group.c_str());
    if (entry == nullptr) {
      return {Code::kInvalidArgument, fmt::format("socket-group: there is no group {}", group)};
    }
    if (chown(itself.c_str(), static_cast<uid_t>(-1), entry->gr_gid) != 0) {
      return {Code::kPermissionDenied,
              fmt::format("socket-group: cannot give {} to group {}: {}; is this user in it?", path,
                          group, std::strerror(errno))};
    }
  }
  if (chmod(itself.c_str(), mode) != 0) {
    return {Code::kPermissionDenied,
            fmt::format("socket-mode: cannot change {}: {}", path, std::strerror(errno))};
  }
  return {};
}

Status ControlThread::open_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGUSR1}) sigaddset(&set, signal);
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

// What was opened for trainers must not outlive the sessions that it is charged to.
ControlThread::~ControlThread() {
  gpu_opener_.end();
  setup_.events->take(&taken_);
  taken_.clear();
}

void ControlThread::read_signals(core::Time now) {
  signalfd_siginfo info{};
  while (read(signals_.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
    setup_.flight->record(
        {.kind = FlightKind::kSignal, .code = static_cast<uint8_t>(info.ssi_signo)});
    if (info.ssi_signo == SIGHUP) {
      reload();
      continue;
    }
    const bool by_parent = static_cast<pid_t>(info.ssi_pid) == getppid();
    if (phase_ == Phase::kServing || (phase_ == Phase::kDraining && !by_signal_)) {
      if (info.ssi_signo == SIGUSR1) make_way();
      signalled_ = {now, by_parent};
      drain_by_signal(now);
    } else if (phase_ == Phase::kDraining) {
      const bool echo = now - signalled_.at < kEchoTime && by_parent != signalled_.by_parent;
      if (!echo) start_stopping(now);
    }
  }
}

void ControlThread::reload() {
  auto config = setup_.reload();
  if (!config) {
    return tell_not_reread(config.error());
  }
  if (!config->allowed_keys_file.empty()) {
    auto keys = read_allowed_keys(config->allowed_keys_file);
    if (!keys) {
      return tell_not_reread(keys.error());
    }
    peers_.set_allowed_keys(std::move(*keys));
  }
  spdlog::set_level(spdlog::level::from_str(config->log_level));
  sessions_.set_limits(session_limits_of(*config));
  const auto waiting = wait_for_restart(setup_.config, *config);
  tell(Notice::kReread, spdlog::level::info, {},
       fmt::format("reread log-level, the limits of sessions and segments, and allowed-keys; {}",
                   waiting.empty() ? "no other setting has changed"
                                   : fmt::format("changed, but not before a restart: {}",
                                                 fmt::join(waiting, ", "))));
}

// `systemctl restart`: where jobs can go on in the next daemon they should. What that one needs is
// written before anything depends on it, so there is nothing to do but to be gone, as by SIGKILL.
void ControlThread::make_way() {
  if (setup_.config.restart_grace == 0 || !setup_.store->somebody_keeps()) return;
  spdlog::info("stopped at once: jobs go on in the next daemon, within {} s",
               setup_.config.restart_grace / core::kSecond);
  std::_Exit(keep::kMadeWay);
}

// One that somebody has asked for goes on as the signal's.
void ControlThread::drain_by_signal(core::Time now) {
  by_signal_ = true;
  const core::Time timeout = setup_.config.drain_timeout;
  if (phase_ == Phase::kDraining) {
    phase_deadline_ = std::min(phase_deadline_, now + timeout);
  } else {
    start_draining(timeout, now);
  }
  // By itself systemd gives a stop TimeoutStopSec, whatever drain-timeout says.
  const core::Time most = phase_deadline_ - now + kStopTime + kLastWordsTime;
  tell_systemd(fmt::format("STOPPING=1\nEXTEND_TIMEOUT_USEC={}",
                           (most + kStopMargin) / (core::kMillisecond / 1000)));
}

void ControlThread::drain(std::optional<core::Time> timeout) {
  const core::Time now = monotonic_now();
  const core::Time until = now + timeout.value_or(setup_.config.drain_timeout);
  if (phase_ == Phase::kServing) {
    start_draining(until - now, now);
  } else if (phase_ == Phase::kDraining && timeout) {
    phase_deadline_ = by_signal_ ? std::min(phase_deadline_, until) : until;
    advance_phase(now);
  }
}

void ControlThread::start_draining(core::Time timeout, core::Time now) {
  phase_ = Phase::kDraining;
  setup_.flight->record({.kind = FlightKind::kDraining});
  phase_deadline_ = now + timeout;
  set_draining(true);
  advance_phase(now);
  if (phase_ == Phase::kDraining) {
    tell(Notice::kDraining, spdlog::level::info, {},
         fmt::format("draining: running jobs have {} s to end; a{} signal {}",
                     timeout / core::kSecond, by_signal_ ? " second" : "",
                     by_signal_ ? "stops at once"
                                : fmt::format("leaves them {} s at most",
                                              setup_.config.drain_timeout / core::kSecond)));
  }
}

// What systemd was not told it need not forget: it would end a service that stops for longer than
// TimeoutStopSec.
void ControlThread::serve_again() {
  phase_ = Phase::kServing;
  set_draining(false);
  queries_.drain_over(monotonic_now());
  tell(Notice::kServingAgain, spdlog::level::info, {},
       "the drain is cancelled: new jobs are taken again");
}

DrainState ControlThread::drain_state() const {
  using Told = DrainState::Phase;
  if (phase_ == Phase::kServing) return {Told::kServing, {}, 0, false};
  if (phase_ == Phase::kDraining) {
    return {Told::kDraining, membership_.live_jobs(), phase_deadline_, by_signal_};
  }
  return {Told::kStopping, cut_off_, 0, by_signal_};
}

void ControlThread::set_draining(bool draining) {
  requests_.set_draining(draining);
  queries_.set_draining(draining);
  vitals_.set_draining(draining);
}

void ControlThread::start_stopping(core::Time now) {
  phase_ = Phase::kStopping;
  cut_off_ = membership_.live_jobs();
  if (!by_signal_) tell_systemd("STOPPING=1");
  setup_.flight->record({.kind = FlightKind::kStopping});
  phase_deadline_ = now + kStopTime;
  Failure failure{Cause::kDrained, {}};
  failure.blame.node = setup_.config.node;
  failure.blame.evidence = "the daemon was told to stop";
  membership_.shut_down(failure);
  peers_.say_farewell();
  queries_.drain_over(now);
}

void ControlThread::advance_phase(core::Time now) {
  if (phase_ == Phase::kDraining) {
    // Forming ones will not become complete any more.
    if (membership_.live_jobs().empty() || now >= phase_deadline_) start_stopping(now);
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
  const bool all_gone = sessions_.count() == 0 && !peers_.is_missed();
  const bool nobody_waits = all_gone || now >= phase_deadline_;
  if (phase_ == Phase::kLastWords && nobody_waits && !queries_.owes_a_drains_end(now)) {
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
