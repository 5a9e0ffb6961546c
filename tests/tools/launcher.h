#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/tools/process.h"

// What the tests of gradring-run share: commands that say who they are, and launchers beside the
// test.
namespace gradring::tools {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

inline bool eventually(const std::function<bool()>& condition,
                       milliseconds patience = seconds(10)) {
  const auto end = Clock::now() + patience;
  while (!condition()) {
    if (Clock::now() > end) return false;
    std::this_thread::sleep_for(milliseconds(10));
  }
  return true;
}

inline bool runs(pid_t pid) {
  std::string number, name, state;
  std::ifstream("/proc/" + std::to_string(pid) + "/stat") >> number >> name >> state;
  return !state.empty() && state != "Z" && state != "X";
}

// Commands of a test write their pids here, so that it can see what became of them.
struct Pids {
  TemporaryFolder folder;

  std::string file(const std::string& name) const { return folder.path() + "/" + name; }
  // For a shell: keeps its own pid.
  std::string note(const std::string& name) const {
    return "echo $$ >" + file(name + ".$RANK") + "; ";
  }
  pid_t of(const std::string& name) const {
    pid_t pid = 0;
    eventually([&] { return static_cast<bool>(std::ifstream(file(name)) >> pid); });
    return pid;
  }
};

// A launcher that runs beside the test, which sees to it that it ends.
class Background {
 public:
  explicit Background(const std::vector<std::string>& words) {
    prctl(PR_SET_CHILD_SUBREAPER, 1);  // what outlives it is for us to bury
    pid_ = fork();
    if (pid_ == 0) {
      const int null = open("/dev/null", O_WRONLY);
      if (null >= 0) dup2(null, STDERR_FILENO);
      std::vector<char*> argv;
      for (const auto& word : words) argv.push_back(const_cast<char*>(word.c_str()));
      argv.push_back(nullptr);
      execvp(argv[0], argv.data());
      _exit(127);
    }
  }
  ~Background() {
    if (pid_ > 0) kill(pid_, SIGKILL), waitpid(pid_, nullptr, 0);
    while (waitpid(-1, nullptr, WNOHANG) > 0) {
    }
  }
  pid_t pid() const { return pid_; }
  // 128 + N: ended by signal N.
  int wait() {
    int status = 0;
    waitpid(std::exchange(pid_, -1), &status, 0);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }

 private:
  pid_t pid_;
};

inline std::vector<std::string> launch(const std::string& ranks, const std::string& script,
                                       const std::vector<std::string>& options = {}) {
  std::vector<std::string> words = {GRADRING_RUN, "-np", ranks};
  words.insert(words.end(), options.begin(), options.end());
  words.insert(words.end(), {"sh", "-c", script});
  return words;
}

// Stands in for ssh: other "hosts" are this one, in an environment as bare as a login's and in a
// session that hears of its caller through its standard input alone.
struct FakeSsh : Pids {
  std::string path = file("rsh");

  FakeSsh() {
    const std::string pipe = file("pipe.$host");
    std::ofstream(path) << "#!/bin/sh\nhost=$1; shift; exec 3<&0; mkfifo " << pipe
                        << "\nsetsid env -i PATH=/usr/bin:/bin REMOTE=$host sh -c \"$*\" <" << pipe
                        << " 3<&- &\nremote=$!\ncat <&3 >" << pipe
                        << " &\nwait $remote; code=$?; kill $!; exit $code\n";
    chmod(path.c_str(), 0755);
  }
};

}  // namespace gradring::tools
