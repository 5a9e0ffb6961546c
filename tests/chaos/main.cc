// gradring-chaos-trainers: the trainers of one node, each a forked child, so that the next one is
// there a few milliseconds after the last was killed. Commands come on stdin, a line each:
//
//   RANK SERIAL     start a trainer       answer: started SERIAL PID
//
// and whenever a trainer ends:                    ended SERIAL exit|signal NUMBER
//
// At the end of stdin all trainers are killed.
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <boost/program_options.hpp>
#include <cstdio>
#include <iostream>
#include <map>
#include <sstream>

#include "tests/chaos/trainer.h"

namespace {

namespace po = boost::program_options;
using gradring::chaos::Settings;

class Nursery {
 public:
  explicit Nursery(const Settings& settings) : settings_(settings) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigprocmask(SIG_BLOCK, &set, &before_);
    signals_ = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  }

  int run() {
    bool open = true;
    while (open) {
      pollfd fds[2] = {{STDIN_FILENO, POLLIN, 0}, {signals_, POLLIN, 0}};
      poll(fds, 2, -1);
      if (fds[1].revents != 0) reap();
      if (fds[0].revents != 0) open = read_commands();
    }
    for (const auto& [pid, serial] : children_) kill(pid, SIGKILL);
    while (wait(nullptr) > 0) {
    }
    return 0;
  }

 private:
  bool read_commands() {
    char buffer[4096];
    const ssize_t bytes = read(STDIN_FILENO, buffer, sizeof buffer);
    if (bytes <= 0) return false;
    pending_.append(buffer, static_cast<size_t>(bytes));
    for (size_t end; (end = pending_.find('\n')) != std::string::npos;) {
      std::istringstream words(pending_.substr(0, end));
      pending_.erase(0, end + 1);
      uint32_t rank = 0;
      std::string serial;
      if (words >> rank >> serial) start(rank, serial);
    }
    return true;
  }

  void start(uint32_t rank, const std::string& serial) {
    const pid_t parent = getpid();
    const pid_t pid = fork();
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(1);
      sigprocmask(SIG_SETMASK, &before_, nullptr);
      close(signals_);
      close(STDIN_FILENO);
      gradring::chaos::train(settings_, rank, serial);
      _exit(0);
    }
    children_[pid] = serial;
    say(fmt::format("started {} {}", serial, pid));
  }

  void reap() {
    signalfd_siginfo info;
    while (read(signals_, &info, sizeof info) > 0) {
    }
    int status = 0;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
      say(fmt::format("ended {} {} {}", children_[pid], WIFEXITED(status) ? "exit" : "signal",
                      WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status)));
      children_.erase(pid);
    }
  }

  static void say(const std::string& line) { std::cout << line << '\n' << std::flush; }

  const Settings& settings_;
  int signals_ = -1;
  sigset_t before_{};
  std::string pending_;
  std::map<pid_t, std::string> children_;
};

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  po::options_description known("The trainers of one node, for tools/chaos");
  // clang-format off
  known.add_options()
    ("help", "show this")
    ("folder", po::value(&settings.folder)->required(), "of their logs")
    ("size", po::value(&settings.size)->required(), "ranks of the job")
    ("policy", po::value(&settings.policy)->default_value("elastic"), "of the job")
    ("elements", po::value(&settings.elements_max)->default_value(131072), "of the largest op")
    ("join-every", po::value(&settings.join_every)->default_value(16), "ops between join points")
    ("open-ms", po::value(&settings.open_ms)->default_value(60000), "to find the daemon and the others")
    ("patience-ms", po::value(&settings.patience_ms)->default_value(120000), "with one op");
  // clang-format on
  try {
    po::variables_map values;
    po::store(po::parse_command_line(argc, argv, known), values);
    if (values.count("help") > 0) {
      std::cout << known;
      return 0;
    }
    po::notify(values);
  } catch (const po::error& error) {
    std::cerr << "gradring-chaos-trainers: " << error.what() << "\n";
    return 2;
  }
  return Nursery(settings).run();
}
