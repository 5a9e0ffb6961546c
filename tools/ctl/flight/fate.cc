#include "tools/ctl/flight/fate.h"

#include <signal.h>
#include <sys/stat.h>
#include <time.h>

#include <cerrno>
#include <fstream>
#include <iterator>
#include <string>

namespace gradring::tools {
namespace {

std::string content_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// A process that has ended stays in /proc until its parent has asked how.
bool is_zombie(const std::string& stat) {
  const size_t name_end = stat.rfind(") ");
  if (name_end == std::string::npos) return false;
  const char state = stat[name_end + 2];
  return state == 'Z' || state == 'X';
}

Fate::Is look_at(const FlightHeader& header) {
  struct stat space {};
  const bool same_space =
      stat("/proc/self/ns/pid", &space) == 0 && space.st_ino == header.pid_space;
  if (!same_space || header.pid <= 0) return Fate::Is::kUnknown;  // its pid means nothing here
  const auto pid = static_cast<pid_t>(header.pid);
  if (pid != header.pid) return Fate::Is::kUnknown;
  const std::string stat = content_of("/proc/" + std::to_string(pid) + "/stat");
  if (!stat.empty()) {
    const bool same = start_in_stat(stat) == header.pid_start;
    return same && !is_zombie(stat) ? Fate::Is::kRunning : Fate::Is::kGone;
  }
  // /proc may hide the processes of others.
  return kill(pid, 0) != 0 && errno == ESRCH ? Fate::Is::kGone : Fate::Is::kUnknown;
}

}  // namespace

Fate fate_of(const FlightHeader& header) {
  std::string boot = content_of("/proc/sys/kernel/random/boot_id");
  while (!boot.empty() && boot.back() == '\n') boot.pop_back();
  if (boot != text_in(header.machine_boot)) return {Fate::Is::kGone, std::nullopt};
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return {look_at(header), now.tv_sec * int64_t{1'000'000'000} + now.tv_nsec};
}

}  // namespace gradring::tools
