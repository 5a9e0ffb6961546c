#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <numeric>
#include <thread>

#include "proto/stream_word.h"
#include "proto/types.h"
#include "tests/client/fake_daemon.h"
#include "tests/client/fake_sockets.h"
#include "tests/client/fake_view.h"

// What the fake daemon answers, on either channel.
namespace gradring::test {
namespace {

std::string secret_of(uint64_t session) { return "secret of " + std::to_string(session); }

}  // namespace

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
  if (request.has_rings()) return make_rings(session, request.rings());
  if (request.has_offer()) {
    const std::lock_guard lock(mutex_);
    wire::AttachReply reply;
    reply.mutable_offered()->set_request(request.offer().request());
    if (script_.refuse_offer) {
      *reply.mutable_refused() = *script_.refuse_offer;
      reply.mutable_refused()->set_request(request.offer().request());
    }
    return send_packet(session.fd, reply.SerializeAsString());
  }
  if (request.has_borrow()) {
    borrow(session, request.borrow());
    return;
  }
  greet(session, id, request.hello());
}

void FakeDaemon::greet(Session& session, uint64_t id, const wire::AttachHello& hello) {
  const std::lock_guard lock(mutex_);
  hellos_.push_back(hello);
  arrived_.notify_all();
  if (!script_.answer_hello) return;
  if (script_.answer_hello_with) return send_packet(session.fd, *script_.answer_hello_with);
  wire::AttachReply reply;
  const bool resumes = hello.has_resume() && known_.count(hello.resume().session()) > 0 &&
                       hello.resume().secret() == secret_of(hello.resume().session());
  const uint64_t number = resumes ? hello.resume().session() : id;
  if (script_.refuse_hello) {
    *reply.mutable_refused() = *script_.refuse_hello;
  } else {
    reply.mutable_welcome()->set_protocol(script_.protocol);
    reply.mutable_welcome()->set_product_version("9.9.9");
    reply.mutable_welcome()->set_node(script_.node);
    reply.mutable_welcome()->set_session(number);
    reply.mutable_welcome()->set_secret(secret_of(number));
    reply.mutable_welcome()->set_restart_grace_ms(script_.restart_grace_ms);
    reply.mutable_welcome()->set_resumed(resumes);
    reply.mutable_welcome()->set_lends(script_.lends);
    reply.mutable_welcome()->set_ring_layout(script_.rings ? kRingLayout : 0);
    reply.mutable_welcome()->set_stream_words(script_.stream_words);
    reply.mutable_welcome()->set_sums_on_gpus(script_.sums_on_gpus);
    reply.mutable_welcome()->set_takes_gpu_descriptors(script_.takes_gpu_descriptors);
    reply.mutable_welcome()->set_gpu_direct(script_.gpu_direct);
    reply.mutable_welcome()->set_asks_for_failed(script_.asks_for_failed);
    known_.insert(number);
  }
  send_packet(session.fd, reply.SerializeAsString());
  if (number == id) return;
  sessions_[number].fd = session.fd;
  sessions_.erase(id);
}

void FakeDaemon::make_rings(Session& session, const wire::MakeRings& request) {
  session.rings = std::make_shared<FakeRings>();
  wire::AttachReply reply;
  reply.mutable_rings()->set_request(request.request());
  reply.mutable_rings()->set_bytes(sizeof(RingPair));
  send_packet(session.fd, reply.SerializeAsString(), session.rings->descriptors());
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
  send_packet(session.fd, reply.SerializeAsString(),
              std::span(&fd, script_.memory == Memory::kNone ? 0 : 1));
}

void FakeDaemon::borrow(Session& session, const wire::BorrowSegment& request) {
  ++borrowed_;
  wire::AttachReply reply;
  const auto found = segments_.find(request.segment());
  if (found == segments_.end() || request.secret() != secret_of(request.session())) {
    reply.mutable_refused()->set_request(request.request());
    reply.mutable_refused()->set_message("no such segment");
    send_packet(session.fd, reply.SerializeAsString());
    return;
  }
  const size_t bytes = found->second.memory.size();
  const int fd = ::dup(found->second.fd);
  void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  must(data != MAP_FAILED, "mmap");
  const uint64_t id = ++last_id_;
  segments_[id] = {fd, {static_cast<std::byte*>(data), bytes}};
  reply.mutable_segment()->set_request(request.request());
  reply.mutable_segment()->set_segment(id);
  reply.mutable_segment()->set_bytes(bytes);
  send_packet(session.fd, reply.SerializeAsString());
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
      if (session == sessions_.end() ||
          message.open().secret() != secret_of(message.open().session())) {
        return;
      }
      if (script.answer_open_with) return send_to(routing_id, *script.answer_open_with);
      if (!script.answer_open) return;
      std::this_thread::sleep_for(script.open_takes);
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
    case wire::ClientMessage::kShareGpu:
      reply.mutable_gpu_shared();
      refusal = script.refuse_share_gpu;
      break;
    case wire::ClientMessage::kQuery:
      if (!script.job_report) return;
      *reply.mutable_reply()->mutable_job() = *script.job_report;
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
  if (message.has_open() && script.say_after_open) {
    send_to(routing_id, script.say_after_open->SerializeAsString());
  }
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
    compute_once(routing_id, operation);
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

void FakeDaemon::compute_once(const std::string& routing_id, const wire::Operation& operation) {
  for (const auto& [id, session] : sessions_) {
    if (session.routing_id != routing_id) continue;
    if (!computed_.insert({id, operation.ticket()}).second) continue;
    const StreamWord reached{word_at(operation.reached()), operation.reached().value()};
    while (reached && !reached.has_come()) std::this_thread::yield();
    compute(operation);
    const StreamWord ended{word_at(operation.ended()), operation.ended().value()};
    if (ended) ended.set();
  }
}

uint32_t* FakeDaemon::word_at(const wire::StreamWord& word) {
  if (word.value() == 0) return nullptr;
  return reinterpret_cast<uint32_t*>(segments_.at(word.segment()).memory.data() + word.offset());
}

// Sums of float32 as if every rank had the same input; everything else passes unchanged.
void FakeDaemon::compute(const wire::Operation& operation) {
  Signature signature;
  if (!from_wire(operation.signature(), &signature)) return;
  if (signature.count == 0 || operation.on_gpu()) return;
  if (!operation.has_input() || !operation.has_output()) return;  // nothing to compute here
  std::byte* input =
      segments_.at(operation.input().segment()).memory.data() + operation.input().offset();
  std::byte* output =
      segments_.at(operation.output().segment()).memory.data() + operation.output().offset();
  if (input != output) std::memmove(output, input, signature.bytes());
  if (signature.dtype != Dtype::kFloat32 || signature.op != ReduceOp::kSum) return;
  for (uint64_t i = 0; i < signature.count; ++i) {
    float value = 0;
    std::memcpy(&value, output + i * sizeof(float), sizeof(float));
    value *= static_cast<float>(join_.size());
    std::memcpy(output + i * sizeof(float), &value, sizeof(float));
  }
}

wire::Completion FakeDaemon::good() const {
  wire::Completion completion;
  completion.set_verdict(static_cast<uint32_t>(Verdict::kOk));
  completion.set_epoch(1);
  completion.set_ranks_min(join_.size());
  completion.set_ranks_max(join_.size());
  return completion;
}

}  // namespace gradring::test
