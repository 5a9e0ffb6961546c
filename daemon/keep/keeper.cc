#include "daemon/keep/keeper.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <limits>
#include <utility>

#include "daemon/clock.h"
#include "daemon/keep/child.h"
#include "daemon/keep/kept_fds.h"
#include "daemon/keep/notify_message.h"
#include "daemon/keep/notify_socket.h"

namespace gradring::keep {
namespace {

using daemon::monotonic_now;

constexpr Time kNever = std::numeric_limits<Time>::max();
constexpr int kFailed = 1;

// So that a flood of notices leaves time for signals.
constexpr int kNoticesPerTurn = 4096;

// Woken so much too late, it was this process that slept (a container that was paused, say), and
// the child with it.
constexpr Time kOverslept = 1 * core::kSecond;

// To look at its configuration a program takes a hundredth of a second.
constexpr Time kCheckTime = 10 * core::kSecond;

// A child lines its descriptors up beside those it has, so their numbers reach twice as far.
size_t possible(size_t fds_max) {
  constexpr rlim_t kOurOwn = 64;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return fds_max;
  const rlim_t room = limit.rlim_cur > kOurOwn ? (limit.rlim_cur - kOurOwn) / 2 : 0;
  return std::min<size_t>(fds_max, room);
}

class Keeper {
 public:
  explicit Keeper(const KeeperOptions& options)
      : options_(options),
        fds_max_(possible(options.fds_max)),
        kept_(fds_max_),
        policy_(options.restart) {}

  int run();

 private:
  bool open();
  void start(Time now);
  void wait();
  void read_notices();
  void obey(const NotifyMessage& message, std::vector<Fd> fds);
  void pass_on(const NotifyMessage& message) const;
  void read_signals();
  void on_signal(int signal);
  void check();
  void on_checked(int wait_status);
  void reap();
  void on_end(int wait_status);
  void look_at_the_clock();
  void end(int status);
  bool runs() const { return child_ > 0; }

  const KeeperOptions& options_;
  const size_t fds_max_;
  KeptFds kept_;
  NotifySocket notices_;
  Fd signals_;
  RestartPolicy policy_;

  pid_t child_ = 0;
  pid_t check_ = 0;              // the program looks at its configuration, for SIGUSR1
  Time start_at_ = kNever;       // while no child runs
  Time silent_until_ = kNever;   // a child that has said nothing by then hangs
  Time kill_at_ = kNever;        // a child that was told to abort has ended by then
  Time checked_until_ = kNever;  // or it is not taken
  bool ready_ = false;
  bool stopping_ = false;   // whoever runs us wants an end
  bool replacing_ = false;  // SIGUSR1, and the check was good
  bool over_ = false;
  int status_ = 0;
};

bool Keeper::open() {
  if (const Status status = notices_.open(options_.notify_socket); !status.ok()) {
    spdlog::error("keeper: {}", status.message());
    return false;
  }
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGUSR1}) sigaddset(&set, signal);
  sigprocmask(SIG_BLOCK, &set, nullptr);
  signals_.reset(signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC));
  if (signals_) return true;
  spdlog::error("keeper: cannot watch for signals: {}", strerror(errno));
  return false;
}

int Keeper::run() {
  if (!open()) return kFailed;
  start(monotonic_now());
  while (!over_) {
    wait();
    read_notices();
    read_signals();
    for (const std::string& name : kept_.drop_hung_up()) {
      spdlog::debug("keeper: {} hung up and is let go", name);
    }
    look_at_the_clock();
  }
  return status_;
}

void Keeper::start(Time now) {
  start_at_ = kill_at_ = kNever;
  ready_ = replacing_ = false;
  const auto pid = start_child(
      {options_.command, options_.notify_socket, fds_max_, options_.watchdog}, kept_.all());
  if (!pid) {
    spdlog::error("keeper: {}", pid.error());
    return end(kFailed);
  }
  child_ = *pid;
  silent_until_ = now + options_.start_time;
  policy_.started(now);
  spdlog::info("keeper: started {} (pid {}) with {} kept descriptors", options_.command.front(),
               child_, kept_.all().size());
}

void Keeper::wait() {
  std::array<pollfd, 3> fds = {
      {{notices_.fd(), POLLIN, 0}, {signals_.get(), POLLIN, 0}, {kept_.watch_fd(), POLLIN, 0}}};
  const Time until = std::min({start_at_, silent_until_, kill_at_, checked_until_});
  int milliseconds = -1;
  if (until != kNever) {
    const Time left = std::max<Time>(until - monotonic_now(), 0);
    milliseconds = static_cast<int>(std::min<Time>(left / core::kMillisecond + 1, 3'600'000));
  }
  poll(fds.data(), fds.size(), milliseconds);
}

// ---- what the child says ----

void Keeper::read_notices() {
  for (int i = 0; i < kNoticesPerTurn; ++i) {
    auto received = notices_.receive();
    if (!received) return;
    if (!runs() || received->pid != child_) {
      spdlog::debug("keeper: pid {} is not ours to listen to", received->pid);
      continue;
    }
    if (received->fds_lost) {
      spdlog::error(
          "keeper: out of file descriptors: not all of pid {}'s are kept (raise the "
          "limit of open files, ulimit -n)",
          child_);
    }
    const auto message = parse_notify_message(received->bytes);
    if (!message) {
      spdlog::warn("keeper: a notice of pid {} is passed over: {}", child_, message.error());
      continue;
    }
    if (!message->complaint.empty()) {
      spdlog::warn("keeper: in a notice of pid {}: {}", child_, message->complaint);
    }
    obey(*message, std::move(received->fds));
  }
}

// Descriptors that nobody asked to keep are closed on return, which is all that a barrier wants.
void Keeper::obey(const NotifyMessage& message, std::vector<Fd> fds) {
  const Time now = monotonic_now();
  if (message.ready) ready_ = true;
  if (message.ready || (ready_ && message.watchdog == NotifyMessage::Watchdog::kFed)) {
    silent_until_ = now + options_.watchdog;
  }
  if (message.watchdog == NotifyMessage::Watchdog::kTriggered) silent_until_ = now;
  if (message.store == NotifyMessage::Store::kRemove) kept_.remove(message.name);
  if (message.store == NotifyMessage::Store::kAdd) {
    for (Fd& fd : fds) {
      const std::string refused = kept_.add(message.name, std::move(fd), message.poll);
      if (!refused.empty()) spdlog::error("keeper: {} is not kept: {}", message.name, refused);
    }
  }
  pass_on(message);
}

// In a container whose engine waits for the service to be ready.
void Keeper::pass_on(const NotifyMessage& message) const {
  std::string text;
  if (message.ready) text += "READY=1\n";
  if (message.stopping && stopping_) text += "STOPPING=1\n";
  if (!message.extend.empty() && stopping_) {
    text += "EXTEND_TIMEOUT_USEC=" + message.extend + "\n";
  }
  if (!message.status.empty()) text += "STATUS=" + message.status + "\n";
  if (!text.empty()) sd_notify(/*unset_environment=*/0, text.c_str());
}

// ---- signals ----

void Keeper::read_signals() {
  signalfd_siginfo info{};
  while (!over_ && read(signals_.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
    on_signal(static_cast<int>(info.ssi_signo));
  }
}

void Keeper::on_signal(int signal) {
  switch (signal) {
    case SIGCHLD:
      return reap();
    case SIGUSR1:
      if (stopping_ || check_ > 0) return;
      spdlog::info("keeper: told to restart gradringd at once");
      if (runs()) return check();
      start_at_ = monotonic_now();
      return;
    case SIGHUP:
      if (runs()) kill(child_, SIGHUP);
      return;
    default:
      stopping_ = true;
      if (!runs()) return end(0);
      kill(child_, signal);
  }
}

// One that could not start would leave the node without a daemon, and its jobs without a node.
void Keeper::check() {
  const auto pid = start_check(options_.command);
  if (!pid) {
    spdlog::error("keeper: {}; gradringd (pid {}) goes on", pid.error(), child_);
    return;
  }
  check_ = *pid;
  checked_until_ = monotonic_now() + kCheckTime;
}

void Keeper::on_checked(int wait_status) {
  check_ = 0;
  checked_until_ = kNever;
  if (stopping_ || !runs()) return;
  if (WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0) {
    replacing_ = true;
    kill(child_, SIGKILL);
    return;
  }
  spdlog::error(
      "keeper: gradringd (pid {}) goes on, as `{} --check-config` ended with {} {}; put it right, "
      "and say it again",
      child_, fmt::join(options_.command, " "), WIFEXITED(wait_status) ? "exit status" : "signal",
      WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : WTERMSIG(wait_status));
}

void Keeper::reap() {
  int wait_status = 0;
  // As process 1 of a container we are also given the children of others.
  for (pid_t pid = 0; (pid = waitpid(-1, &wait_status, WNOHANG)) > 0;) {
    if (pid == child_) on_end(wait_status);
    if (pid == check_) on_checked(wait_status);
  }
}

void Keeper::on_end(int wait_status) {
  const Time now = monotonic_now();
  read_notices();  // what it gave away at its end counts
  const pid_t pid = std::exchange(child_, 0);
  silent_until_ = kill_at_ = kNever;
  RestartPolicy::Verdict verdict = policy_.ended(wait_status, now);
  // It made way, perhaps by a SIGUSR1 of its own, as of `pkill -USR1 gradringd`.
  const bool at_once = replacing_ || (verdict.restart && verdict.at <= now);
  if (at_once && !stopping_) {
    if (check_ > 0) kill(check_, SIGKILL);  // of what is started anyway
    check_ = 0;
    checked_until_ = kNever;
    start_at_ = now;
    return;
  }
  if (verdict.restart && !stopping_) {
    spdlog::warn("keeper: gradringd (pid {}) {}; starting it again in {} ms", pid, verdict.why,
                 (verdict.at - now) / core::kMillisecond);
    start_at_ = verdict.at;
    return;
  }
  if (stopping_ && verdict.restart && !at_once) verdict.status = kFailed;
  spdlog::log(verdict.status == 0 ? spdlog::level::info : spdlog::level::err,
              "keeper: gradringd (pid {}) {}", pid, verdict.why);
  end(verdict.status);
}

void Keeper::end(int status) {
  over_ = true;
  status_ = status;
}

// ---- time ----

void Keeper::look_at_the_clock() {
  const Time now = monotonic_now();
  if (over_) return;
  if (!runs() && now >= start_at_) return start(now);
  if (silent_until_ != kNever && now - silent_until_ > kOverslept) {
    silent_until_ = now + options_.watchdog;
  }
  if (now >= silent_until_) {
    silent_until_ = kNever;
    kill_at_ = now + options_.abort_time;
    spdlog::error("keeper: gradringd (pid {}) {}; it is aborted", child_,
                  ready_ ? "does not feed its watchdog" : "does not become ready");
    kill(child_, SIGABRT);
    kill(child_, SIGCONT);  // one that is stopped would not even die
  }
  if (now >= kill_at_) {
    kill_at_ = kNever;
    kill(child_, SIGKILL);
  }
  if (now >= checked_until_) {
    checked_until_ = kNever;
    kill(check_, SIGKILL);
  }
}

}  // namespace

int run_keeper(const KeeperOptions& options) { return Keeper(options).run(); }

}  // namespace gradring::keep
