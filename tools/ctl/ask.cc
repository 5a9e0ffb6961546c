#include "tools/ctl/ask.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <zmq.hpp>

#include "proto/version.h"
#include "tools/common/text.h"

namespace gradring::tools {
namespace {

constexpr std::chrono::milliseconds kPatience{3000};
constexpr uint64_t kRequest = 1;  // the only one on this connection

tl::unexpected<Status> refuse(Code code, std::string message) {
  return tl::unexpected(Status(code, std::move(message)));
}

std::string how_to_start(const std::string& runtime_dir) {
  return fmt::format("start one with: gradringd --runtime-dir {}", runtime_dir);
}

// ZeroMQ would wait for a daemon for ever and would not say why it cannot connect, so that is found
// out with a plain socket first.
Status knock(const std::string& runtime_dir, const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    return Status(Code::kInvalidArgument,
                  fmt::format("{} is longer than the {} characters a socket's path may have; use a "
                              "shorter --runtime-dir",
                              path, sizeof address.sun_path - 1));
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  if (access(path.c_str(), R_OK | W_OK) != 0) {
    const int error = errno;
    if (error == EACCES) {
      return Status(Code::kPermissionDenied,
                    fmt::format("uid {} may not use {}: ask for membership of the socket's group "
                                "(ls -l {} names it)",
                                geteuid(), path, runtime_dir));
    }
    return Status(Code::kUnavailable, fmt::format("no gradringd at {}: {}; {}", path,
                                                  std::strerror(error), how_to_start(runtime_dir)));
  }
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return Status(Code::kInternal, fmt::format("socket: {}", std::strerror(errno)));
  const bool refused =
      connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 && errno != EAGAIN;
  const int error = errno;
  close(fd);
  if (!refused) return Status();
  return Status(Code::kUnavailable,
                fmt::format("nobody listens at {} ({}): the daemon has ended; {}", path,
                            std::strerror(error), how_to_start(runtime_dir)));
}

tl::expected<wire::QueryReply, Status> judge(const zmq::message_t& frame, const std::string& path) {
  wire::DaemonMessage message;
  if (!message.ParseFromArray(frame.data(), static_cast<int>(frame.size()))) {
    return refuse(Code::kIncompatible,
                  fmt::format("the program at {} answers with something that is not of gradring's "
                              "protocol {}",
                              path, describe(kClientProtocols)));
  }
  if (message.has_refused()) {
    return refuse(static_cast<Code>(message.refused().code()),
                  printable(message.refused().message()));
  }
  if (!message.has_reply()) {
    return refuse(Code::kIncompatible,
                  fmt::format("the daemon at {} did not answer the question; is it of another "
                              "version than this gradringctl {}?",
                              path, kProductVersion));
  }
  return message.reply();
}

}  // namespace

tl::expected<wire::QueryReply, Status> ask(const std::string& runtime_dir,
                                           const wire::Query& query) {
  const std::string path = runtime_dir + "/control.sock";
  if (Status status = knock(runtime_dir, path); !status.ok()) return tl::unexpected(status);

  wire::ClientMessage message;
  message.set_protocol(kClientProtocols.newest);
  message.set_oldest_protocol(kClientProtocols.oldest);
  message.set_request(kRequest);
  *message.mutable_query() = query;
  const std::string bytes = message.SerializeAsString();

  try {
    zmq::context_t context(1);
    zmq::socket_t socket(context, zmq::socket_type::dealer);
    socket.set(zmq::sockopt::linger, 0);
    socket.set(zmq::sockopt::immediate, 1);
    socket.set(zmq::sockopt::sndtimeo, static_cast<int>(kPatience.count()));
    socket.connect("ipc://" + path);
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    if (socket.send(zmq::buffer(bytes), zmq::send_flags::none).has_value()) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
          deadline - std::chrono::steady_clock::now());
      // 0 would be "look once", -1 "for ever".
      socket.set(zmq::sockopt::rcvtimeo, static_cast<int>(std::max<int64_t>(left.count(), 1)));
      zmq::message_t frame;
      if (socket.recv(frame).has_value()) return judge(frame, path);
    }
  } catch (const zmq::error_t& error) {
    return refuse(Code::kInternal, fmt::format("talking to {}: {}", path, error.what()));
  }
  return refuse(
      Code::kDeadlineExceeded,
      fmt::format("the daemon at {} did not answer within {} s: is it stopped, or very busy? "
                  "Its log may say",
                  path, kPatience.count() / 1000));
}

}  // namespace gradring::tools
