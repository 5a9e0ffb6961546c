#include "tests/daemon/raw_trainer.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "proto/version.h"

namespace gradring::daemon {
namespace {

constexpr int kPatienceMs = 10000;

}  // namespace

RawAttach::RawAttach(const std::string& runtime_dir)
    : socket_(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)) {
  if (socket_.get() < 0) return;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strcpy(address.sun_path, (runtime_dir + "/attach.sock").c_str());
  if (connect(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
    socket_.reset();
}

bool RawAttach::send(const std::string& packet, const std::vector<int>& fds) {
  std::string bytes = packet;
  iovec data{bytes.data(), bytes.size()};
  std::vector<char> control(CMSG_SPACE(fds.size() * sizeof(int)));
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
    std::memcpy(CMSG_DATA(header), fds.data(), fds.size() * sizeof(int));
  }
  return ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL) >= 0;
}

std::optional<wire::AttachReply> RawAttach::receive(std::vector<Fd>* fds) {
  pollfd p{socket_.get(), POLLIN, 0};
  if (poll(&p, 1, kPatienceMs) != 1) return std::nullopt;
  std::array<char, 8192> packet{};
  iovec data{packet.data(), packet.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(3 * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  ssize_t size = recvmsg(socket_.get(), &message, MSG_CMSG_CLOEXEC);
  // Who is refused before its words were read gets their reset first, then the refusal.
  if (size < 0 && errno == ECONNRESET) {
    size = recvmsg(socket_.get(), &message, MSG_CMSG_CLOEXEC);
  }
  if (size <= 0) return std::nullopt;
  if (const cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr && fds != nullptr) {
    const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int received = -1;
      std::memcpy(&received, CMSG_DATA(header) + i * sizeof(int), sizeof received);
      fds->emplace_back(received);
    }
  }
  wire::AttachReply reply;
  EXPECT_TRUE(reply.ParseFromArray(packet.data(), static_cast<int>(size)));
  return reply;
}

bool RawAttach::closed_by_daemon(int within_ms) {
  pollfd p{socket_.get(), POLLIN, 0};
  char byte = 0;
  return poll(&p, 1, within_ms) == 1 && recv(socket_.get(), &byte, 1, 0) <= 0;
}

std::optional<wire::AttachReply> RawAttach::hello(uint32_t protocol, const wire::Resume* resume) {
  wire::AttachRequest request;
  if (resume != nullptr) *request.mutable_hello()->mutable_resume() = *resume;
  request.mutable_hello()->set_protocol(protocol);
  request.mutable_hello()->set_program("raw");
  send(request);  // who is refused at once cannot send any more, but is told why
  return receive();
}

RawTrainer::RawTrainer(const std::string& runtime_dir, const RawTrainer* former)
    : attach_(runtime_dir), dealer_(context_, ZMQ_DEALER) {
  dealer_.set(zmq::sockopt::linger, 0);
  dealer_.connect("ipc://" + runtime_dir + "/control.sock");
  wire::Resume resume;
  if (former != nullptr) {
    resume.set_session(former->session());
    resume.set_secret(former->secret());
  }
  const auto reply = attach_.hello(kClientProtocols.newest, former == nullptr ? nullptr : &resume);
  if (!reply || !reply->has_welcome()) {
    ADD_FAILURE() << "not welcome: " << (reply ? reply->ShortDebugString() : "closed");
    return;
  }
  session_ = reply->welcome().session();
  secret_ = reply->welcome().secret();
  wire::ClientMessage open;
  open.mutable_open()->set_session(session_);
  open.mutable_open()->set_secret(secret_);
  EXPECT_TRUE(ask(open).has_opened());
}

RawTrainer::Memory RawTrainer::allocate(uint64_t bytes) {
  wire::AttachRequest request;
  request.mutable_allocate()->set_bytes(bytes);
  attach_.send(request);
  std::vector<Fd> fds;
  const auto reply = attach_.receive(&fds);
  if (!reply || !reply->has_segment()) {
    ADD_FAILURE() << "no segment: " << (reply ? reply->ShortDebugString() : "closed");
    return {};
  }
  void* memory = mmap(nullptr, reply->segment().bytes(), PROT_READ | PROT_WRITE, MAP_SHARED,
                      fds.at(0).get(), 0);
  EXPECT_NE(memory, MAP_FAILED);
  return {reply->segment().segment(), reply->segment().bytes(), static_cast<float*>(memory)};
}

void RawTrainer::send_bytes(const std::string& bytes) {
  dealer_.send(zmq::buffer(bytes), zmq::send_flags::none);
}

void RawTrainer::send(wire::ClientMessage message) {
  if (message.protocol() == 0) message.set_protocol(kClientProtocols.newest);
  send_bytes(message.SerializeAsString());
}

std::optional<wire::DaemonMessage> RawTrainer::receive(int milliseconds) {
  dealer_.set(zmq::sockopt::rcvtimeo, milliseconds);
  zmq::message_t body;
  if (!dealer_.recv(body)) return std::nullopt;
  wire::DaemonMessage message;
  EXPECT_TRUE(message.ParseFromArray(body.data(), static_cast<int>(body.size())));
  return message;
}

uint64_t RawTrainer::counter(const std::string& name) {
  wire::ClientMessage query;
  query.mutable_query()->set_what(wire::Query::STATUS);
  const wire::DaemonMessage answer = ask(query);
  for (const auto& counter : answer.reply().status().counters()) {
    if (counter.name() == name) return counter.value();
  }
  ADD_FAILURE() << "no counter " << name;
  return 0;
}

wire::DaemonMessage RawTrainer::ask(wire::ClientMessage message) {
  message.set_request(next_request());
  const uint64_t request = message.request();
  send(std::move(message));
  return answer_to(request);
}

wire::DaemonMessage RawTrainer::answer_to(uint64_t request) {
  while (auto answer = receive(kPatienceMs)) {
    if (answer->request() == request) return *answer;
    for (const wire::Completion& completion : answer->completed().completions()) {
      completions_.push_back(completion);
    }
  }
  ADD_FAILURE() << "no answer";
  return {};
}

uint64_t RawTrainer::begin_join(const std::string& job, uint32_t rank, uint32_t size,
                                const std::string& token) {
  wire::ClientMessage message;
  message.set_request(next_request());
  message.mutable_join()->set_job(job);
  message.mutable_join()->set_token(token);
  message.mutable_join()->set_rank(rank);
  message.mutable_join()->set_size(size);
  send(message);
  return message.request();
}

wire::DaemonMessage RawTrainer::finish_join(uint64_t request) {
  wire::DaemonMessage answer = answer_to(request);
  if (answer.has_joined()) job_ = answer.joined().job();
  return answer;
}

wire::DaemonMessage RawTrainer::join(const std::string& job, uint32_t rank, uint32_t size) {
  return finish_join(begin_join(job, rank, size));
}

wire::DaemonMessage RawTrainer::leave() {
  wire::ClientMessage message;
  message.mutable_leave()->set_job(job_);
  return ask(message);
}

void RawTrainer::submit(const wire::Operation& operation, uint64_t job) {
  wire::ClientMessage message;
  message.mutable_submit()->set_job(job);
  *message.mutable_submit()->add_operations() = operation;
  send(message);
}

wire::Completion RawTrainer::completion() {
  while (completions_.empty()) {
    const auto message = receive(kPatienceMs);
    if (!message) {
      ADD_FAILURE() << "no completion";
      return {};
    }
    for (const wire::Completion& completion : message->completed().completions()) {
      completions_.push_back(completion);
    }
  }
  wire::Completion first = std::move(completions_.front());
  completions_.erase(completions_.begin());
  return first;
}

wire::Operation RawTrainer::allreduce(const Memory& memory, uint64_t count, uint64_t sequence) {
  wire::Operation operation;
  operation.set_ticket(sequence + 1);
  to_wire(OpKey{0, sequence}, operation.mutable_key());
  to_wire({Collective::kAllreduce, Dtype::kFloat32, ReduceOp::kSum, 0, count},
          operation.mutable_signature());
  operation.mutable_input()->set_segment(memory.segment);
  operation.mutable_output()->set_segment(memory.segment);
  return operation;
}

bool form_job(const std::string& job, const std::vector<RawTrainer*>& trainers) {
  std::vector<uint64_t> requests;
  const auto size = static_cast<uint32_t>(trainers.size());
  for (uint32_t rank = 0; rank < size; ++rank)
    requests.push_back(trainers[rank]->begin_join(job, rank, size));
  bool all = true;
  for (uint32_t rank = 0; rank < size; ++rank) {
    const wire::DaemonMessage answer = trainers[rank]->finish_join(requests[rank]);
    EXPECT_TRUE(answer.has_joined()) << "rank " << rank << ": " << answer.ShortDebugString();
    all = all && answer.has_joined();
  }
  return all;
}

}  // namespace gradring::daemon
