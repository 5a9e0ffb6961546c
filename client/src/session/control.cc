#include "client/src/session/control.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>

#include "client/src/session/runtime_dir.h"

namespace gradring::client {
namespace {

Status broken(const zmq::error_t& error) {
  return {Code::kInternal, fmt::format("the control channel failed: {}", error.what())};
}

// A context with one socket takes ten descriptors.
constexpr size_t kFilesNeeded = 16;
constexpr size_t kThreadsNeeded = 2;

// libzmq ends the process where it gets none. Other threads may be as fast; they would have to be
// at the same limit in the same microseconds.
bool enough_files_left() {
  std::array<int, kFilesNeeded> taken;
  std::ranges::generate(taken, [] { return ::eventfd(0, EFD_CLOEXEC); });
  const bool enough = std::ranges::none_of(taken, [](int fd) { return fd < 0; });
  for (const int fd : taken) {
    if (fd >= 0) ::close(fd);
  }
  return enough;
}

// Likewise where it cannot start its two threads.
bool enough_threads_left() {
  std::atomic<bool> done = false;
  const auto until_done = [](void* word) -> void* {
    static_cast<std::atomic<bool>*>(word)->wait(false);
    return nullptr;
  };
  std::array<pthread_t, kThreadsNeeded> threads;
  size_t started = 0;
  while (started < threads.size() &&
         ::pthread_create(&threads[started], nullptr, until_done, &done) == 0) {
    ++started;
  }
  done = true;
  done.notify_all();
  for (size_t i = 0; i < started; ++i) ::pthread_join(threads[i], nullptr);
  return started == threads.size();
}

// A signal may end even a call that does not wait. Giving up then would leave a message lying
// behind a descriptor that does not show it any more.
template <class Call>
auto through_signals(Call call) {
  while (true) {
    try {
      return call();
    } catch (const zmq::error_t& error) {
      if (error.num() != EINTR) throw;
    }
  }
}

}  // namespace

ControlSocket::ControlSocket(std::unique_ptr<zmq::context_t> context,
                             std::unique_ptr<zmq::socket_t> socket)
    : context_(std::move(context)),
      socket_(std::move(socket)),
      fd_(socket_->get(zmq::sockopt::fd)) {}

tl::expected<ControlSocket, Status> ControlSocket::connect(const std::string& runtime_dir) {
  const std::string path = control_path(runtime_dir);
  // ZeroMQ would try for ever without a word.
  if (::faccessat(AT_FDCWD, path.c_str(), R_OK | W_OK, AT_EACCESS) != 0) {
    return tl::unexpected(unreachable(runtime_dir, path, errno));
  }
  if (!enough_files_left()) {
    return tl::unexpected(Status(
        Code::kResourceExhausted,
        fmt::format("this process has fewer than {} file descriptors left, which a connection "
                    "to the daemon takes for a while: raise its limit (ulimit -n), or close "
                    "groups and communicators that are not needed any more",
                    kFilesNeeded)));
  }
  if (!enough_threads_left()) {
    return tl::unexpected(Status(
        Code::kResourceExhausted,
        fmt::format("this process cannot start {} more threads, which a connection to the daemon "
                    "takes: raise its limits (ulimit -u, ulimit -v, the cgroup's pids.max), or "
                    "close groups and communicators that are not needed any more",
                    kThreadsNeeded)));
  }
  try {
    auto context = std::make_unique<zmq::context_t>(1);
    auto socket = std::make_unique<zmq::socket_t>(*context, zmq::socket_type::dealer);
    // With messages left, closing the context would wait for a daemon that may be gone.
    socket->set(zmq::sockopt::linger, 0);
    // Not "immediate": when the daemon goes, libzmq would throw away what it has said and we have
    // not read yet.
    // A trainer may compute for long between submitting and waiting, and the daemon must not find
    // its queue full of completions. They are as many as the trainer's own submissions.
    socket->set(zmq::sockopt::rcvhwm, 0);
    socket->connect("ipc://" + path);
    return ControlSocket(std::move(context), std::move(socket));
  } catch (const zmq::error_t& error) {
    return tl::unexpected(broken(error));
  }
}

Status ControlSocket::send(const wire::ClientMessage& message) {
  try {
    zmq::message_t frame(message.ByteSizeLong());
    message.SerializeToArray(frame.data(), static_cast<int>(frame.size()));
    const auto sent =
        through_signals([&] { return socket_->send(frame, zmq::send_flags::dontwait); });
    if (sent) return {};
    return {Code::kResourceExhausted, "the daemon does not take messages"};
  } catch (const zmq::error_t& error) {
    return broken(error);
  }
}

tl::expected<std::optional<wire::DaemonMessage>, Status> ControlSocket::receive() {
  try {
    // Asking for the events makes the socket look at what its I/O thread has brought.
    const int events = through_signals([&] { return socket_->get(zmq::sockopt::events); });
    writable_ = (events & ZMQ_POLLOUT) != 0;
    if ((events & ZMQ_POLLIN) == 0) return std::optional<wire::DaemonMessage>();
    zmq::message_t frame;
    const auto received =
        through_signals([&] { return socket_->recv(frame, zmq::recv_flags::dontwait); });
    if (!received) return std::optional<wire::DaemonMessage>();
    wire::DaemonMessage message;
    if (frame.more() || !message.ParseFromArray(frame.data(), static_cast<int>(frame.size()))) {
      return tl::unexpected(
          Status(Code::kInternal, "the daemon sent a message that cannot be read"));
    }
    return message;
  } catch (const zmq::error_t& error) {
    return tl::unexpected(broken(error));
  }
}

void ControlSocket::abandon() {
  static_cast<void>(socket_.release());
  static_cast<void>(context_.release());
}

}  // namespace gradring::client
