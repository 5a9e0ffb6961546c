#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "client/src/communicator.h"
#include "client/src/limits.h"

namespace gradring::client {
namespace {

Status invalid(std::string message) { return {Code::kInvalidArgument, std::move(message)}; }

bool aligned(const void* address, size_t element) {
  return reinterpret_cast<uintptr_t>(address) % element == 0;
}

bool overlap(const void* a, const void* b, uint64_t bytes) {
  const auto low = std::min(reinterpret_cast<uintptr_t>(a), reinterpret_cast<uintptr_t>(b));
  const auto high = std::max(reinterpret_cast<uintptr_t>(a), reinterpret_cast<uintptr_t>(b));
  return high - low < bytes;
}

void to_wire(const Loan& loan, wire::Buffer* to) {
  to->set_segment(loan.segment_id());
  to->set_offset(loan.offset());
}

}  // namespace

tl::expected<uint64_t, Status> Communicator::submit(const gradring_op& op) {
  Inside inside(*this);
  auto& lock = inside.lock();
  auto request = prepare(op);
  if (!request) return tl::unexpected(request.error());
  if (request->input.registered()) {
    // Lent memory cannot be freed, so it can be copied without the lock.
    lock.unlock();
    std::memcpy(request->input.shared(), request->input.users(), request->signature.bytes());
    lock.lock();
  }
  return send(lock, std::move(*request), op.priority);
}

tl::expected<Request, Status> Communicator::prepare(const gradring_op& op) {
  const auto signature =
      check_op(op, settings_.elastic() ? std::nullopt : std::optional<uint32_t>(settings_.size));
  if (!signature) return tl::unexpected(signature.error());
  Request request;
  request.signature = *signature;
  if (op.name != nullptr) request.name = op.name;
  if (signature->count == 0) return request;  // a barrier, or an op that moves nothing

  const uint64_t bytes = signature->bytes();
  const size_t element = size_of(signature->dtype);
  // Who receives a broadcast has nothing to give.
  const bool receives_only =
      signature->collective == Collective::kBroadcast && signature->root != settings_.rank;
  const void* input = receives_only && op.input == nullptr ? op.output : op.input;
  if (!aligned(input, element) || !aligned(op.output, element)) {
    return tl::unexpected(
        invalid(fmt::format("input {} or output {} is not aligned to the {} bytes of {}", input,
                            op.output, element, name_of(signature->dtype))));
  }
  if (input != op.output && overlap(input, op.output, bytes)) {
    return tl::unexpected(invalid(
        fmt::format("input {} and output {} overlap over {} bytes; they must be equal or apart",
                    input, op.output, bytes)));
  }
  const auto from = segments_.find(input, bytes, "input");
  if (!from) return tl::unexpected(from.error());
  const auto to = segments_.find(op.output, bytes, "output");
  if (!to) return tl::unexpected(to.error());
  request.input = Loan(*from);
  request.output = Loan(*to);
  return request;
}

tl::expected<uint64_t, Status> Communicator::send(std::unique_lock<std::mutex>& lock,
                                                  Request request, int32_t priority) {
  // The key is taken only when the message can go: one that is taken and never sent would leave the
  // other ranks waiting for it.
  const Status room = session_.wait_for_room(lock);
  if (Status refused = refusal(); !refused.ok()) return tl::unexpected(refused);
  if (!room.ok()) return tl::unexpected(room);
  if (Status turn = out_of_turn(request); !turn.ok()) return tl::unexpected(turn);
  const auto key = next_key(request);
  if (!key) return tl::unexpected(key.error());
  request.key = *key;

  const uint64_t ticket = session_.next_number();
  wire::ClientMessage message;
  message.set_request(ticket);
  message.mutable_submit()->set_job(job_);
  wire::Operation& operation = *message.mutable_submit()->add_operations();
  operation.set_ticket(ticket);
  gradring::to_wire(request.key, operation.mutable_key());
  operation.set_name(request.name);
  gradring::to_wire(request.signature, operation.mutable_signature());
  if (request.input.any()) {
    to_wire(request.input, operation.mutable_input());
    to_wire(request.output, operation.mutable_output());
  }
  operation.set_priority(priority);

  // Entered before it is sent, because sending also reads, and the answer may be there at once.
  const Request& entered = requests_.emplace(ticket, std::move(request)).first->second;
  if (entered.is_join_point()) join_point_ = ticket;
  if (Status sent = session_.send(std::move(message)); !sent.ok()) {
    if (join_point_ == ticket) join_point_ = 0;
    requests_.erase(ticket);
    return tl::unexpected(sent);
  }
  count(entered);
  return ticket;
}

tl::expected<OpKey, Status> Communicator::next_key(const Request& request) const {
  // The daemon counts join points itself.
  if (request.is_join_point()) return OpKey{OpKey::kJoinSpace, 0};
  if (request.name.empty()) return OpKey{0, sequence_};
  const uint64_t space = hash_of_name(request.name);
  const auto uses = name_uses_.find(space);
  if (uses != name_uses_.end()) return OpKey{space, uses->second};
  if (name_uses_.size() >= kOpNames) {
    return tl::unexpected(
        Status(Code::kResourceExhausted,
               fmt::format("'{}' is a new op name, and this communicator has used {} already; use "
                           "the same names in each step",
                           request.name, kOpNames)));
  }
  return OpKey{space, 0};
}

void Communicator::count(const Request& request) {
  if (request.is_join_point()) return;
  if (request.name.empty()) {
    ++sequence_;
  } else {
    ++name_uses_[request.key.space];
  }
}

}  // namespace gradring::client
