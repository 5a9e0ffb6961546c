#include "daemon/control/door/packet.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace gradring::daemon {

ssize_t receive_packet(int socket, std::span<char> packet, std::vector<Fd>* descriptors) {
  constexpr size_t kMost = 2;  // one more than anybody sends
  iovec data{packet.data(), packet.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMost * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t length = ::recvmsg(socket, &message, MSG_TRUNC | MSG_CMSG_CLOEXEC);
  if (length < 0) return length;
  descriptors->clear();
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr;
       part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    for (size_t at = 0; at + sizeof(int) <= part->cmsg_len - CMSG_LEN(0); at += sizeof(int)) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part) + at, sizeof fd);
      descriptors->emplace_back(fd);
    }
  }
  if ((message.msg_flags & MSG_CTRUNC) == 0) return length;
  descriptors->clear();
  errno = EMSGSIZE;
  return -1;
}

void take_descriptors(int listener, bool take) {
  constexpr int kSoPassRights = 83;  // newer than the distribution's headers
  const int on = take ? 1 : 0;
  (void)setsockopt(listener, SOL_SOCKET, kSoPassRights, &on, sizeof on);
}

}  // namespace gradring::daemon
