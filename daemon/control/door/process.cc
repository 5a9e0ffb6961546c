#include "daemon/control/door/process.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

#include "daemon/clock.h"

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

// PIDFD_GET_INFO, of Linux 6.13, and its answer (the first version of struct pidfd_info). From 6.15
// on it says how a process ended that was waited for, to whoever holds its pidfd.
struct PidfdInfo {
  uint64_t mask;
  uint64_t cgroup;
  uint32_t ids[11];
  int32_t exit_status;
};
static_assert(sizeof(PidfdInfo) == 64);
constexpr unsigned long kPidfdGetInfo = _IOWR(0xFF, 11, PidfdInfo);
constexpr uint64_t kPidfdInfoExit = 1 << 3;

std::optional<int> status_of_reaped(int pidfd) {
  PidfdInfo info{};
  info.mask = kPidfdInfoExit;
  if (ioctl(pidfd, kPidfdGetInfo, &info) != 0 || (info.mask & kPidfdInfoExit) == 0) {
    return std::nullopt;
  }
  return info.exit_status;
}

// Of a process that ended and was not waited for yet. Field 52 is the status; it reads 0 for
// whoever may not look into the process, so 0 says nothing.
std::optional<int> status_of_zombie(int64_t pid) {
  const std::vector<std::string> fields = stat_fields(pid);
  if (fields.size() <= field(52) || (fields[field(3)] != "Z" && fields[field(3)] != "X")) {
    return std::nullopt;
  }
  const int status = static_cast<int>(std::stol(fields[field(52)]));
  return status == 0 ? std::nullopt : std::optional<int>(status);
}

// Whether nobody holds the other end any more.
bool hung_up(int socket) {
  pollfd fd{socket, POLLRDHUP, 0};
  return poll(&fd, 1, 0) > 0 && (fd.revents & (POLLRDHUP | POLLHUP)) != 0;
}

struct Memory {
  uint64_t resident = 0, shared = 0;  // bytes
};

Memory own_memory() {
  std::ifstream file("/proc/self/statm");
  uint64_t size = 0, resident = 0, shared = 0;
  file >> size >> resident >> shared;
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  return {resident * page, shared * page};
}

}  // namespace

Credentials credentials_of(int socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return {~0u, 0};
  return {peer.uid, peer.pid};
}

std::string describe(const Credentials& who) {
  return who.pid != 0 ? fmt::format("pid {}, uid {}", who.pid, who.uid)
                      : fmt::format("in a pid namespace not seen from here, uid {}", who.uid);
}

bool is_one_user(uint32_t uid, const std::string& uid_map, uint32_t overflow_uid) {
  if (uid != overflow_uid) return true;
  // The namespace that the machine boots with has this one line.
  std::istringstream words(uid_map);
  uint64_t inside = 0, outside = 0, count = 0;
  return !(words >> inside >> outside >> count) || count >= UINT32_MAX;
}

bool is_one_user(uint32_t uid) {
  std::ostringstream uid_map;
  uid_map << std::ifstream("/proc/self/uid_map").rdbuf();
  uint32_t overflow_uid = 65534;
  std::ifstream("/proc/sys/kernel/overflowuid") >> overflow_uid;
  return is_one_user(uid, uid_map.str(), overflow_uid);
}

Fd open_pidfd(int socket, int64_t pid) {
  int pidfd = -1;
  socklen_t size = sizeof pidfd;
  if (getsockopt(socket, SOL_SOCKET, kSoPeerPidfd, &pidfd, &size) == 0) return Fd(pidfd);
  // A kernel that knows the option, and gives none, says that the process is gone: its number may
  // be another's.
  if (errno != ENOPROTOOPT || pid <= 0) return Fd();
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

std::optional<std::string> how_it_ended(int pidfd, int64_t pid) {
  // Whoever waits for it may take it away between two looks, so the first is taken once more.
  std::optional<int> status = status_of_reaped(pidfd);
  if (!status) status = status_of_zombie(pid);
  if (!status) status = status_of_reaped(pidfd);
  if (!status) return std::nullopt;
  if (WIFEXITED(*status)) return fmt::format("exited with status {}", WEXITSTATUS(*status));
  const int signal = WTERMSIG(*status);
  const char* name = sigabbrev_np(signal);
  return name == nullptr ? fmt::format("killed by signal {}", signal)
                         : fmt::format("killed by signal {} (SIG{})", signal, name);
}

uint64_t own_rss_bytes() { return own_memory().resident; }

uint64_t own_anonymous_bytes() {
  const Memory memory = own_memory();
  return memory.resident - memory.shared;
}

double own_cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

uint64_t own_open_files() {
  std::error_code error;
  uint64_t count = 0;
  for (auto it = std::filesystem::directory_iterator("/proc/self/fd", error);
       !error && it != std::filesystem::directory_iterator(); it.increment(error)) {
    ++count;
  }
  return count;
}

uint64_t own_open_files_lately() {
  constexpr core::Time kLately = core::kSecond / 4;
  static core::Time counted_at = 0;
  static uint64_t count = 0;
  const core::Time now = monotonic_now();
  if (count == 0 || now - counted_at >= kLately) {
    count = own_open_files();
    counted_at = now;
  }
  return count;
}

}  // namespace gradring::daemon
