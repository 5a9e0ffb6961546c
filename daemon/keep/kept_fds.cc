#include "daemon/keep/kept_fds.h"

#include <fmt/format.h>
#include <linux/kcmp.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "daemon/fd_name.h"

namespace gradring::keep {
namespace {

// One open file, reached by two descriptors?
bool are_same(const KeptFds::Kept& a, const KeptFds::Kept& b) {
  if (a.device != b.device || a.inode != b.inode) return false;
  const pid_t self = getpid();
  const long order = syscall(SYS_kcmp, self, self, KCMP_FILE, a.fd.get(), b.fd.get());
  if (order >= 0) return order == 0;
  // Containers may forbid the call. Then the inode has to do, but for those that share one: event
  // and timer descriptors have no type of file.
  struct stat status {};
  return fstat(a.fd.get(), &status) == 0 && (status.st_mode & S_IFMT) != 0;
}

}  // namespace

KeptFds::KeptFds(size_t most) : most_(most), watch_(epoll_create1(EPOLL_CLOEXEC)) {}

bool KeptFds::has(const Kept& other) const {
  return std::any_of(kept_.begin(), kept_.end(),
                     [&other](const Kept& kept) { return are_same(kept, other); });
}

std::string KeptFds::add(const std::string& name, Fd fd, bool poll) {
  struct stat status {};
  if (fstat(fd.get(), &status) != 0) {
    return fmt::format("{} is no descriptor: {}", name, std::strerror(errno));
  }
  Kept kept{name, std::move(fd), next_id_++, status.st_dev, status.st_ino, false};
  if (has(kept)) return "";
  if (kept_.size() >= most_) {
    return fmt::format("{} descriptors are kept already, which is the most", kept_.size());
  }
  if (names_bytes_ + name.size() + 1 > daemon::kFdNamesBytesMax) {
    return fmt::format("the names of {} kept descriptors fill the {} bytes that can be handed on",
                       kept_.size(), daemon::kFdNamesBytesMax);
  }
  if (poll) {
    epoll_event event{};
    event.data.u64 = kept.id;  // EPOLLHUP and EPOLLERR are always told
    kept.watched = epoll_ctl(watch_.get(), EPOLL_CTL_ADD, kept.fd.get(), &event) == 0;
    // EPERM: a file that never hangs up.
    if (!kept.watched && errno != EPERM) {
      return fmt::format("{} cannot be watched: {}", name, std::strerror(errno));
    }
  }
  names_bytes_ += name.size() + 1;
  kept_.push_back(std::move(kept));
  return "";
}

void KeptFds::let_go(const Kept& kept) {
  // Closing it would not take it out of epoll as long as the daemon has the same open file.
  if (kept.watched) epoll_ctl(watch_.get(), EPOLL_CTL_DEL, kept.fd.get(), nullptr);
  names_bytes_ -= kept.name.size() + 1;
}

size_t KeptFds::remove(const std::string& name) {
  return std::erase_if(kept_, [&](const Kept& kept) {
    if (kept.name != name) return false;
    let_go(kept);
    return true;
  });
}

std::vector<std::string> KeptFds::drop_hung_up() {
  std::vector<std::string> names;
  std::array<epoll_event, 64> events{};
  const int count = epoll_wait(watch_.get(), events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < count; ++i) {
    const uint64_t id = events[static_cast<size_t>(i)].data.u64;
    const auto kept =
        std::find_if(kept_.begin(), kept_.end(), [id](const Kept& one) { return one.id == id; });
    if (kept == kept_.end()) continue;
    let_go(*kept);
    names.push_back(kept->name);
    kept_.erase(kept);
  }
  return names;
}

}  // namespace gradring::keep
