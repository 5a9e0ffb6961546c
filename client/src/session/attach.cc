#include "client/src/session/attach.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "client/src/limits.h"
#include "client/src/session/runtime_dir.h"

namespace gradring::client {
namespace {

// Takes ownership of every descriptor in the packet.
std::vector<UniqueFd> take_descriptors(const msghdr& header) {
  std::vector<UniqueFd> all;
  for (cmsghdr* part = CMSG_FIRSTHDR(&header); part != nullptr;
       part = CMSG_NXTHDR(const_cast<msghdr*>(&header), part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof(int));
      all.emplace_back(fd);
    }
  }
  return all;
}

}  // namespace

tl::expected<std::optional<AttachSocket>, Status> AttachSocket::connect(
    const std::string& runtime_dir) {
  const std::string path = attach_path(runtime_dir);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);

  UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) {
    return tl::unexpected(Status(Code::kResourceExhausted,
                                 fmt::format("cannot open a socket: {}", std::strerror(errno))));
  }
  int connected = 0;
  do {
    connected =
        ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  } while (connected != 0 && errno == EINTR);
  if (connected == 0) return AttachSocket(std::move(socket));
  // The listener's backlog is full for the moment.
  if (errno == EAGAIN) return std::optional<AttachSocket>();
  return tl::unexpected(unreachable(runtime_dir, path, errno));
}

Status AttachSocket::send(const wire::AttachRequest& request, int fd) {
  std::string bytes = request.SerializeAsString();
  iovec part{bytes.data(), bytes.size()};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  if (fd >= 0) {
    header.msg_control = control.data();
    header.msg_controllen = control.size();
    cmsghdr* const with = CMSG_FIRSTHDR(&header);
    with->cmsg_level = SOL_SOCKET;
    with->cmsg_type = SCM_RIGHTS;
    with->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(with), &fd, sizeof(int));
  }
  ssize_t sent = 0;
  do {
    sent = ::sendmsg(socket_.get(), &header, MSG_DONTWAIT | MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  if (sent >= 0) return {};
  if (errno == EAGAIN) {
    return {Code::kResourceExhausted, "the daemon does not read its attach socket"};
  }
  if (errno == EPIPE || errno == ECONNRESET || errno == ENOTCONN) {
    return {Code::kUnavailable, "the daemon closed the attach socket"};
  }
  return {Code::kInternal,
          fmt::format("the attach socket does not take what is sent: {}", std::strerror(errno))};
}

tl::expected<std::optional<AttachPacket>, Status> AttachSocket::receive() {
  std::array<char, kAttachPacketBytes> bytes;
  // Room for a few descriptors, so that a surplus is received and closed instead of cut off unseen.
  alignas(cmsghdr) std::array<char, CMSG_SPACE(8 * sizeof(int))> control;
  iovec part{bytes.data(), bytes.size()};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();

  ssize_t length = 0;
  do {
    length = ::recvmsg(socket_.get(), &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    // A reset is told once, ahead of the packets that were sent before it.
  } while (length < 0 && (errno == EINTR || errno == ECONNRESET));
  if (length < 0 && errno == EAGAIN) return std::optional<AttachPacket>();
  if (length <= 0)
    return tl::unexpected(Status(Code::kUnavailable, "the attach socket was closed"));

  AttachPacket packet;
  packet.fds = take_descriptors(header);
  packet.cut = (header.msg_flags & MSG_CTRUNC) != 0;
  if (packet.cut) packet.fds.clear();  // some of them are of no use
  if ((header.msg_flags & MSG_TRUNC) != 0 ||
      !packet.reply.ParseFromArray(bytes.data(), static_cast<int>(length))) {
    return tl::unexpected(Status(
        Code::kInternal, "the daemon sent a packet on the attach socket that cannot be read"));
  }
  return packet;
}

bool AttachSocket::closed_there() const {
  pollfd looked{.fd = socket_.get(), .events = POLLRDHUP, .revents = 0};
  return ::poll(&looked, 1, 0) == 1 && (looked.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

}  // namespace gradring::client
