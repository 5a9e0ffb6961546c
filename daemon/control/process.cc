#include "daemon/control/process.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <vector>

namespace gradring::daemon {
namespace {

// Newer than the distribution's headers (Linux 6.5, 5.3).
constexpr int kSoPeerPidfd = 77;
constexpr int kSysPidfdOpen = 434;

// Fields of /proc/PID/stat from the third (state) on; the second, a name in parentheses, may hold
// blanks.
std::vector<std::string> stat_fields(int64_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string line;
  std::getline(file, line);
  const size_t after_name = line.rfind(')');
  std::vector<std::string> fields;
  if (after_name == std::string::npos) return fields;
  std::istringstream words(line.substr(after_name + 1));
  for (std::string word; words >> word;) fields.push_back(word);
  return fields;
}

// proc(5) counts from 1; ours begin at field 3.
constexpr size_t field(size_t number) { return number - 3; }

// Whether nobody holds the other end any more.
bool hung_up(int socket) {
  pollfd fd{socket, POLLRDHUP, 0};
  return poll(&fd, 1, 0) > 0 && (fd.revents & (POLLRDHUP | POLLHUP)) != 0;
}

}  // namespace

Credentials credentials_of(int socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return {~0u, 0};
  return {peer.uid, peer.pid};
}

Fd open_pidfd(int socket, int64_t pid) {
  int pidfd = -1;
  socklen_t size = sizeof pidfd;
  if (getsockopt(socket, SOL_SOCKET, kSoPeerPidfd, &pidfd, &size) == 0) return Fd(pidfd);
  if (pid <= 0) return Fd();
  Fd opened(static_cast<int>(syscall(kSysPidfdOpen, pid, 0)));
  // The number may have gone to another process meanwhile, but then the one that connected is dead,
  // and its end of the socket with it.
  if (opened && hung_up(socket)) opened.reset();
  return opened;
}

Fd open_pidfd_of(int64_t pid) {
  if (pid <= 0) return Fd();
  return Fd(static_cast<int>(syscall(kSysPidfdOpen, pid, 0)));
}

char process_state(int64_t pid) {
  const std::vector<std::string> fields = stat_fields(pid);
  return fields.empty() ? '?' : fields[field(3)].front();
}

std::string how_it_ended(int64_t pid) {
  // Field 52 is the exit status; it reads 0 for whoever may not know it.
  const std::vector<std::string> fields = stat_fields(pid);
  if (fields.size() <= field(52) || (fields[field(3)] != "Z" && fields[field(3)] != "X"))
    return "the process ended";
  const int status = static_cast<int>(std::stol(fields[field(52)]));
  if (WIFSIGNALED(status)) return fmt::format("killed by signal {}", WTERMSIG(status));
  if (WEXITSTATUS(status) != 0) return fmt::format("exited with status {}", WEXITSTATUS(status));
  return "the process ended";
}

uint64_t own_rss_bytes() {
  std::ifstream file("/proc/self/statm");
  uint64_t size = 0, resident = 0;
  file >> size >> resident;
  return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

double own_cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

}  // namespace gradring::daemon
