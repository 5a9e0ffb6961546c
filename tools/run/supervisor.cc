#include "tools/run/supervisor.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <initializer_list>
#include <utility>

#include "tools/common/text.h"
#include "tools/run/guard.h"

namespace gradring::tools {
namespace {

// How often the end is looked at: the death of somebody else's orphan sends no signal.
constexpr int kSweepMs = 20;
// An agent on another host needs its own grace first, and a moment to report.
constexpr std::chrono::milliseconds kAgentExtra{3000};
// After SIGKILL only a process that the kernel itself cannot end is left.
constexpr std::chrono::milliseconds kUnkillable{5000};

// Where all ranks ended well, and not all that they printed could be passed on.
constexpr int kUnwritten = 1;

// nohup, and a shell that starts it in the background, have some ignored. Blocked ones would come
// all the same.
bool is_ignored(int number) {
  struct sigaction now {};
  return sigaction(number, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
}

void add_heard(std::initializer_list<int> numbers, sigset_t* set) {
  for (const int number : numbers) {
    if (!is_ignored(number)) sigaddset(set, number);
  }
}

// Those that end all.
sigset_t ending_signals() {
  sigset_t set;
  sigemptyset(&set);
  add_heard({SIGINT, SIGTERM, SIGHUP}, &set);
  return set;
}

// Those that are the ranks' own, by which schedulers say that time is nearly up; to an agent they
// go as letters on its lifeline.
struct PassedOn {
  int number;
  char letter;
};
constexpr std::array kPassedOn = {PassedOn{SIGUSR1, '1'}, PassedOn{SIGUSR2, '2'}};

int signals_in(const sigset_t& set) { return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK); }

Tagger tagger_of(const Process& process) {
  return Tagger(process.tag, process.stamp ? time_now : nullptr, process.line_ends);
}

}  // namespace

Supervisor::Supervisor(std::vector<Process> processes, Rules rules)
    : rules_(std::move(rules)), endings_(signals_in(ending_signals())) {
  for (Process& process : processes) {
    const Tagger tagger = tagger_of(process);
    members_.push_back(
        {std::move(process), {}, false, false, 0, Stream(tagger, &out_), Stream(tagger, &err_)});
  }
  sigset_t set = ending_signals();
  sigaddset(&set, SIGCHLD);
  for (const PassedOn& one : kPassedOn) add_heard({one.number}, &set);
  sigprocmask(SIG_BLOCK, &set, nullptr);
  signal(SIGPIPE, SIG_IGN);
  signals_ = signals_in(set);
  // Whatever a rank leaves behind becomes a child of ours, and can be ended.
  prctl(PR_SET_CHILD_SUBREAPER, 1);
}

Supervisor::~Supervisor() {
  if (signals_ >= 0) close(signals_);
  if (endings_ >= 0) close(endings_);
}

int Supervisor::run() {
  raise_file_limit();
  const Guard guard;
  guard_ = guard.pid();
  guards_door_ = guard.door();
  if (!start_all(guard)) end_all();

  while (true) {
    take_signals();
    refuse_to_ask();
    take_exits();
    take_output(false);
    if (phase_ == Phase::kRunning && all_ended()) end_all();
    const bool orphans = sweep();
    if (phase_ != Phase::kRunning && all_ended() && !orphans) break;
    if (phase_ == Phase::kEnding && Clock::now() >= deadline_) kill_all();
    if (phase_ == Phase::kKilling && Clock::now() >= deadline_) {
      say("something cannot be killed; the kernel holds it (state D in ps)");
      break;
    }
    wait_for_event();
  }
  take_output(true);
  if (out_.fault() != 0) {
    say(fmt::format("cannot write all of the output: {}", std::strerror(out_.fault())));
    if (failures_ == 0) fail(kUnwritten);
  }
  for (Member& member : members_) {
    for (const Stream* stream : {&member.out, &member.err}) {
      if (!stream->failed_file().empty())
        say(fmt::format("{} could not take all of the output; is there room?",
                        stream->failed_file()));
    }
    if (member.child.lifeline >= 0) close(member.child.lifeline);
    if (member.child.pid > 0) waitpid(member.child.pid, nullptr, WNOHANG);
  }
  for (const pid_t pid : former_) waitpid(pid, nullptr, WNOHANG);
  return exit_code_ != 0 ? exit_code_ : std::min(failures_, kFailuresMax);
}

tl::expected<void, std::string> Supervisor::save_output(Member* member) {
  const std::string& folder = member->process.output;
  if (folder.empty()) return {};
  if (auto saved = member->out.save_to(folder + "/stdout"); !saved) return saved;
  return member->err.save_to(folder + "/stderr");
}

bool Supervisor::start_all(const Guard& guard) {
  for (Member& member : members_) {
    const auto saved = save_output(&member);
    const auto child = saved ? start(member.process, guard.door()) : tl::unexpected(saved.error());
    if (!child) {
      say(child.error());
      fail(kNotRun);
      for (Member& other : members_) other.ended = other.ended || other.child.pid < 0;
      return false;
    }
    member.child = *child;
  }
  return true;
}

void Supervisor::wait_for_event() {
  std::vector<pollfd> fds = {{signals_, POLLIN, 0}};
  if (rules_.lifeline >= 0) fds.push_back({rules_.lifeline, POLLIN, 0});
  for (const Member& member : members_) {
    for (const int fd : {member.child.out, member.child.err}) {
      if (fd >= 0) fds.push_back({fd, POLLIN, 0});
    }
  }
  poll(fds.data(), fds.size(), phase_ == Phase::kRunning ? -1 : kSweepMs);
  if (rules_.lifeline >= 0 && fds[1].revents != 0) {
    std::array<char, 256> letters;
    const auto size = read(rules_.lifeline, letters.data(), letters.size());
    for (ssize_t i = 0; i < size; ++i) {
      const auto* one =
          std::ranges::find(kPassedOn, letters[static_cast<size_t>(i)], &PassedOn::letter);
      if (one != kPassedOn.end()) pass_on(one->number);
      if (letters[static_cast<size_t>(i)] == kOthersDone) others_done_ = true;
    }
    if (size <= 0) {
      rules_.lifeline = -1;
      if (phase_ == Phase::kRunning) {
        fail(kOfSignals + SIGHUP);
        end_all();
      }
    }
  }
}

void Supervisor::take_signals() {
  signalfd_siginfo info{};
  while (read(signals_, &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
    const int number = static_cast<int>(info.ssi_signo);
    if (number == SIGCHLD) continue;
    if (std::ranges::count(kPassedOn, number, &PassedOn::number) > 0) {
      pass_on(number);
      continue;
    }
    fail(kOfSignals + number);
    out_.make_haste();
    err_.make_haste();
    if (phase_ == Phase::kRunning) {
      const auto left = static_cast<size_t>(std::ranges::count(members_, false, &Member::ended));
      say(fmt::format("{}: ending {}", strsignal(number), counted(left, "program")));
      end_all();
    } else if (phase_ == Phase::kEnding) {
      say(fmt::format("{} once more: killing what is left", strsignal(number)));
      kill_all();
    }
  }
}

void Supervisor::pass_on(int number) {
  for (const Member& member : members_) {
    if (member.ended || member.child.pid < 0) continue;
    if (!member.process.lifeline) {
      kill(member.child.pid, number);
      continue;
    }
    pollfd lifeline{member.child.lifeline, POLLOUT, 0};
    const char letter = std::ranges::find(kPassedOn, number, &PassedOn::number)->letter;
    // One that takes nothing is not waited for.
    if (poll(&lifeline, 1, 0) != 1 || write(lifeline.fd, &letter, 1) != 1)
      say(fmt::format("{} could not be told of {}", member.process.label, strsignal(number)));
  }
}

void Supervisor::take_output(bool last) {
  for (Member& member : members_) {
    member.out.drain(&member.child.out, last);
    member.err.drain(&member.child.err, last);
  }
}

// The terminal is ours, and ssh is not to take it from us: the kernel stops it when it asks there.
bool Supervisor::asks_at_terminal(const Member& member) {
  siginfo_t info{};
  return member.process.lifeline && !member.ended &&
         waitid(P_PID, static_cast<id_t>(member.child.pid), &info, WSTOPPED | WNOHANG | WNOWAIT) ==
             0 &&
         info.si_pid != 0 && (info.si_status == SIGTTIN || info.si_status == SIGTTOU);
}

void Supervisor::refuse_to_ask() {
  for (const Member& member : members_) {
    if (phase_ != Phase::kRunning || !asks_at_terminal(member)) continue;
    say(fmt::format(
        "{}: {} wants to ask something at the terminal, such as for a password or whether "
        "that host is known: log in there once by hand, with keys that need none",
        member.process.label, member.process.command.front()));
    fail(255);                         // as ssh says that it could not
    kill(-member.child.pid, SIGKILL);  // stopped, it would not hear
    end_all();
  }
}

// Looks without reaping: see Member.
void Supervisor::take_exits() {
  std::vector<std::pair<Member*, Ending>> exits;
  for (Member& member : members_) {
    siginfo_t info{};
    if (member.ended ||
        waitid(P_PID, static_cast<id_t>(member.child.pid), &info, WEXITED | WNOHANG | WNOWAIT) !=
            0 ||
        info.si_pid == 0) {
      continue;
    }
    const Ending ending = ending_of(member.process, rules_.answers, info);
    member.ended = true;
    member.well = ending.code < std::min(member.process.ranks, kFailuresMax);
    exits.emplace_back(&member, ending);
  }
  // Of several since the last look: one that a signal has ended, such as the kernel's that was out
  // of memory, is why the others gave up.
  std::stable_partition(exits.begin(), exits.end(),
                        [](const auto& one) { return one.second.code > kOfSignals; });
  for (const auto& [member, ending] : exits) {
    if (phase_ == Phase::kRunning) answer(*member, ending);
  }
}

void Supervisor::answer(Member& member, const Ending& ending) {
  if (rules_.elastic) {
    if (ending.code != 0) lose(member, ending);
    return tell_whom_all_have_left();
  }
  if (ending.code == 0) return;
  const auto left = std::ranges::count(members_, false, &Member::ended);
  say(fmt::format("{} (pid {}) {}{}", member.process.label, member.child.pid, ending.words,
                  left == 0 ? "" : fmt::format("; ending the {} still running", left)));
  fail(ending.code);
  end_all();
}

bool Supervisor::all_ended() const {
  return std::ranges::all_of(members_, [](const Member& member) { return member.ended; });
}

// Children of ours that we did not start: what the ranks left behind.
std::vector<pid_t> Supervisor::strays() const {
  std::ifstream file(fmt::format("/proc/self/task/{}/children", getpid()));
  std::vector<pid_t> found;
  for (pid_t pid = 0; file >> pid;) {
    const bool known = pid == guard_ || std::ranges::count(former_, pid) > 0 ||
                       std::ranges::any_of(
                           members_, [&](const Member& member) { return member.child.pid == pid; });
    if (!known) found.push_back(pid);
  }
  return found;
}

// Reaps dead strays and, once it comes to that, tells living ones to end; true while there are any.
bool Supervisor::sweep() {
  bool any = false;
  for (const pid_t pid : strays()) {
    if (waitpid(pid, nullptr, WNOHANG) == pid) {
      asked_.erase(pid);
      continue;
    }
    any = true;
    if (phase_ == Phase::kKilling) {
      kill(pid, SIGKILL);
    } else if (phase_ == Phase::kEnding && asked_.insert(pid).second) {
      kill(pid, SIGTERM);
      kill(pid, SIGCONT);  // a stopped one would not hear
    }
  }
  return any;
}

void Supervisor::end_all() {
  if (phase_ != Phase::kRunning) return;
  phase_ = Phase::kEnding;
  auto grace = rules_.grace;
  for (Member& member : members_) {
    if (member.child.pid < 0) continue;
    if (member.child.lifeline >= 0) {
      close(member.child.lifeline);
      member.child.lifeline = -1;
      if (!member.ended) grace = rules_.grace + kAgentExtra;
      continue;
    }
    kill(-member.child.pid, SIGTERM);
    kill(-member.child.pid, SIGCONT);
  }
  deadline_ = Clock::now() + grace;
}

void Supervisor::kill_all() {
  phase_ = Phase::kKilling;
  for (const Member& member : members_) {
    if (member.child.pid < 0) continue;
    if (!member.ended) {
      say(fmt::format("{} (pid {}) does not end: killing it", member.process.label,
                      member.child.pid));
    }
    kill(-member.child.pid, SIGKILL);
  }
  deadline_ = Clock::now() + kUnkillable;
}

void Supervisor::fail(int exit_code) {
  if (exit_code_ == 0) exit_code_ = exit_code;
}

void Supervisor::say(const std::string& sentence) {
  err_.write(fmt::format("{}: {}\n", rules_.program, sentence));
}

}  // namespace gradring::tools
