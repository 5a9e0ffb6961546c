#include <fmt/format.h>

#include <algorithm>

#include "client/src/communicator/communicator.h"
#include "client/src/limits.h"
#include "client/src/refusal.h"
#include "proto/wire.h"

namespace gradring::client {
namespace {

bool aligned(const void* address, size_t element) {
  return reinterpret_cast<uintptr_t>(address) % element == 0;
}

bool overlap(const void* a, uint64_t a_bytes, const void* b, uint64_t b_bytes) {
  const auto low = reinterpret_cast<uintptr_t>(a);
  const auto high = reinterpret_cast<uintptr_t>(b);
  return low < high ? high - low < a_bytes : low - high < b_bytes;
}

uint64_t part_bytes_for(const Extent& extent) {
  const uint64_t eighth = std::max(extent.input, extent.output) / kPartsMost;
  const uint64_t whole_pages = (eighth + kPartBytesLeast) / kPartBytesLeast * kPartBytesLeast;
  return std::max(kPartBytes, whole_pages);
}

void to_wire(const Loan& loan, wire::Buffer* to) {
  to->set_segment(loan.segment_id());
  to->set_offset(loan.offset());
}

// Each lies in the segment of one of the op's buffers.
const Loan& place_of_reached(const Request& request) {
  return request.input.of_a_gpu() ? request.input : request.output;
}

void to_wire(const Loan& loan, const HeldWord& word, wire::StreamWord* to) {
  to->set_segment(loan.segment_id());
  to->set_offset(word.offset());
  to->set_value(word.word().value);
}

void to_wire(uint64_t ticket, const Request& request, wire::Operation* to) {
  to->set_ticket(ticket);
  gradring::to_wire(request.key, to->mutable_key());
  to->set_name(request.name);
  gradring::to_wire(request.signature, to->mutable_signature());
  if (request.input.any()) to_wire(request.input, to->mutable_input());
  if (request.output.any()) to_wire(request.output, to->mutable_output());
  to->set_priority(request.priority);
  to->set_position(request.position);
  to->set_prescale(factor_to_wire(request.prescale));
  gradring::to_wire(request.signature.blocks, to->mutable_counts());
  if (request.reached.any()) {
    to_wire(place_of_reached(request), request.reached, to->mutable_reached());
  }
  if (request.ended.any()) to_wire(request.output, request.ended, to->mutable_ended());
  to->set_part_bytes(request.part_bytes);
  to->set_on_gpu(request.on_gpu);
  to->set_stays_on_gpu(request.on_gpu && request.stays);
}

RingSubmission ring_entry(uint64_t ticket, const Request& request) {
  RingSubmission entry;
  entry.ticket = ticket;
  entry.key = request.key;
  entry.collective = static_cast<uint8_t>(request.signature.collective);
  entry.dtype = static_cast<uint8_t>(request.signature.dtype);
  entry.op = static_cast<uint8_t>(request.signature.op);
  entry.wire = static_cast<uint8_t>(request.signature.wire);
  entry.root = request.signature.root;
  entry.count = request.signature.count;
  entry.ranks = request.signature.ranks;
  entry.position = request.position;
  entry.priority = request.priority;
  entry.prescale = request.prescale;
  entry.postscale = request.signature.postscale;
  if (request.input.any()) {
    entry.input_segment = request.input.segment_id();
    entry.input_offset = request.input.offset();
  }
  if (request.output.any()) {
    entry.output_segment = request.output.segment_id();
    entry.output_offset = request.output.offset();
  }
  if (request.reached.any()) {
    entry.reached_segment = place_of_reached(request).segment_id();
    entry.reached_offset = request.reached.offset();
    entry.reached_value = request.reached.word().value;
  }
  if (request.ended.any()) {
    entry.ended_offset = request.ended.offset();
    entry.ended_value = request.ended.word().value;
  }
  entry.part_kib = static_cast<uint32_t>(request.part_bytes >> 10);
  if (request.on_gpu) entry.on_gpu = request.stays ? kOnGpu | kStaysOnGpu : kOnGpu;
  return entry;
}

}  // namespace

tl::expected<uint64_t, Status> Communicator::submit(const gradring_op& op) {
  if (goes_to_a_peer(op)) return submit_to_peer(op);
  uint64_t ticket = 0;
  Status refused = submit({&op, 1}, &ticket);
  if (!refused.ok()) return tl::unexpected(refused);
  return ticket;
}

Status Communicator::submit(std::span<const gradring_op> ops, uint64_t* tickets) {
  Inside inside(*this);
  auto& lock = inside.lock();
  if (std::any_of(ops.begin(), ops.end(), goes_to_a_peer)) {
    return invalid("sends and receives are submitted one by one, not together with others");
  }
  std::vector<Request> requests;
  requests.reserve(ops.size());
  for (const gradring_op& op : ops) {
    if (Status borrowed = borrow_for(lock, op); !borrowed.ok()) return borrowed;
  }
  for (const gradring_op& op : ops) {
    auto request = prepare(lock, op);
    if (!request) return request.error();
    requests.push_back(std::move(*request));
  }
  const auto is_copied = [](const Request& request) {
    return request.input.registered() || request.output.of_a_gpu();
  };
  const bool orders = session_.orders_streams();
  if (std::any_of(requests.begin(), requests.end(), is_copied)) {
    lock.unlock();
    Status fetched;
    for (size_t i = 0; i < requests.size() && fetched.ok(); ++i) {
      fetched = fetch(&requests[i], ops[i].stream, orders);
    }
    lock.lock();
    if (!fetched.ok()) return fetched;
  }
  return send(lock, requests, tickets);
}

// Nothing of the op is begun before its stream has come to it. Where that can be left to the daemon
// nobody waits here.
Status Communicator::fetch(Request* request, void* stream, bool orders) {
  const Loan& input = request->input;
  const Loan& output = request->output;
  if (orders && (input.of_a_gpu() || output.of_a_gpu())) {
    const auto begun = begin_behind(request, stream);
    if (!begun) return begun.error();
    if (*begun) return {};
  }
  Status reached;
  if (output.of_a_gpu()) reached = output.reach(stream);
  if (!reached.ok() || !input.registered()) return reached;
  return input.fetch(request->extent.input, stream);
}

// False: it cannot be left to the daemon.
tl::expected<bool, Status> Communicator::begin_behind(Request* request, void* stream) {
  const Loan& place = request->input.of_a_gpu() ? request->input : request->output;
  const Extent& extent = request->extent;
  const uint64_t part = request->part_bytes = part_bytes_for(extent);
  const bool on_gpu = request->suits_gpus() &&
                      (!request->gives_to_gpus() || request->input.opened()) &&
                      (!request->takes_from_gpus() || request->output.opened());
  const bool gives = on_gpu && request->gives_to_gpus();
  const bool takes = on_gpu && request->takes_from_gpus();
  HeldWord reached =
      place.take_word(gives ? 1 : parts_of(extent.input, part), StreamWords::By::kStream);
  if (!reached.any()) return false;
  if (request->input.registered() && !request->input.of_a_gpu()) {
    Status copied = request->input.fetch(extent.input, nullptr);
    if (!copied.ok()) return tl::unexpected(std::move(copied));
  }
  const uint64_t bytes = request->input.of_a_gpu() ? extent.input : 0;
  const bool in_order = request->output.of_a_gpu() && !(takes && request->output.in_place());
  auto begun = Loan::begin(request->input, request->output, {bytes, part, gives, in_order}, stream,
                           reached.word());
  if (!begun || !*begun) return begun;
  request->reached = std::move(reached);
  request->on_gpu = on_gpu;
  if (!request->output.of_a_gpu()) return true;
  request->ended =
      request->output.take_word(takes ? 1 : parts_of(extent.output, part), StreamWords::By::kHost);
  return true;
}

tl::expected<Request, Status> Communicator::prepare(std::unique_lock<std::mutex>& lock,
                                                    const gradring_op& op) {
  const View& view = views_.newest();
  const auto signature = check_op(op, view.size(), settings_.elastic(), settings_.wire);
  if (!signature) return tl::unexpected(signature.error());
  Request request;
  request.signature = *signature;
  request.priority = op.priority;
  if (op.prescale != 0) request.prescale = op.prescale;
  if (op.name != nullptr) request.name = op.name;
  if (needs_all_ranks(signature->collective)) {
    request.position = view.position_of(settings_.rank);
    const uint32_t last = signature->ranks - 1;
    if (signature->blocks.uneven() && request.position > last) {
      return tl::unexpected(
          invalid(fmt::format("counts for {} ranks, but this is number {} of those that there are",
                              signature->ranks, request.position)));
    }
    // Then it fails, on all ranks alike, because there are more.
    request.position = std::min(request.position, last);
  }
  // Who only receives has nothing to give, and the other way round.
  const Extent extent = request.extent = extent_of(*signature, settings_.rank, request.position);
  const size_t element = size_of(signature->dtype);
  if ((extent.input != 0 && !aligned(op.input, element)) ||
      (extent.output != 0 && !aligned(op.output, element))) {
    return tl::unexpected(
        invalid(fmt::format("input {} or output {} is not aligned to the {} bytes of {}", op.input,
                            op.output, element, name_of(signature->dtype))));
  }
  const bool overlaps = extent.input != 0 && extent.output != 0 &&
                        overlap(op.input, extent.input, op.output, extent.output);
  if (overlaps && !in_place(*signature, request.position, op.input, op.output)) {
    return tl::unexpected(invalid(fmt::format(
        "input {} of {} bytes and output {} of {} bytes overlap; they must be {}", op.input,
        extent.input, op.output, extent.output, in_place_words(signature->collective))));
  }
  request.stays = may_stay(request, view, session_.gpu_direct());
  if (Status lent = lend(lock, op, overlaps, &request); !lent.ok()) return tl::unexpected(lent);
  return request;
}

Status Communicator::send(std::unique_lock<std::mutex>& lock, std::span<Request> requests,
                          uint64_t* tickets) {
  session_.keep_up();
  // Keys are taken only when all messages can go: one that is taken and never sent would leave the
  // other ranks waiting for it.
  Status room;
  const auto may_ring_one = [this](const Request& request) { return may_ring(request); };
  const bool all_ring = session_.ring_room() >= requests.size() &&
                        std::all_of(requests.begin(), requests.end(), may_ring_one);
  if (!all_ring) room = session_.wait_for_room(lock);
  if (Status refused = refusal(); !refused.ok()) return refused;
  if (!room.ok()) return room;
  // Nothing lets go of the lock from here on.
  for (const Request& request : requests) {
    if (Status turn = out_of_turn(request); !turn.ok()) return turn;
  }
  if (Status names = room_for_names(requests); !names.ok()) return names;

  // Entered before any is sent, because sending also reads: the answer may be there at once, and so
  // may the end of the session.
  std::vector<const Request*> entered;
  entered.reserve(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    requests[i].key = next_key(requests[i]);
    count(requests[i]);
    prioritize(requests[i]);
    tickets[i] = session_.next_number();
    if (requests[i].is_join_point() && !requests[i].given_key) join_point_ = tickets[i];
    if (requests[i].is_join()) join_ = tickets[i];
    entered.push_back(&requests_.emplace(tickets[i], std::move(requests[i])).first->second);
  }
  for (size_t i = 0; i < entered.size(); ++i) {
    // A daemon that is away is told when it is back.
    if (session_.away() || session_.lost()) break;
    if (may_ring(*entered[i])) {
      session_.put(ring_entry(tickets[i], *entered[i]));
    } else {
      send_message(tickets[i], *entered[i]);
    }
  }
  return {};
}

void Communicator::send_message(uint64_t ticket, const Request& request) {
  wire::ClientMessage message;
  message.set_request(ticket);
  message.mutable_submit()->set_job(job_);
  seen_.tell(ticket, message.mutable_submit());
  to_wire(ticket, request, message.mutable_submit()->add_operations());
  if (!request.name.empty()) names_told_.insert(request.key.space);
  session_.send(std::move(message));
}

// A name is told in a message first, and now and then what ends we have taken in; so are counts,
// for which a ring's entries have no room.
bool Communicator::may_ring(const Request& request) const {
  if (request.signature.blocks.uneven()) return false;
  if (request.is_join_point() || newcomer_ || seen_.untold() >= kSeenUntold) return false;
  if (!request.name.empty() && names_told_.count(hash_of_name(request.name)) == 0) return false;
  return session_.takes_ring_entries();
}

std::vector<wire::ClientMessage> Communicator::unfinished(uint64_t number) {
  std::vector<wire::ClientMessage> messages;
  size_t bytes = 0;
  const auto another = [&] {
    wire::ClientMessage& message = messages.emplace_back();
    message.set_request(number);
    message.mutable_submit()->set_job(job_);
    bytes = 0;
    return message.mutable_submit();
  };
  wire::Submit* submit = nullptr;
  names_told_.clear();
  seen_.take_back();
  while (seen_.any()) seen_.tell(number, submit = another());
  for (const auto& [ticket, request] : requests_) {
    if (request.outcome.ended()) continue;
    if (submit == nullptr || bytes >= kSubmitBytes) submit = another();
    wire::Operation& operation = *submit->add_operations();
    to_wire(ticket, request, &operation);
    bytes += operation.ByteSizeLong();
  }
  return messages;
}

OpKey Communicator::next_key(const Request& request) const {
  if (request.given_key) return *request.given_key;
  // The daemon counts join points itself.
  if (request.is_join_point()) return {OpKey::kJoinSpace, 0};
  if (request.name.empty()) return {0, sequence_};
  const uint64_t space = hash_of_name(request.name);
  const auto uses = name_uses_.find(space);
  return {space, uses != name_uses_.end() ? uses->second : 0};
}

Status Communicator::room_for_names(std::span<const Request> requests) const {
  std::unordered_set<uint64_t> fresh;
  for (const Request& request : requests) {
    if (request.name.empty()) continue;
    const uint64_t space = hash_of_name(request.name);
    if (name_uses_.count(space) > 0 || !fresh.insert(space).second) continue;
    if (name_uses_.size() + fresh.size() <= kOpNames) continue;
    return {Code::kResourceExhausted,
            fmt::format("'{}' is a new op name, and this communicator has used {} already; use the "
                        "same names in each step",
                        request.name, kOpNames)};
  }
  return {};
}

// Whoever stands in for itself has no name, and takes no part.
void Communicator::prioritize(Request& request) {
  if (!settings_.learns_priorities || request.name.empty()) return;
  const NeedOrder::Place place = need_order_.submitted(request.name);
  request.step = place.step;
  if (request.priority == 0) request.priority = place.priority;
}

void Communicator::count(const Request& request) {
  if (request.is_join_point() || request.given_key) return;
  ++own_ops_;
  if (request.name.empty()) {
    ++sequence_;
  } else {
    ++name_uses_[request.key.space];
  }
}

}  // namespace gradring::client
