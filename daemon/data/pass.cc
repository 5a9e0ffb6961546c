#include "daemon/data/pass.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace gradring::daemon {
namespace {

// Small enough that a block of some inputs, the sum and the copies stay in the first cache (32 KiB
// and more) or at least in the second. A multiple of every element's size.
constexpr uint64_t kBlock = 16 << 10;
// What one thread takes at a time: some microseconds.
constexpr uint64_t kPart = 4 * kBlock;
// Below this, summed over everything that is read and written, handing out costs more than it
// gives; and to wake somebody costs as much as to sum some hundred KiB.
constexpr uint64_t kWorthSharing = 256 << 10;
constexpr uint64_t kWorthWaking = 1 << 20;

// The inputs at an offset. Nodes have few ranks, and no memory is taken for them.
class At {
 public:
  At(std::span<const void* const> inputs, uint64_t offset) {
    if (inputs.size() > few_.size()) many_.resize(inputs.size());
    const void** to = inputs.size() > few_.size() ? many_.data() : few_.data();
    for (size_t i = 0; i < inputs.size(); ++i) {
      to[i] = static_cast<const std::byte*>(inputs[i]) + offset;
    }
    at_ = {to, inputs.size()};
  }
  std::span<const void* const> get() const { return at_; }

 private:
  std::array<const void*, 65> few_;
  std::vector<const void*> many_;
  std::span<const void* const> at_;
};

// A thread's own place for a block that goes to outputs alone.
std::byte* scratch() {
  alignas(64) thread_local std::array<std::byte, kBlock> block;
  return block.data();
}

transport::FoldFindings fold_block(const Pass& pass, uint64_t first, uint64_t length,
                                   std::byte* to) {
  return transport::fold(pass.dtype, pass.op, At(pass.inputs, first).get(), to,
                         length / size_of(pass.dtype), pass.divisor);
}

void write_out(const Pass& pass, uint64_t first, uint64_t length, const void* from) {
  for (std::byte* output : pass.outputs) {
    if (output + first != from) std::memcpy(output + first, from, length);
  }
}

void copy_block(const Pass& pass, uint64_t first, uint64_t length) {
  const std::byte* from = static_cast<const std::byte*>(pass.inputs[0]) + first;
  if (pass.to != nullptr) std::memcpy(pass.to + first, from, length);
  write_out(pass, first, length, from);
}

std::byte* place_of(const Pass& pass, uint64_t first) {
  return pass.to != nullptr ? pass.to + first : scratch();
}

}  // namespace

void PassRunner::run(const Pass& pass, const Spoilt& spoilt) {
  const auto parts = static_cast<uint32_t>((pass.bytes + kPart - 1) / kPart);
  pass_ = &pass;
  if (stops_.size() < parts) stops_.resize(parts);
  const uint64_t moved = pass.bytes * (pass.inputs.size() + pass.outputs.size() + 1);
  if (moved >= kWorthSharing) {
    team_.run(parts, &run_part, this, moved >= kWorthWaking);
  } else {
    for (uint32_t part = 0; part < parts; ++part) run_part(this, part);
  }
  for (uint32_t part = 0; part < parts; ++part) finish_part(part, spoilt);
}

// Until the first block that is spoilt.
void PassRunner::run_part(void* runner, uint32_t part) {
  auto* const self = static_cast<PassRunner*>(runner);
  const Pass& pass = *self->pass_;
  const uint64_t end = std::min((part + uint64_t{1}) * kPart, pass.bytes);
  Stop& stop = self->stops_[part];
  stop.findings = {};
  for (stop.at = part * kPart; stop.at < end; stop.at += kBlock) {
    const uint64_t length = std::min(kBlock, end - stop.at);
    if (pass.op == ReduceOp::kNone) {
      copy_block(pass, stop.at, length);
      continue;
    }
    std::byte* const to = place_of(pass, stop.at);
    stop.findings = fold_block(pass, stop.at, length, to);
    if (stop.findings.nonfinite != 0) return;
    write_out(pass, stop.at, length, to);
  }
}

// The rest of it, one block after the other, each looked at before it is written over its inputs.
void PassRunner::finish_part(uint32_t part, const Spoilt& spoilt) {
  const Pass& pass = *pass_;
  const uint64_t end = std::min((part + uint64_t{1}) * kPart, pass.bytes);
  const Stop& stop = stops_[part];
  bool folded = pass.to != nullptr;  // what lies there is; a scratch block is overwritten by now
  for (uint64_t first = stop.at; first < end; first += kBlock) {
    const uint64_t length = std::min(kBlock, end - first);
    std::byte* const to = place_of(pass, first);
    const transport::FoldFindings findings =
        folded ? stop.findings : fold_block(pass, first, length, to);
    folded = false;
    if (findings.nonfinite != 0) spoilt(first, length, findings);
    write_out(pass, first, length, to);
  }
}

}  // namespace gradring::daemon
