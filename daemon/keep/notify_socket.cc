#include "daemon/keep/notify_socket.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "daemon/keep/notify_message.h"

namespace gradring::keep {
namespace {

constexpr size_t kFdsMax = 253;  // that the kernel passes at once

void read_control(const cmsghdr* part, NotifySocket::Received* received) {
  if (part->cmsg_level != SOL_SOCKET) return;
  if (part->cmsg_type == SCM_CREDENTIALS) {
    ucred who{};
    std::memcpy(&who, CMSG_DATA(part), sizeof who);
    received->pid = who.pid;
  } else if (part->cmsg_type == SCM_RIGHTS) {
    const size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof fd);
      received->fds.emplace_back(fd);
    }
  }
}

}  // namespace

NotifySocket::~NotifySocket() {
  if (socket_) unlink(path_.c_str());
}

Status NotifySocket::open(const std::string& path) {
  const auto fault = [&path] {
    return Status(Code::kUnavailable,
                  fmt::format("cannot open {}: {}", path, std::strerror(errno)));
  };
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    errno = ENAMETOOLONG;
    return fault();
  }
  path.copy(address.sun_path, path.size());
  Fd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const int yes = 1;
  if (!socket || setsockopt(socket.get(), SOL_SOCKET, SO_PASSCRED, &yes, sizeof yes) != 0) {
    return fault();
  }
  unlink(path.c_str());
  const mode_t old_mask = umask(0177);
  const bool bound =
      bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  const int error = errno;
  umask(old_mask);
  errno = error;
  if (!bound) return fault();
  socket_ = std::move(socket);
  path_ = path;
  return {};
}

std::optional<NotifySocket::Received> NotifySocket::receive() {
  std::array<char, kNotifyBytesMax + 1> bytes;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(ucred)) + CMSG_SPACE(kFdsMax * sizeof(int))>
      control;
  iovec data{bytes.data(), bytes.size()};
  msghdr header{};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  ssize_t size = 0;
  do {
    size = recvmsg(socket_.get(), &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  } while (size < 0 && errno == EINTR);
  if (size < 0) return std::nullopt;
  Received received;
  received.bytes.assign(bytes.data(), static_cast<size_t>(size));
  received.fds_lost = (header.msg_flags & MSG_CTRUNC) != 0;
  for (const cmsghdr* part = CMSG_FIRSTHDR(&header); part != nullptr;
       part = CMSG_NXTHDR(&header, const_cast<cmsghdr*>(part))) {
    read_control(part, &received);
  }
  return received;
}

}  // namespace gradring::keep
