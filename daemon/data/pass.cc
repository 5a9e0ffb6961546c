#include "daemon/data/pass.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "transport/wire_format.h"

namespace gradring::daemon {
namespace {

// Small enough that a block of some inputs, the sum and the copies stay in the first cache, of 32
// KiB and more: with 16 KiB two ranks need up to a third more time, with 4 ranks nothing changes. A
// multiple of every element's size.
constexpr uint64_t kBlock = 4 << 10;
// What one thread takes at a time: some microseconds.
constexpr uint64_t kPart = 16 * kBlock;
// Below this, summed over everything that is read and written, handing out costs more than it
// gives; and to wake somebody costs as much as to sum some hundred KiB.
constexpr uint64_t kWorthSharing = 256 << 10;
constexpr uint64_t kWorthWaking = 1 << 20;

// The inputs at an offset, and perhaps one more. Nodes have few ranks, and no memory is taken for
// them.
class At {
 public:
  At(std::span<const void* const> inputs, uint64_t offset, const void* more = nullptr) {
    if (inputs.size() >= few_.size()) many_.resize(inputs.size() + 1);
    const void** to = inputs.size() >= few_.size() ? many_.data() : few_.data();
    size_t count = 0;
    for (const void* input : inputs) to[count++] = static_cast<const std::byte*>(input) + offset;
    if (more != nullptr) to[count++] = more;
    at_ = {to, count};
  }
  std::span<const void* const> get() const { return at_; }

 private:
  std::array<const void*, 65> few_;
  std::vector<const void*> many_;
  std::span<const void* const> at_;
};

// A thread's own places for a block.
struct Scratch {
  alignas(64) std::array<std::byte, kBlock> sum;  // that goes to outputs alone, or is to be packed
  alignas(64) std::array<std::byte, kBlock> other;  // unpacked; or packed, and to be sent nowhere
  float* sums() { return reinterpret_cast<float*>(sum.data()); }
  float* others() { return reinterpret_cast<float*>(other.data()); }
};

Scratch& scratch() {
  thread_local Scratch mine;
  return mine;
}

bool packs(const Pass& pass) { return pass.wire != WireType::kNative; }

uint64_t packed_offset(const Pass& pass, uint64_t first) {
  return packed_bytes(pass.wire, first / sizeof(float));
}

struct Block {
  transport::FoldFindings findings;
  const std::byte* result = nullptr;  // as it goes to outputs
};

// Both are of the same elements.
transport::FoldFindings both(const transport::FoldFindings& sum,
                             const transport::FoldFindings& rounding) {
  transport::FoldFindings all = rounding;  // what is not finite stays so
  all.overflows += sum.overflows;
  const bool first = sum.overflows != 0 &&
                     (rounding.overflows == 0 || sum.first_overflow < rounding.first_overflow);
  if (first) all.first_overflow = sum.first_overflow;
  return all;
}

Block fold_packed(const Pass& pass, uint64_t first, uint64_t length) {
  Scratch& mine = scratch();
  const size_t count = length / sizeof(float);
  const uint64_t at = packed_offset(pass, first);
  const bool arrived = pass.arrived != nullptr;
  if (arrived) transport::unpack(pass.wire, pass.arrived + at, count, mine.others());
  const At inputs(pass.inputs, first, arrived ? mine.other.data() : nullptr);
  const transport::FoldFindings sum = transport::fold(pass.dtype, pass.op, inputs.get(),
                                                      mine.sums(), count, pass.divisor, pass.scale);

  const uint64_t element = first / sizeof(float);
  float* const residue = pass.residue != nullptr ? pass.residue + element : nullptr;
  for (size_t i = 0; residue != nullptr && i < count; ++i) mine.sums()[i] += residue[i];
  std::byte* const to = pass.to != nullptr ? pass.to + at : mine.other.data();
  const transport::FoldFindings rounding = transport::pack(pass.wire, mine.sums(), count, to);
  if (residue == nullptr) {
    if (!pass.outputs.empty()) transport::unpack(pass.wire, to, count, mine.sums());
    return {both(sum, rounding), mine.sum.data()};
  }
  transport::unpack(pass.wire, to, count, mine.others());
  for (size_t i = 0; i < count; ++i) {
    const float lost = mine.sums()[i] - mine.others()[i];
    residue[i] = std::isfinite(lost) ? lost : 0;
  }
  return {both(sum, rounding), mine.other.data()};
}

Block fold_block(const Pass& pass, uint64_t first, uint64_t length) {
  if (packs(pass)) return fold_packed(pass, first, length);
  std::byte* const to = pass.to != nullptr ? pass.to + first : scratch().sum.data();
  return {transport::fold(pass.dtype, pass.op, At(pass.inputs, first).get(), to,
                          length / size_of(pass.dtype), pass.divisor, pass.scale),
          to};
}

// What was folded before, and lies in `to`.
const std::byte* folded_block(const Pass& pass, uint64_t first, uint64_t length) {
  if (!packs(pass)) return pass.to + first;
  Scratch& mine = scratch();
  transport::unpack(pass.wire, pass.to + packed_offset(pass, first), length / sizeof(float),
                    mine.sums());
  return mine.sum.data();
}

void write_out(const Pass& pass, uint64_t first, uint64_t length, const void* from) {
  for (std::byte* output : pass.outputs) {
    if (output + first != from) std::memcpy(output + first, from, length);
  }
}

// Where the result goes to outputs alone the first of them, which may be an input, serves as the
// place to fold to. Not so what is not finite: for that the inputs are to be looked at first.
// Returns how many bytes there are until there.
bool folds_straight(const Pass& pass) {
  return pass.to == nullptr && !packs(pass) && !pass.outputs.empty();
}

uint64_t fold_straight(const Pass& pass, uint64_t first, uint64_t length) {
  std::byte* const to = pass.outputs[0] + first;
  const size_t size = size_of(pass.dtype);
  const At inputs(pass.inputs, first);
  const uint64_t folded =
      size * transport::fold_while_finite(pass.dtype, pass.op, inputs.get(), to, length / size,
                                          pass.divisor, pass.scale);
  write_out(pass, first, folded, to);
  return folded;
}

void copy_block(const Pass& pass, uint64_t first, uint64_t length) {
  const auto* const input = static_cast<const std::byte*>(pass.inputs[0]);
  if (packs(pass)) {
    std::byte* const unpacked = pass.outputs[0] + first;
    transport::unpack(pass.wire, input + packed_offset(pass, first), length / sizeof(float),
                      reinterpret_cast<float*>(unpacked));
    return write_out(pass, first, length, unpacked);
  }
  const std::byte* const from = input + first;
  if (pass.to != nullptr) std::memcpy(pass.to + first, from, length);
  write_out(pass, first, length, from);
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

// Until the first block that is spoilt, or what of it comes before.
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
    if (folds_straight(pass)) {
      const uint64_t folded = fold_straight(pass, stop.at, length);
      if (folded == length) continue;
      stop.at += folded;
      return;
    }
    const Block block = fold_block(pass, stop.at, length);
    stop.findings = block.findings;
    if (stop.findings.nonfinite != 0) return;
    write_out(pass, stop.at, length, block.result);
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
    const Block block = folded ? Block{stop.findings, folded_block(pass, first, length)}
                               : fold_block(pass, first, length);
    folded = false;
    if (block.findings.nonfinite != 0) spoilt(first, length, block.findings);
    write_out(pass, first, length, block.result);
  }
}

}  // namespace gradring::daemon
