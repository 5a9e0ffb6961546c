#pragma once

#include <signal.h>
#include <sys/types.h>
#include <unistd.h>

#include <chrono>
#include <set>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "tools/run/ending.h"
#include "tools/run/outlet.h"
#include "tools/run/process.h"
#include "tools/run/stream.h"

namespace gradring::tools {

class Guard;

struct Rules {
  std::string program = "gradring-run";   // whose messages these are
  int lifeline = -1;                      // when it reads end of file, everything is ended
  std::chrono::milliseconds grace{5000};  // from SIGTERM to SIGKILL
  bool elastic = false;                   // one that fails does not end the others
  int restarts = 0;                       // how often each is started anew, if elastic
  bool elsewhere = false;                 // other ranks run on other hosts: see kOthersDone
  bool answers = false;                   // see kAnswered
};

// On an agent's lifeline: all ranks of other hosts have ended, and some of them well.
inline constexpr char kOthersDone = 'e';

// Runs processes side by side. When one fails, or on SIGINT, SIGTERM or SIGHUP, the others are
// asked to end and killed after the grace; so are all their descendants, whatever group or session
// they moved to. SIGUSR1 and SIGUSR2 are passed on to each of them. Blocks those signals and
// SIGCHLD in the calling thread; to be used once, by the main thread.
class Supervisor {
 public:
  Supervisor(std::vector<Process> processes, Rules rules);
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;
  ~Supervisor();

  // Returns when nothing of it runs any more. The exit code of the process that failed first (128 +
  // N if signal N ended it, 127 if it could not be started), 128 + N if signal N ended the launch,
  // 1 if the output could not be written, else 0. If elastic, processes that ran and failed count
  // instead: see kFailuresMax.
  int run();

 private:
  using Clock = std::chrono::steady_clock;
  enum class Phase { kRunning, kEnding, kKilling };

  // A process group. Its leader stays a zombie until all is over, so that the number cannot be
  // given to strangers while it may still be signalled.
  struct Member {
    Process process;
    Child child;
    bool ended = false;
    bool well = false;  // it ended so; behind a lifeline: some of its ranks did
    int restarts = 0;
    Stream out, err;
  };

  static tl::expected<void, std::string> save_output(Member* member);
  bool start_all(const Guard& guard);
  void wait_for_event();
  void take_signals();
  void pass_on(int number);
  void take_output(bool last);
  static bool asks_at_terminal(const Member& member);
  void refuse_to_ask();
  void take_exits();
  void answer(Member& member, const Ending& ending);
  void lose(Member& member, const Ending& ending);
  bool start_anew(Member& member);
  bool others_are_done(const Member& lost) const;
  void tell_whom_all_have_left();
  std::vector<pid_t> strays() const;
  bool sweep();
  bool all_ended() const;

  void end_all();
  void kill_all();
  void fail(int exit_code);
  void say(const std::string& sentence);

  std::vector<Member> members_;
  Rules rules_;
  int endings_;  // signalfd of those that end all, to be looked at alone
  Outlet out_{STDOUT_FILENO, endings_}, err_{STDERR_FILENO, endings_};
  int signals_ = -1;  // signalfd
  pid_t guard_ = -1;
  int guards_door_ = -1;
  Phase phase_ = Phase::kRunning;
  int exit_code_ = 0;
  int failures_ = 0;          // of ranks, if elastic
  bool others_done_ = false;  // kOthersDone has come
  Clock::time_point deadline_{};
  std::set<pid_t> asked_;      // strays that got SIGTERM
  std::vector<pid_t> former_;  // leaders in whose place others were started, zombies as well
};

}  // namespace gradring::tools
