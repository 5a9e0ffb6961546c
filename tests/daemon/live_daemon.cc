#include "tests/daemon/live_daemon.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <random>
#include <sstream>
#include <stdexcept>
#include <thread>
#include <utility>

namespace gradring::daemon {
namespace {

using namespace std::chrono_literals;

// Sanitizers and busy machines are slow, and so are a real GPU's driver and NCCL; a good daemon
// takes 50 ms.
std::chrono::seconds patience() { return std::getenv("GRADRING_TEST_GPU") != nullptr ? 60s : 20s; }

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// The one that was built here, or where these tests were carried to another machine that one.
const char* program() {
  const char* const carried = std::getenv("GRADRINGD_PROGRAM");
  return carried != nullptr ? carried : GRADRINGD;
}

pid_t spawn(const std::vector<std::string>& flags, const std::string& output) {
  std::vector<char*> argv = {const_cast<char*>(program())};
  for (const std::string& flag : flags) argv.push_back(const_cast<char*>(flag.c_str()));
  argv.push_back(nullptr);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid != 0) return pid;
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // a test that crashes leaves no daemon behind
  if (getppid() != parent) _exit(127);
  const int fd = open(output.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  dup2(fd, STDOUT_FILENO);
  dup2(fd, STDERR_FILENO);
  execv(argv.front(), argv.data());
  _exit(127);
}

int wait_for(pid_t pid) {
  const auto until = std::chrono::steady_clock::now() + patience();
  int status = 0;
  while (waitpid(pid, &status, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() > until) {
      kill(pid, SIGKILL);
      waitpid(pid, &status, 0);
      return -1;
    }
    std::this_thread::sleep_for(2ms);
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

// Not one that the kernel hands out: it would give it to somebody's connection before the daemon
// has it, and tests that run beside this one come by random numbers to others. Nor one of the last
// that were handed out, whose daemon may not have begun.
int free_port() {
  constexpr int kFirst = 20'000, kLast = 32'000, kTries = 1000;
  constexpr size_t kLastOnes = 256;
  static std::mutex mutex;
  static std::deque<int> last;
  static std::mt19937 random{std::random_device()()};
  const std::lock_guard lock(mutex);
  for (int i = 0; i < kTries; ++i) {
    const int port = std::uniform_int_distribution(kFirst, kLast)(random);
    if (std::ranges::find(last, port) != last.end()) continue;
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(port));
    const bool free = bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
    close(fd);
    if (!free) continue;
    last.push_back(port);
    if (last.size() > kLastOnes) last.pop_front();
    return port;
  }
  ADD_FAILURE() << "no port is free";
  return 0;
}

Ended run_gradringd(const std::vector<std::string>& flags) {
  const Scratch scratch;
  const std::string output = scratch.path("output");
  Ended ended;
  ended.status = wait_for(spawn(flags, output));
  ended.output = text_of(output);
  return ended;
}

LiveDaemon::LiveDaemon(const std::vector<std::string>& more_flags, const std::string& node,
                       int port)
    : runtime_dir_(scratch_.path("run")),
      listen_("127.0.0.1:" + std::to_string(port == 0 ? free_port() : port)) {
  flags_ = {"--node", node, "--runtime-dir", runtime_dir_, "--listen", listen_};
  if (std::ranges::count(more_flags, "--config") == 0) {
    flags_.insert(flags_.end(), {"--config", "/dev/null"});
  }
  flags_.insert(flags_.end(), more_flags.begin(), more_flags.end());
  start();
}

LiveDaemon::~LiveDaemon() {
  if (pid_ > 0) stop();
}

void LiveDaemon::start() {
  pid_ = spawn(flags_, scratch_.path("log"));
  const auto until = std::chrono::steady_clock::now() + patience();
  while (log().find(" is ready") == std::string::npos) {
    if (!runs() || std::chrono::steady_clock::now() > until) {
      signal(SIGKILL);
      wait_for(std::exchange(pid_, -1));
      throw std::runtime_error("gradringd did not become ready:\n" + log());
    }
    std::this_thread::sleep_for(2ms);
  }
}

bool LiveDaemon::runs() const {
  siginfo_t info{};
  return waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
         info.si_pid == 0;
}

void LiveDaemon::signal(int number) const { kill(pid_, number); }

Ended LiveDaemon::stop() {
  signal(SIGTERM);
  Ended ended;
  ended.status = wait_for(pid_);
  ended.output = log();
  pid_ = -1;
  std::filesystem::resize_file(scratch_.path("log"), 0);  // start() looks for a new "is ready"
  return ended;
}

std::string LiveDaemon::log() const { return text_of(scratch_.path("log")); }

size_t LiveDaemon::open_files() const {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry :
       std::filesystem::directory_iterator("/proc/" + std::to_string(pid_) + "/fd")) {
    ++count;
  }
  return count;
}

std::vector<std::unique_ptr<LiveDaemon>> live_nodes(size_t count,
                                                    const std::vector<std::string>& more_flags) {
  std::vector<int> ports;
  for (size_t i = 0; i < count; ++i) ports.push_back(free_port());
  std::vector<std::unique_ptr<LiveDaemon>> nodes;
  for (size_t i = 0; i < count; ++i) {
    std::vector<std::string> flags = more_flags;
    for (size_t peer = 0; peer < count; ++peer) {
      if (peer == i) continue;
      flags.insert(flags.end(), {"--peer", "127.0.0.1:" + std::to_string(ports[peer])});
    }
    nodes.push_back(std::make_unique<LiveDaemon>(flags, "node" + std::to_string(i), ports[i]));
  }
  return nodes;
}

}  // namespace gradring::daemon
