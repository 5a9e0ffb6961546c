#include "daemon/control/door/guest.h"

#include <netdb.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <array>
#include <string>

namespace gradring::daemon {
namespace {

ino_t inode_of(int fd) {
  struct stat state {};
  return fstat(fd, &state) == 0 ? state.st_ino : 0;
}

}  // namespace

Guest::Guest(int fd) : fd_(fd), inode_(inode_of(fd)) {}

bool Guest::is_there() const { return inode_of(fd_) == inode_; }

std::string host_of(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  std::array<char, NI_MAXHOST> host{};
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0 ||
      getnameinfo(reinterpret_cast<const sockaddr*>(&address), size, host.data(), host.size(),
                  nullptr, 0, NI_NUMERICHOST) != 0) {
    return "a host that has gone";
  }
  return host.data();
}

}  // namespace gradring::daemon
