#include "tests/client/fake_daemon.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <future>

#include "tests/client/fake_sockets.h"

namespace gradring::test {
namespace {

constexpr auto kPatience = std::chrono::seconds(10);

std::string make_directory() {
  std::string name = "/tmp/gradring-test-XXXXXX";
  must(::mkdtemp(name.data()) != nullptr, "mkdtemp");
  return name;
}

}  // namespace

FakeDaemon::FakeDaemon()
    : runtime_dir_(make_directory()), wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  open_sockets();
  thread_ = std::thread([this] { loop(); });
}

FakeDaemon::~FakeDaemon() {
  die();
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_, &one, sizeof(one));
  thread_.join();
  for (auto& [id, segment] : segments_) {
    ::munmap(segment.memory.data(), segment.memory.size());
    ::close(segment.fd);
  }
  ::close(wake_);
  std::filesystem::remove_all(runtime_dir_);
}

void FakeDaemon::set(const std::function<void(Script&)>& change) {
  const std::lock_guard lock(mutex_);
  change(script_);
}

std::vector<wire::ClientMessage> FakeDaemon::wait_for_messages(wire::ClientMessage::BodyCase body,
                                                               size_t count) {
  std::unique_lock lock(mutex_);
  std::vector<wire::ClientMessage> found;
  arrived_.wait_for(lock, kPatience, [&] {
    found.clear();
    for (const auto& message : messages_) {
      if (message.body_case() == body) found.push_back(message);
    }
    return found.size() >= count;
  });
  return found;
}

std::vector<wire::Operation> FakeDaemon::wait_for_operations(size_t count) {
  std::vector<wire::Operation> operations;
  for (const auto& message : wait_for_messages(wire::ClientMessage::kSubmit, count)) {
    for (const auto& operation : message.submit().operations()) operations.push_back(operation);
  }
  return operations;
}

std::vector<wire::AttachHello> FakeDaemon::wait_for_hellos(size_t count) {
  std::unique_lock lock(mutex_);
  arrived_.wait_for(lock, kPatience, [&] { return hellos_.size() >= count; });
  return hellos_;
}

size_t FakeDaemon::segments() {
  size_t count = 0;
  run([&] { count = segments_.size(); });
  return count;
}

size_t FakeDaemon::borrowed() {
  size_t count = 0;
  run([&] { count = borrowed_; });
  return count;
}

void FakeDaemon::complete(const wire::Operation& operation,
                          std::optional<wire::Completion> completion) {
  run([&] {
    compute_once(last_routing_id_, operation);
    wire::DaemonMessage message;
    wire::Completion& told = *message.mutable_completed()->add_completions();
    told = completion.value_or(good());
    told.set_ticket(operation.ticket());
    send_to(last_routing_id_, message.SerializeAsString());
  });
}

void FakeDaemon::finish(const wire::Operation& operation) {
  run([&] { compute_once(last_routing_id_, operation); });
}

void FakeDaemon::end_by_ring(const wire::Operation& operation, RingEnd end) {
  end.ticket = operation.ticket();
  run([&] {
    for (auto& [id, session] : sessions_) {
      if (session.rings) session.rings->put(end);
    }
  });
}

void FakeDaemon::send(const wire::DaemonMessage& message) {
  send_bytes(message.SerializeAsString());
}

void FakeDaemon::send_bytes(const std::string& bytes) {
  run([&] { send_to(last_routing_id_, bytes); });
}

void FakeDaemon::send_attach_bytes(const std::string& bytes) {
  run([&] {
    for (auto& [id, session] : sessions_) send_packet(session.fd, bytes);
  });
}

void FakeDaemon::die(Listeners listeners) {
  run([this, listeners] {
    if (listeners == Listeners::kGone) close_listeners();
    for (auto& [id, session] : sessions_) ::close(session.fd);
    sessions_.clear();
    if (router_) router_.close();
  });
}

void FakeDaemon::come_back() {
  run([this] {
    frozen_ = false;
    last_routing_id_.clear();
    open_sockets();
  });
}

void FakeDaemon::forget() {
  run([this] { known_.clear(); });
}

void FakeDaemon::hang_up() {
  run([this] {
    for (auto& [id, session] : sessions_) ::close(session.fd);
    sessions_.clear();
  });
}

void FakeDaemon::refuse_attach() {
  run([this] {
    for (auto& [id, session] : sessions_) ::shutdown(session.fd, SHUT_RD);
    frozen_ = true;  // to a daemon that reads they are at their end
  });
}

void FakeDaemon::freeze() {
  run([this] { frozen_ = true; });
}

void FakeDaemon::thaw() {
  run([this] { frozen_ = false; });
}

// Runs a command on the thread that owns the sockets, and waits for it.
void FakeDaemon::run(const std::function<void()>& on_thread) {
  std::promise<void> done;
  {
    const std::lock_guard lock(mutex_);
    commands_.emplace_back([&] {
      on_thread();
      done.set_value();
    });
  }
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_, &one, sizeof(one));
  done.get_future().wait();
}

void FakeDaemon::loop() {
  while (true) {
    std::vector<std::function<void()>> commands;
    {
      const std::lock_guard lock(mutex_);
      commands.swap(commands_);
      if (stopping_ && commands.empty()) return;
    }
    for (const auto& command : commands) command();
    if (router_ && !frozen_) take_control();

    std::vector<pollfd> fds = {{wake_, POLLIN, 0}};
    std::vector<uint64_t> ids;
    if (!frozen_ && router_) {
      fds.push_back({attach_listener_, POLLIN, 0});
      fds.push_back({router_.get(zmq::sockopt::fd), POLLIN, 0});
      for (const auto& [id, session] : sessions_) {
        fds.push_back({session.fd, POLLIN, 0});
        ids.push_back(id);
      }
    }
    ::poll(fds.data(), fds.size(), 20);
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t drained = ::read(wake_, &count, sizeof(count));
    if (frozen_ || !router_) continue;
    accept();
    for (const uint64_t id : ids) {
      if (const auto found = sessions_.find(id); found != sessions_.end()) {
        take_attach(found->second, id);
      }
    }
  }
}

void FakeDaemon::accept() {
  const int fd = ::accept4(attach_listener_, nullptr, nullptr, SOCK_CLOEXEC);
  if (fd < 0) return;
  const std::lock_guard lock(mutex_);
  if (script_.refuse_connection) {
    wire::AttachReply reply;
    *reply.mutable_refused() = *script_.refuse_connection;
    send_packet(fd, reply.SerializeAsString());
    ::close(fd);
    return;
  }
  sessions_[++last_id_].fd = fd;
}

void FakeDaemon::take_control() {
  while (true) {
    zmq::message_t from;
    zmq::message_t frame;
    if (!router_.recv(from, zmq::recv_flags::dontwait)) return;
    if (!router_.recv(frame, zmq::recv_flags::dontwait)) return;
    wire::ClientMessage message;
    if (!message.ParseFromArray(frame.data(), static_cast<int>(frame.size()))) continue;
    answer(from.to_string(), message);
    const std::lock_guard lock(mutex_);
    messages_.push_back(std::move(message));
    arrived_.notify_all();
  }
}

void FakeDaemon::send_to(const std::string& routing_id, const std::string& bytes) {
  if (!router_ || routing_id.empty()) return;
  router_.send(zmq::buffer(routing_id), zmq::send_flags::sndmore);
  router_.send(zmq::buffer(bytes), zmq::send_flags::none);
}

void FakeDaemon::open_sockets() {
  const std::string control = runtime_dir_ + "/control.sock";
  if (attach_listener_ < 0) {
    attach_listener_ = listen_at(runtime_dir_ + "/attach.sock", SOCK_SEQPACKET);
    control_listener_ = listen_at(control, SOCK_STREAM);
  }
  router_ = zmq::socket_t(context_, zmq::socket_type::router);
  router_.set(zmq::sockopt::linger, 0);
  // libzmq closes what it is given.
  router_.set(zmq::sockopt::use_fd, ::fcntl(control_listener_, F_DUPFD_CLOEXEC, 0));
  router_.bind("ipc://" + control);
}

void FakeDaemon::close_listeners() {
  if (attach_listener_ < 0) return;
  ::close(attach_listener_);
  ::close(control_listener_);
  attach_listener_ = control_listener_ = -1;
}

}  // namespace gradring::test
