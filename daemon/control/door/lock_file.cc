#include "daemon/control/door/lock_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "daemon/control/door/process.h"

namespace gradring::daemon {
namespace {

std::string parent_of(const std::string& path) {
  const size_t slash = path.find_last_of('/', path.find_last_not_of('/'));
  return slash == 0 ? "/" : path.substr(0, slash);
}

// Whether it is still what lies there: another that starts may have put its own in the place.
bool lies_at(const Fd& file, const std::string& path) {
  struct stat ours {
  }, there{};
  return fstat(file.get(), &ours) == 0 && lstat(path.c_str(), &there) == 0 &&
         ours.st_dev == there.st_dev && ours.st_ino == there.st_ino;
}

// Another user's daemon may have been here first, such as root's, tried by hand before the service
// ran. Where it has ended, its file gives way to ours; where it runs, its lock says so.
Fd open_lock(const std::string& path) {
  constexpr int kOurs = O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW;
  Fd file(open(path.c_str(), kOurs, 0600));
  if (file || errno != EACCES) return file;
  Fd theirs(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!theirs || flock(theirs.get(), LOCK_EX | LOCK_NB) != 0) return theirs;
  if (lies_at(theirs, path) && unlink(path.c_str()) != 0) return theirs;
  return Fd(open(path.c_str(), kOurs, 0600));
}

// Whoever can open a file can lock it, and so keep the next daemon from its start: that is for us
// and for whom the folder belongs to.
void close_to_others(const Fd& file, const std::string& directory) {
  struct stat folder {};
  const bool for_its_owner = geteuid() == 0 && stat(directory.c_str(), &folder) == 0;
  if (for_its_owner && fchown(file.get(), folder.st_uid, folder.st_gid) != 0) return;
  fchmod(file.get(), 0600);
}

}  // namespace

std::string fault_of_runtime_dir(const std::string& directory) {
  struct stat status {};
  if (stat(directory.c_str(), &status) == 0) {
    if (!S_ISDIR(status.st_mode))
      return fmt::format("runtime-dir: {} is not a directory", directory);
    if (access(directory.c_str(), R_OK | W_OK | X_OK) == 0) return "";
    return fmt::format(
        "runtime-dir: {} cannot be written by uid {}: {}; change its owner or choose another",
        directory, geteuid(), std::strerror(errno));
  }
  const std::string parent = parent_of(directory);
  if (access(parent.c_str(), W_OK | X_OK) == 0) return "";
  return fmt::format(
      "runtime-dir: {} does not exist, and uid {} cannot make it: {}: {}; choose another, as in "
      "--runtime-dir /tmp/gradring",
      directory, geteuid(), parent, std::strerror(errno));
}

std::string risk_of_runtime_dir(const std::string& directory) {
  struct stat status {};
  if (stat(directory.c_str(), &status) != 0) return "";
  const uid_t owner = status.st_uid;
  // Who is not mapped into this user namespace is, as a rule, the root outside of it.
  if (owner == 0 || owner == geteuid() || !is_one_user(owner)) return "";
  return fmt::format(
      "runtime-dir: {} belongs to uid {}, who can put sockets of its own in the place of those of "
      "gradringd, and be told what is meant for it; give it to root or to uid {}: chown {} {}",
      directory, owner, geteuid(), geteuid(), directory);
}

tl::expected<Fd, std::string> lock_runtime_dir(const std::string& directory,
                                               const std::string& file_name) {
  if (std::string fault = fault_of_runtime_dir(directory); !fault.empty())
    return tl::unexpected(fault);
  if (mkdir(directory.c_str(), 0755) == 0) {
    chmod(directory.c_str(), 0755);  // trainers of every uid pass through, whatever our umask
  } else if (errno != EEXIST) {
    return tl::unexpected(
        fmt::format("runtime-dir: cannot make {}: {}", directory, std::strerror(errno)));
  }
  const std::string path = directory + "/" + file_name;
  Fd file = open_lock(path);
  if (!file) {
    return tl::unexpected(
        fmt::format("runtime-dir: cannot open {}: {}", path, std::strerror(errno)));
  }
  if (flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
    char holder[32] = {};
    const ssize_t n = pread(file.get(), holder, sizeof holder - 1, 0);
    std::string pid(holder, n > 0 ? static_cast<size_t>(n) : 0);
    while (!pid.empty() && pid.back() == '\n') pid.pop_back();
    return tl::unexpected(
        fmt::format("runtime-dir: {} is in use by another gradringd (pid {}); stop that one or "
                    "choose another directory",
                    directory, pid.empty() ? "unknown" : pid));
  }
  close_to_others(file, directory);
  const std::string pid = fmt::format("{}\n", getpid());
  // For people only. On a full disk the lock holds without it, and the daemon starts.
  if (ftruncate(file.get(), 0) != 0 ||
      pwrite(file.get(), pid.data(), pid.size(), 0) != static_cast<ssize_t>(pid.size())) {
    spdlog::warn("runtime-dir: cannot note the pid in {}: {}", path, std::strerror(errno));
  }
  return file;
}

}  // namespace gradring::daemon
