// The passes over memory that the engine wants: what is folded, summed, copied, kept.

#include <algorithm>
#include <cstring>
#include <functional>

#include "daemon/clock.h"
#include "daemon/data/job_executor.h"
#include "proto/check.h"
#include "transport/checksum.h"
#include "transport/reducer.h"
#include "transport/wire_format.h"

namespace gradring::daemon {
namespace {

// In the number of a kept copy: it is that of a buffer of the slots.
constexpr uint32_t kInSlotBuffer = uint32_t{1} << 31;

}  // namespace

std::byte* JobExecutor::memory_at(core::Staging at) {
  if (at.kind == core::Staging::Kind::kUnit) staging_.have_unit(at.index, engine_.unit_bytes());
  return staging_.at(at);
}

uint32_t JobExecutor::checksum_of(core::Staging at, uint32_t length) {
  return transport::crc32c({memory_at(at), length});
}

// New bytes lie there. They are still in the cache, so their checksum costs least now.
void JobExecutor::made(core::Staging at, uint32_t length) {
  const bool leaves = checksum_ && engine_.view().members.size() > 1;
  checksums_.of(at) = leaves ? std::optional(checksum_of(at, length)) : std::nullopt;
}

// What was gathered to go together does not wait for it. At some GB/s less than this is over in the
// time that a message takes.
void JobExecutor::before_long_work(uint64_t bytes) {
  constexpr uint64_t kLong = 16 << 10;
  if (bytes >= kLong) shared_->outbox.flush();
}

void JobExecutor::fold(const core::FoldOrder& order) {
  const core::Op& op = *order.op;
  const core::Block block = op.plan.block_of(order.slice);
  const uint64_t input_at = op.plan.input_at(order.slice);
  const uint64_t output_at = op.plan.output_at(order.slice);
  const uint32_t length = op.plan.length_of(order.slice);
  const bool stays = order.leaves || !order.deliver;
  const bool copies = order.source == core::Fold::kSource;
  before_long_work(length);
  if (!order.onto_arrived) flight_->slice_started(op.key, order.slice, length);
  if (gpu_ops_.stays_there(op.key)) {  // by now it is there
    return flight_->slice_delivered(op.key, order.slice, length);
  }
  if (rides(op)) {
    gpu_ring_->fold(order);
    if (order.deliver) flight_->slice_delivered(op.key, order.slice, length);
    return;
  }
  if (!order.onto_arrived) put_on_host(order.at);

  folded_bytes_ += length;
  inputs_.clear();
  factors_.clear();
  folded_.clear();
  outputs_.clear();
  const GpuOps::Leader* const leader = gpu_ops_.leader_of(op.key);
  const std::byte* const sums = leader == nullptr ? nullptr : leader->input;
  for (const auto& local : op.locals) {
    if (!local) continue;
    const Lent& lent = lent_to(*local);
    const bool another_takes = leader != nullptr && leader->takes_for(local->rank);
    if (order.deliver && !another_takes && block.goes_to(local->rank)) {
      outputs_.push_back(lent.output + output_at);
    }
    if (!local->counts || (copies && local->rank != block.source)) continue;
    if (sums != nullptr && !leader->alone) {  // GPUs have made them, of what was multiplied
      if (inputs_.empty()) inputs_.push_back(sums + input_at);
      continue;
    }
    inputs_.push_back((sums != nullptr ? sums : lent.input) + input_at);
    factors_.push_back(local->prescale);
    folded_.push_back(local->rank);
  }
  const bool packs = op.plan.wire != WireType::kNative;
  const std::byte* const arrived = order.onto_arrived ? memory_at(order.at) : nullptr;
  if (order.onto_arrived && !packs) inputs_.push_back(arrived);
  GRADRING_CHECK(!copies || folded_.size() == 1,
                 "the rank that gives a slice is on the node that starts it");
  const ReduceOp reduce = copies ? ReduceOp::kNone : op.signature->op;
  Pass pass;
  pass.dtype = op.signature->dtype;
  pass.op = reduce;
  pass.divisor = order.divisor;
  pass.inputs = inputs_;
  pass.to = stays ? memory_at(order.at) : nullptr;
  pass.outputs = outputs_;
  pass.bytes = length;
  pass.scale = {factors_, order.factor};
  if (packs) {
    pass.wire = op.plan.wire;
    pass.arrived = arrived;
    const bool feeds_back = stays && pass.wire == WireType::kInt8;
    float* const lost = feeds_back ? feedback_.of(op) : nullptr;
    const uint64_t element = input_at / sizeof(float);
    if (lost != nullptr) pass.residue = lost + element;
  }
  const auto spoilt = [&](uint64_t first, uint64_t bytes, const transport::FoldFindings& found) {
    if (!order.again) look(op, input_at + first, first, bytes, found);
  };
  shared_->passes.run(pass, std::ref(spoilt));  // copied it would be allocated
  if (stays && order.at.kind != core::Staging::Kind::kUnit) {
    made(order.at, op.plan.packed_length_of(order.slice));
  }
  if (order.deliver) flight_->slice_delivered(op.key, order.slice, length);
}

// Before the result is written over the inputs. `offset`: in the trainers' buffers, of what begins
// at `first` of the pass.
void JobExecutor::look(const core::Op& op, uint64_t offset, uint64_t first, uint64_t bytes,
                       const transport::FoldFindings& found) {
  std::vector<const void*> locals;
  std::vector<uint32_t> ranks;
  for (size_t i = 0; i < folded_.size(); ++i) {
    if (engine_.joined(folded_[i])) continue;  // its infinities are those of minima and maxima
    locals.push_back(static_cast<const std::byte*>(inputs_[i]) + first);
    ranks.push_back(folded_[i]);
  }
  if (nonfinite_.look(op, offset, bytes, locals, ranks, found, monotonic_now())) {
    shared_->events->post(NonfiniteFound{id(), *nonfinite_.first()});
  }
}

// Of what GPUs have summed, who have looked at the inputs themselves.
void JobExecutor::look(const GpuWork& work, const transport::Gpus::Nonfinite& found) {
  const core::Op* const op = engine_.find(work.key);
  if (op == nullptr) return;
  const GpuOps::Summed summed = gpu_ops_.summed_by(work, *op);
  if (nonfinite_.look(*op, summed.offset, summed.ranks, found, monotonic_now())) {
    shared_->events->post(NonfiniteFound{id(), *nonfinite_.first()});
  }
}

void JobExecutor::sum(const core::SumOrder& order) {
  const core::Op& op = *order.op;
  const uint64_t output_at = op.plan.output_at(order.slice);
  const uint32_t length = op.plan.length_of(order.slice);
  before_long_work(length);
  inputs_.clear();
  folded_.clear();
  outputs_.clear();
  for (const core::Staging part : order.parts) inputs_.push_back(memory_at(part));
  for (const auto& local : op.locals) {
    if (local && !order.partial) outputs_.push_back(lent_to(*local).output + output_at);
  }
  // What goes along the ring is rounded to its type at each member.
  while (is_half(op.signature->dtype) && inputs_.size() > 2) {
    rounded_.resize(length);
    const size_t count = length / size_of(op.signature->dtype);
    const transport::FoldFindings found =
        transport::fold(op.signature->dtype, op.signature->op, std::span(inputs_).first(2),
                        rounded_.data(), count, 0);
    // The pass below takes it for a value that came so.
    if (found.overflows != 0) look(op, op.plan.input_at(order.slice), 0, length, found);
    inputs_.erase(inputs_.begin());
    inputs_[0] = rounded_.data();
  }
  Pass pass;
  pass.dtype = op.signature->dtype;
  pass.op = op.signature->op;
  pass.divisor = order.divisor;
  pass.inputs = inputs_;
  pass.to = order.at ? memory_at(*order.at) : nullptr;
  pass.outputs = outputs_;
  pass.bytes = length;
  pass.scale.result = order.factor;
  const auto spoilt = [&](uint64_t first, uint64_t bytes, const transport::FoldFindings& found) {
    look(op, op.plan.input_at(order.slice) + first, first, bytes, found);
  };
  shared_->passes.run(pass, std::ref(spoilt));
  if (!order.partial) flight_->slice_delivered(op.key, order.slice, length);
}

void JobExecutor::deliver(const core::Op& op, uint32_t slice, core::Staging from) {
  if (rides(op)) {
    gpu_ring_->deliver(op, slice, from);
    return flight_->slice_delivered(op.key, slice, op.plan.length_of(slice));
  }
  const core::Block block = op.plan.block_of(slice);
  const uint64_t at = op.plan.output_at(slice);
  before_long_work(op.plan.length_of(slice));
  outputs_.clear();
  const GpuOps::Leader* const leader = gpu_ops_.leader_of(op.key);
  for (const auto& local : op.locals) {
    if (!local || !block.goes_to(local->rank)) continue;
    if (leader != nullptr && leader->takes_for(local->rank)) continue;
    outputs_.push_back(lent_to(*local).output + at);
  }
  const void* const arrived = memory_at(from);
  Pass copy;
  copy.dtype = op.signature->dtype;
  copy.op = ReduceOp::kNone;
  copy.inputs = {&arrived, 1};
  copy.outputs = outputs_;
  copy.bytes = op.plan.length_of(slice);
  copy.wire = op.plan.wire;
  if (!outputs_.empty()) shared_->passes.run(copy, {});
  // Now and not when it goes on: for that it may have to wait until after the op is complete here.
  if (from.kind == core::Staging::Kind::kSlot) {
    staging_.slots().holds(from.index, {op.key, slice, op.slices[slice].value.epoch});
  }
  if (log_) log_->landed();
  flight_->slice_delivered(op.key, slice, op.plan.length_of(slice));
}

const JobExecutor::Lent* JobExecutor::first_lent_to(const core::Op& op) const {
  for (const auto& local : op.locals) {
    if (local) return &lent_to(*local);
  }
  return nullptr;
}

// A value that still lies in a buffer of the slots need not be copied, unless it travels as another
// type than it is kept as.
std::optional<uint32_t> JobExecutor::keep(const core::Op& op, uint32_t slice) {
  if (rides(op)) return gpu_ring_->keep(op, slice);
  if (op.plan.wire == WireType::kNative) {
    const auto buffer = staging_.slots().pin({op.key, slice, op.slices[slice].value.epoch});
    if (buffer) return *buffer | kInSlotBuffer;
  }
  const Lent* lent = first_lent_to(op);
  if (lent == nullptr) return std::nullopt;
  return kept_->keep({lent->output + op.plan.output_at(slice), op.plan.length_of(slice)});
}

void JobExecutor::drop(uint32_t kept) {
  if (GpuRing::has_kept(kept)) return gpu_ring_->drop(kept);
  if ((kept & kInSlotBuffer) == 0) return kept_->drop(kept);
  staging_.slots().unpin(kept & ~kInSlotBuffer);
}

const std::byte* JobExecutor::kept_at(uint32_t kept) const {
  if ((kept & kInSlotBuffer) == 0) return kept_->at(kept).data();
  return staging_.buffer(kept & ~kInSlotBuffer);
}

// Whether keep() may still be asked for it: not of what all members have, and hardly of what all
// will have long before the op is complete.
bool JobExecutor::may_be_kept(const SlotBuffers::Value& value) const {
  const core::Op* const op = engine_.find(value.key);
  if (op == nullptr || !op->open() || value.slice >= op->slices.size()) return false;
  return op->slices[value.slice].state == core::SliceState::kHeld &&
         op->plan.slices - op->slices_held <= engine_.slots();
}

void JobExecutor::fetch(const core::Op& op, uint32_t slice, core::Staging to) {
  const uint32_t length = op.plan.length_of(slice);
  const std::optional<uint32_t> kept = op.slices[slice].kept;
  if (kept ? GpuRing::has_kept(*kept) : rides(op)) return gpu_ring_->fetch(op, slice, to);
  put_on_host(to);
  const std::byte* from =
      kept ? kept_at(*kept) : first_lent_to(op)->output + op.plan.output_at(slice);
  if (op.plan.wire == WireType::kNative) {
    std::memcpy(memory_at(to), from, length);
  } else {
    // It was packed before, and becomes the same bytes again.
    transport::pack(op.plan.wire, reinterpret_cast<const float*>(from), length / sizeof(float),
                    memory_at(to));
  }
  made(to, op.plan.packed_length_of(slice));
}

std::optional<core::ResultDigest> JobExecutor::digest(const core::Op& op) {
  std::optional<core::ResultDigest> digest;
  if (gpu_ops_.stays_there(op.key)) return std::nullopt;
  const GpuOps::Leader* const leader = gpu_ops_.leader_of(op.key);
  for (const auto& local : op.locals) {
    if (!local || (leader != nullptr && leader->takes_for(local->rank))) continue;
    const uint64_t bytes = extent_of(*op.signature, local->rank, local->position).output;
    const uint32_t crc = transport::crc32c({lent_to(*local).output, bytes});
    if (!digest) digest = {crc, local->rank, std::nullopt};
    if (digest->crc32c != crc) digest->odd_rank = local->rank;
  }
  return digest;
}

}  // namespace gradring::daemon
