// What the engine wants done with values: real memory, plain arithmetic.

#include <algorithm>
#include <cstring>
#include <utility>

#include "tests/sim/arithmetic.h"
#include "tests/sim/node.h"
#include "tests/sim/trainer.h"
#include "tests/sim/world.h"

namespace gradring::sim {

Value& SimJob::staging(core::Staging at) {
  if (at.kind == core::Staging::Kind::kUnit) {
    if (at.index >= units_.size()) {
      units_.resize(at.index + 1, {std::vector<std::byte>(engine_.unit_bytes()), {}});
    }
    return units_[at.index];
  }
  return (at.kind == core::Staging::Kind::kSlot ? slots_ : starts_).at(at.index);
}

void SimJob::made(Value* value, size_t length) const {
  if (world_->scenario().engine.checksum) value->checksum = checksum(value->bytes.data(), length);
}

OpId SimJob::identity(const core::Op& op) const {
  for (const auto& local : op.locals) {
    if (!local) continue;
    const auto found = lent_.find(key_of(*local));
    if (found == lent_.end()) continue;
    const auto [index, step] = found->second.trainer->what(local->ticket);
    return {engine_.view().incarnation, index, step};
  }
  return {engine_.view().incarnation, UINT32_MAX, 0};
}

void SimJob::fold(const core::FoldOrder& order) {
  const core::Op& op = *order.op;
  const core::Block block = op.plan.block_of(order.slice);
  const uint64_t at = op.plan.input_at(order.slice);
  const size_t length = op.plan.length_of(order.slice);
  std::vector<Input> inputs;
  std::vector<uint32_t> ranks;
  for (const auto& submission : op.locals) {
    if (!submission || !submission->counts) continue;
    if (order.source == core::Fold::kSource && submission->rank != block.source) continue;
    inputs.push_back(
        {lent(*submission).memory->data() + submission->input.offset + at, submission->prescale});
    ranks.push_back(submission->rank);
  }
  if (inputs.empty()) return world_->violation(node_->name() + ": a slice without its source");
  Value& value = staging(order.at);
  if (!order.onto_arrived) value.passes.clear();
  value.passes.push_back(ranks);
  const WireType wire = op.plan.wire;
  const Ending ending{order.divisor, order.factor};
  if (wire != WireType::kNative) {
    const size_t count = length / sizeof(float);
    std::vector<std::byte> sum(length);
    if (order.onto_arrived) unpack(wire, value.bytes.data(), count, sum.data());
    sim::fold(op.signature->dtype, op.signature->op, !order.onto_arrived, inputs, count, ending,
              sum.data());
    pack(wire, sum.data(), count, value.bytes.data());
  } else if (order.source == core::Fold::kSource) {
    std::memcpy(value.bytes.data(), inputs[0].at, length);
  } else {
    sim::fold(op.signature->dtype, op.signature->op, !order.onto_arrived, inputs,
              length / size_of(op.signature->dtype), ending, value.bytes.data());
  }
  made(&value, op.plan.packed_length_of(order.slice));
  if (order.deliver) deliver(op, order.slice, order.at);
}

// In the order in which they are given, as along the ring.
void SimJob::sum(const core::SumOrder& order) {
  const Signature& s = *order.op->signature;
  const size_t count = order.op->plan.length_of(order.slice) / size_of(s.dtype);
  Value value = staging(order.parts.front());
  for (size_t i = 1; i < order.parts.size(); ++i) {
    const Value& part = staging(order.parts[i]);
    add(part.passes, &value.passes);
    const bool last = i + 1 == order.parts.size();
    const Ending ending = last ? Ending{order.divisor, order.factor} : Ending{};
    sim::fold(s.dtype, s.op, false, {{part.bytes.data()}}, count, ending, value.bytes.data());
  }
  if (!order.partial) deliver_value(*order.op, order.slice, value);
  if (order.at) staging(*order.at) = std::move(value);
}

void SimJob::deliver(const core::Op& op, uint32_t slice, core::Staging from) {
  const Value& value = staging(from);
  if (op.plan.wire == WireType::kNative) return deliver_value(op, slice, value);
  Value native{std::vector<std::byte>(op.plan.length_of(slice)), value.passes};
  unpack(op.plan.wire, value.bytes.data(), native.bytes.size() / sizeof(float),
         native.bytes.data());
  deliver_value(op, slice, native);
}

void SimJob::deliver_value(const core::Op& op, uint32_t slice, const Value& value) {
  if (world_->sabotaged(Sabotage::kForgetDelivery)) return;
  const core::Block block = op.plan.block_of(slice);
  const uint64_t at = op.plan.output_at(slice);
  const size_t length = op.plan.length_of(slice);
  const OpId id = identity(op);
  passes_[{id, slice}] = value.passes;
  const auto slot = op.slices[slice];
  core::ValueId value_id{engine_.view().epoch, 0};
  if (slot.route == core::Route::kHand) value_id.epoch = slot.value.epoch;
  value_id.ranks = ranks_in(value.passes);
  // One rank of ours tells whether all are scaled.
  const bool scaled = std::any_of(op.locals.begin(), op.locals.end(),
                                  [](const auto& local) { return local && local->prescale != 1; });
  const auto input = [&](uint32_t rank) -> Input {
    return {world_->input_of(id, *op.signature, rank).data(), scaled ? prescale_of(rank) : 1};
  };
  const SlicePlace place{{id, block.target}, op.plan.input_at(slice), at, length, op.plan.wire};
  world_->oracle().note_final(place, *op.signature, value_id, value, input);
  for (const auto& submission : op.locals) {
    if (!submission || !block.goes_to(submission->rank)) continue;
    std::memcpy(lent(*submission).memory->data() + submission->output.offset + at,
                value.bytes.data(), length);
  }
}

std::optional<uint32_t> SimJob::keep(const core::Op& op, uint32_t slice) {
  if (kept_.size() >= world_->scenario().kept_max) return std::nullopt;
  const uint32_t number = ++next_kept_;
  Value& copy = kept_[number];
  for (const auto& submission : op.locals) {
    if (!submission) continue;
    const std::byte* from =
        lent(*submission).memory->data() + submission->output.offset + op.plan.output_at(slice);
    copy.bytes.assign(from, from + op.plan.length_of(slice));
    break;
  }
  copy.passes = passes_.at({identity(op), slice});
  return number;
}

void SimJob::drop(uint32_t kept) {
  if (kept_.erase(kept) == 0) world_->violation(node_->name() + ": dropped a copy twice");
}

void SimJob::fetch(const core::Op& op, uint32_t slice, core::Staging to) {
  Value& value = staging(to);
  const size_t length = op.plan.length_of(slice);
  const auto fetch_from = [&](const std::byte* from, const Passes& passes) {
    if (op.plan.wire == WireType::kNative) {
      std::memcpy(value.bytes.data(), from, length);
    } else {
      pack(op.plan.wire, from, length / sizeof(float), value.bytes.data());
    }
    value.passes = passes;
    made(&value, op.plan.packed_length_of(slice));
  };
  if (op.slices[slice].kept) {
    const Value& copy = kept_.at(*op.slices[slice].kept);
    return fetch_from(copy.bytes.data(), copy.passes);
  }
  for (const auto& submission : op.locals) {
    if (!submission || lent_.count(key_of(*submission)) == 0) continue;
    return fetch_from(
        lent(*submission).memory->data() + submission->output.offset + op.plan.output_at(slice),
        passes_.at({identity(op), slice}));
  }
  world_->violation(node_->name() + ": gives out a slice that it does not have");
}

std::optional<core::ResultDigest> SimJob::digest(const core::Op& op) {
  std::optional<core::ResultDigest> digest;
  for (const auto& submission : op.locals) {
    if (!submission) continue;
    const std::byte* output = lent(*submission).memory->data() + submission->output.offset;
    uint32_t sum = 0;
    const uint64_t bytes = extent_of(*op.signature, submission->rank, submission->position).output;
    for (uint64_t i = 0; i < bytes; ++i) sum = sum * 31 + static_cast<uint32_t>(output[i]);
    if (!digest) digest = {sum, submission->rank, std::nullopt};
    if (digest->crc32c != sum) digest->odd_rank = submission->rank;
  }
  return digest;
}

}  // namespace gradring::sim
