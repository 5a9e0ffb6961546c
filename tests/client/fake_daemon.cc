#include "tests/client/fake_daemon.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <future>
#include <numeric>
#include <stdexcept>

#include "proto/types.h"
#include "tests/client/fake_view.h"

namespace gradring::test {
namespace {

constexpr auto kPatience = std::chrono::seconds(10);

void must(bool condition, const char* what) {
  if (!condition) throw std::runtime_error(std::string(what) + ": " + std::strerror(errno));
}

std::string make_directory() {
  std::string name = "/tmp/gradring-test-XXXXXX";
  must(::mkdtemp(name.data()) != nullptr, "mkdtemp");
  return name;
}

int listen_at(const std::string& path) {
  const int fd = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  must(::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0, "bind");
  must(::listen(fd, 64) == 0, "listen");
  return fd;
}

void send_packet(int socket, const std::string& bytes, int descriptor = -1) {
  iovec part{const_cast<char*>(bytes.data()), bytes.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (descriptor >= 0) {
    header.msg_control = control.data();
    header.msg_controllen = control.size();
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(rights), &descriptor, sizeof(int));
  }
  // A client that is gone already is no concern of the test's.
  [[maybe_unused]] const ssize_t sent = ::sendmsg(socket, &header, MSG_NOSIGNAL);
}

}  // namespace

FakeDaemon::FakeDaemon()
    : runtime_dir_(make_directory()), wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  router_ = zmq::socket_t(context_, zmq::socket_type::router);
  router_.set(zmq::sockopt::linger, 0);
  router_.bind("ipc://" + runtime_dir_ + "/control.sock");
  listener_ = listen_at(runtime_dir_ + "/attach.sock");
  thread_ = std::thread([this] { loop(); });
}

FakeDaemon::~FakeDaemon() {
  run([this] { close_all(); });
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

size_t FakeDaemon::segments() {
  size_t count = 0;
  run([&] { count = segments_.size(); });
  return count;
}

void FakeDaemon::complete(const wire::Operation& operation,
                          std::optional<wire::Completion> completion) {
  run([&] {
    compute(operation);
    wire::DaemonMessage message;
    wire::Completion& told = *message.mutable_completed()->add_completions();
    told = completion.value_or(good());
    told.set_ticket(operation.ticket());
    send_to(last_routing_id_, message.SerializeAsString());
  });
}

wire::Completion FakeDaemon::good() const {
  wire::Completion completion;
  completion.set_verdict(static_cast<uint32_t>(Verdict::kOk));
  completion.set_epoch(1);
  completion.set_ranks_min(join_.size());
  completion.set_ranks_max(join_.size());
  return completion;
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

void FakeDaemon::die() {
  run([this] { close_all(); });
}

void FakeDaemon::hang_up() {
  run([this] {
    for (auto& [id, session] : sessions_) ::close(session.fd);
    sessions_.clear();
  });
}

void FakeDaemon::freeze() {
  run([this] { frozen_ = true; });
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
    if (!frozen_) {
      fds.push_back({listener_, POLLIN, 0});
      fds.push_back({router_ ? router_.get(zmq::sockopt::fd) : -1, POLLIN, 0});
      for (const auto& [id, session] : sessions_) {
        fds.push_back({session.fd, POLLIN, 0});
        ids.push_back(id);
      }
    }
    ::poll(fds.data(), fds.size(), 20);
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t drained = ::read(wake_, &count, sizeof(count));
    if (frozen_ || listener_ < 0) continue;
    accept();
    for (const uint64_t id : ids) take_attach(sessions_[id], id);
  }
}

void FakeDaemon::accept() {
  const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
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

void FakeDaemon::take_attach(Session& session, uint64_t id) {
  std::array<char, 4096> bytes;
  const ssize_t length = ::recv(session.fd, bytes.data(), bytes.size(), MSG_DONTWAIT);
  if (length < 0) return;
  if (length == 0) {
    ::close(session.fd);
    sessions_.erase(id);
    return;
  }
  wire::AttachRequest request;
  request.ParseFromArray(bytes.data(), static_cast<int>(length));
  if (request.has_allocate()) {
    allocate(session, request.allocate());
    return;
  }
  const std::lock_guard lock(mutex_);
  if (!script_.answer_hello) return;
  wire::AttachReply reply;
  if (script_.refuse_hello) {
    *reply.mutable_refused() = *script_.refuse_hello;
  } else {
    reply.mutable_welcome()->set_protocol(script_.protocol);
    reply.mutable_welcome()->set_product_version("9.9.9");
    reply.mutable_welcome()->set_node(script_.node);
    reply.mutable_welcome()->set_session(id);
    reply.mutable_welcome()->set_secret("secret of " + std::to_string(id));
  }
  send_packet(session.fd, reply.SerializeAsString());
}

void FakeDaemon::allocate(Session& session, const wire::AllocateSegment& request) {
  const std::lock_guard lock(mutex_);
  wire::AttachReply reply;
  if (script_.refuse_allocate) {
    *reply.mutable_refused() = *script_.refuse_allocate;
    reply.mutable_refused()->set_request(request.request());
    send_packet(session.fd, reply.SerializeAsString());
    return;
  }
  const auto page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  const uint64_t bytes = (request.bytes() + page - 1) / page * page;
  const int fd = ::memfd_create("fake", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  const uint64_t real = script_.memory == Memory::kShort ? bytes - page : bytes;
  must(::ftruncate(fd, static_cast<off_t>(real)) == 0, "ftruncate");
  if (script_.memory != Memory::kUnsealed) {
    ::fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  }
  void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  must(data != MAP_FAILED, "mmap");
  const uint64_t id = ++last_id_;
  segments_[id] = {fd, {static_cast<std::byte*>(data), bytes}};
  reply.mutable_segment()->set_request(request.request());
  reply.mutable_segment()->set_segment(id);
  reply.mutable_segment()->set_bytes(bytes);
  send_packet(session.fd, reply.SerializeAsString(), script_.memory == Memory::kNone ? -1 : fd);
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

void FakeDaemon::answer(const std::string& routing_id, const wire::ClientMessage& message) {
  std::unique_lock lock(mutex_);
  const Script script = script_;
  lock.unlock();
  wire::DaemonMessage reply;
  reply.set_request(message.request());
  std::optional<wire::Refused> refusal;
  switch (message.body_case()) {
    case wire::ClientMessage::kOpen: {
      const auto session = sessions_.find(message.open().session());
      const std::string secret = "secret of " + std::to_string(message.open().session());
      if (session == sessions_.end() || message.open().secret() != secret) return;
      session->second.routing_id = routing_id;
      last_routing_id_ = routing_id;
      reply.mutable_opened();
      refusal = script.refuse_open;
      break;
    }
    case wire::ClientMessage::kJoin:
      join_ = message.join();
      if (!script.answer_join) return;
      *reply.mutable_joined() = joined(script);
      refusal = script.refuse_join;
      break;
    case wire::ClientMessage::kSubmit:
      refusal = script.refuse_submit;
      if (refusal) break;
      if (script.complete) submit(routing_id, message);
      return;
    case wire::ClientMessage::kFree:
      refusal = script.refuse_free;
      if (const auto found = segments_.find(message.free().segment());
          !refusal && found != segments_.end()) {
        ::munmap(found->second.memory.data(), found->second.memory.size());
        ::close(found->second.fd);
        segments_.erase(found);
      }
      reply.mutable_freed();
      break;
    case wire::ClientMessage::kLeave:
      if (!script.answer_leave) return;
      reply.mutable_left();
      break;
    default:
      return;
  }
  if (refusal) *reply.mutable_refused() = *refusal;
  send_to(routing_id, reply.SerializeAsString());
  if (message.has_join() && script.close_after_join) {
    wire::DaemonMessage closed;
    closed.mutable_closed()->set_job(kFakeJob);
    closed.mutable_closed()->set_message("rank 1 died");
    send_to(routing_id, closed.SerializeAsString());
  }
  if (message.has_join() && script.change_after_join) {
    wire::DaemonMessage changed;
    *changed.mutable_view_changed() = *script.change_after_join;
    send_to(routing_id, changed.SerializeAsString());
  }
}

void FakeDaemon::submit(const std::string& routing_id, const wire::ClientMessage& message) {
  wire::DaemonMessage reply;
  for (const auto& operation : message.submit().operations()) {
    compute(operation);
    wire::Completion& completion = *reply.mutable_completed()->add_completions();
    completion = good();
    completion.set_ticket(operation.ticket());
  }
  send_to(routing_id, reply.SerializeAsString());
}

wire::Joined FakeDaemon::joined(const Script& script) const {
  wire::Joined reply;
  reply.set_job(kFakeJob);
  std::vector<uint32_t> ranks(join_.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  *reply.mutable_view() =
      script.view ? *script.view : view_of(join_.job(), 1, ranks, join_.rank() == 0);
  return reply;
}

// Sums of float32 as if every rank had the same input; everything else passes unchanged.
void FakeDaemon::compute(const wire::Operation& operation) {
  Signature signature;
  if (!from_wire(operation.signature(), &signature)) return;
  if (signature.count == 0) return;
  std::byte* input =
      segments_.at(operation.input().segment()).memory.data() + operation.input().offset();
  std::byte* output =
      segments_.at(operation.output().segment()).memory.data() + operation.output().offset();
  if (input != output) std::memcpy(output, input, signature.bytes());
  if (signature.dtype != Dtype::kFloat32 || signature.op != ReduceOp::kSum) return;
  for (uint64_t i = 0; i < signature.count; ++i) {
    float value = 0;
    std::memcpy(&value, output + i * sizeof(float), sizeof(float));
    value *= static_cast<float>(join_.size());
    std::memcpy(output + i * sizeof(float), &value, sizeof(float));
  }
}

void FakeDaemon::send_to(const std::string& routing_id, const std::string& bytes) {
  if (!router_ || routing_id.empty()) return;
  router_.send(zmq::buffer(routing_id), zmq::send_flags::sndmore);
  router_.send(zmq::buffer(bytes), zmq::send_flags::none);
}

void FakeDaemon::close_all() {
  if (listener_ >= 0) ::close(listener_);
  listener_ = -1;
  for (auto& [id, session] : sessions_) ::close(session.fd);
  sessions_.clear();
  if (router_) router_.close();
}

}  // namespace gradring::test
