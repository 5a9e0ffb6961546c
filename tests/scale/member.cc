#include "tests/scale/member.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace gradring::scale {
namespace {

constexpr uint32_t kSlicesPerTurn = 8;  // as the data thread has it

// A pass is shared with helpers from here on, as the data thread does it.
constexpr double kWorthSharing = 256 << 10;

// A socket says that it has room again when so much of it is free.
constexpr double kRoomWorthTelling = 32 << 10;

double length_of(const Frame& frame) {
  return kFrameBytes + static_cast<double>(payload_of(frame));
}

}  // namespace

Member::Member(const core::View& view, uint32_t me, const core::EngineOptions& options,
               const Machine& machine, Host* host, World* world)
    : machine_(machine),
      number_(me),
      host_(host),
      world_(world),
      engine_(view, me, options, this),
      locals_(static_cast<double>(view.members[me].ranks.size())) {}

void Member::submit(const core::Submission& submission, Time now) {
  submitted_.push_back(submission);
  rouse(now);
}

void Member::arrive(const Parcel& parcel, Time now) {
  arrived_.push_back(parcel);
  rouse(now);
}

void Member::sent(core::Staging lent, Time now) {
  sent_.push_back(lent);
  rouse(now);
}

// A thread that looks on notices at once; one that sleeps must be woken.
void Member::rouse(Time now) {
  if (turn_due_) return;
  turn_due_ = true;
  const bool asleep = now - free_at_ > us(machine_.look_on_us);
  world_->schedule_turn(this, std::max(now + (asleep ? us(machine_.wake_us) : 0), free_at_));
}

void Member::turn(Time now) {
  const Time begin = std::max(free_at_, host_->processors().earliest());
  if (begin > now) return world_->schedule_turn(this, begin);
  turn_due_ = false;
  now_ = now;
  cost_ = 0;
  const auto began = std::chrono::steady_clock::now();
  const uint32_t worked = work();
  thinking_ += std::chrono::steady_clock::now() - began;
  free_at_ = now + cost_;
  busy_ += cost_;
  host_->processors().take(free_at_);
  if (worked == kSlicesPerTurn) {
    turn_due_ = true;
    world_->schedule_turn(this, free_at_);
  } else if (!outbox_.empty() && flush_due_ <= now) {
    flush_due_ = room_at();
    world_->schedule_turn(this, flush_due_);
  }
}

uint32_t Member::work() {
  for (; !submitted_.empty(); submitted_.pop_front()) {
    cost_ += us(machine_.submit_us);
    if (!engine_.submit(submitted_.front(), now_).ok()) {
      throw std::logic_error("a submission was refused");
    }
  }
  for (; !sent_.empty(); sent_.pop_front()) engine_.on_sent(sent_.front());
  for (; !arrived_.empty(); arrived_.pop_front()) take(arrived_.front());
  flush();
  return engine_.pump(kSlicesPerTurn);
}

void Member::take(const Parcel& parcel) {
  const Frame& frame = parcel.frame;
  const uint32_t payload = payload_of(frame);
  cost_ += us(machine_.receive_us);
  if (parcel.local && payload > 0) {
    pass(By::kThread, payload, WireType::kNative, 1, 1, 0, 0);
  } else if (!parcel.local) {
    cost_ += took(payload, machine_.receive_copy_gbs);
  }
  if (is_direct(frame)) {
    if (const auto unit = engine_.on_parcel(parcel.from, frame))
      engine_.on_parcel_landed(*unit, now_);
  } else if (frame.type == FrameType::kSlice) {
    if (const auto slot = engine_.on_slice(parcel.from, frame)) engine_.on_slice_landed(*slot);
  } else {
    engine_.on_frame(parcel.from, frame, now_);
  }
}

void Member::pass(By by, uint64_t bytes, WireType wire, double reads, double writes, double packs,
                  double unpacks) {
  const auto size = static_cast<double>(bytes);
  const double moved = size * (reads + writes);
  const double idle = std::max(0.0, static_cast<double>(host_->processors().free(here())) - 1);
  const bool shared = by == By::kTeam && moved >= kWorthSharing;
  const double threads = shared ? 1 + std::min(machine_.helpers, idle) : 1;
  const Time alone = took(moved, machine_.thread_gbs) +
                     took(size * packs, machine_.pack_rate(wire)) +
                     took(size * unpacks, machine_.unpack_rate(wire));
  cost_ += us(machine_.slice_us);
  const auto lasts = static_cast<Time>(static_cast<double>(alone) / threads);
  const Time until = host_->use_memory(here(), lasts, moved);
  cost_ = until - now_;
  const auto helpers = static_cast<uint32_t>(threads) - 1;
  for (uint32_t i = 0; i < helpers; ++i) host_->processors().take(until);
}

void Member::fold(const core::FoldOrder& order) {
  const core::Plan& plan = order.op->plan;
  const bool packed = plan.wire != WireType::kNative;
  const double wire = packed ? static_cast<double>(plan.packed_length_of(order.slice)) /
                                   static_cast<double>(plan.length_of(order.slice))
                             : 1;
  const bool stays = order.leaves || !order.deliver;
  pass(By::kTeam, plan.length_of(order.slice), plan.wire, locals_ + (order.onto_arrived ? wire : 0),
       (stays ? wire : 0) + (order.deliver ? locals_ : 0), 1,
       (order.onto_arrived ? 1 : 0) + (order.deliver ? 1 : 0));
}

void Member::sum(const core::SumOrder& order) {
  pass(By::kTeam, order.op->plan.length_of(order.slice), WireType::kNative,
       static_cast<double>(order.parts.size()), (order.partial ? 0 : locals_) + (order.at ? 1 : 0),
       0, 0);
}

void Member::deliver(const core::Op& op, uint32_t slice, core::Staging) {
  const double wire = static_cast<double>(op.plan.packed_length_of(slice)) /
                      static_cast<double>(op.plan.length_of(slice));
  pass(By::kTeam, op.plan.length_of(slice), op.plan.wire, wire, locals_, 0, 1);
}

std::optional<uint32_t> Member::keep(const core::Op& op, uint32_t slice) {
  const bool stays = op.plan.wire == WireType::kNative;  // in the buffer of a slot
  const uint32_t length = stays ? 0 : op.plan.length_of(slice);
  const double room = 2 * machine_.slots * machine_.slice_bytes;  // as the data thread has it
  if (static_cast<double>(kept_bytes_ + length) > room) return std::nullopt;
  if (!stays) pass(By::kThread, length, WireType::kNative, 1, 1, 0, 0);
  kept_bytes_ += length;
  kept_.push_back(length);
  return static_cast<uint32_t>(kept_.size() - 1);
}

void Member::drop(uint32_t kept) { kept_bytes_ -= kept_[kept]; }

void Member::fetch(const core::Op&, uint32_t, core::Staging) {
  throw std::logic_error("a slice is handed out although nobody was lost");
}

void Member::send(uint32_t member, const Frame& frame) { give({member, frame, std::nullopt}); }

void Member::send_slice(uint32_t member, const Frame& frame, core::Staging from) {
  give({member, frame, from});
}

void Member::send_direct(uint32_t member, const Frame& frame, core::Staging from) {
  give({member, frame, from});
}

// What has no payload waits for nothing but what goes the same way.
void Member::give(Outgoing outgoing) {
  cost_ += us(machine_.send_us);
  ++frames_sent_;
  const uint32_t to = outgoing.to;
  const bool behind = std::any_of(outbox_.begin(), outbox_.end(),
                                  [to](const Outgoing& other) { return other.to == to; });
  const bool by_socket = machine_.socket_bytes > 0 && !world_->is_local(*this, to);
  if (!by_socket || (!outgoing.lent && !behind)) {
    world_->post(this, here(), to, outgoing.frame, 0, outgoing.lent);
    return;
  }
  outbox_.push_back(std::move(outgoing));
  flush();
}

void Member::flush() {
  while (!outbox_.empty()) {
    Outgoing& first = outbox_.front();
    const double left = length_of(first.frame) - first.ahead;
    const double room = machine_.socket_bytes - host_->queued_bytes(here());
    if (room < std::min(left, kRoomWorthTelling)) return;
    cost_ += took(std::min(left, room), machine_.send_copy_gbs);
    if (left > room) {
      host_->feed(here(), room);
      first.ahead += room;
      continue;
    }
    world_->post(this, here(), first.to, first.frame, first.ahead, first.lent);
    outbox_.pop_front();
  }
}

// When the socket has room for more, and the thread has noticed.
Time Member::room_at() const {
  const double full = host_->queued_bytes(free_at_) + kRoomWorthTelling - machine_.socket_bytes;
  const Time waits = host_->line_time(std::max(0.0, full)) + 1;
  return free_at_ + waits + (waits > us(machine_.look_on_us) ? us(machine_.wake_us) : 0);
}

void Member::complete(uint32_t rank, uint64_t ticket, const core::Outcome& outcome) {
  if (outcome.verdict != Verdict::kOk) throw std::logic_error("an op did not end well");
  cost_ += us(machine_.complete_us);
  world_->completed(this, here(), rank, ticket);
}

void Member::fail_job(const Failure& failure) {
  throw std::logic_error("the job failed: " + failure.blame.evidence);
}

}  // namespace gradring::scale
