#include "daemon/check_operation.h"

#include <fmt/format.h>

#include "proto/reduction.h"

namespace gradring::daemon {
namespace {

// Fits a parameter's full path in any model; it is kept per open op.
constexpr size_t kNameLength = 512;

using Refusal = tl::unexpected<std::string>;

// Empty when the signature makes sense; also puts unused fields to what proto/types.h says.
std::string fault_of_signature(Signature& s) {
  const std::string_view name = name_of(s.collective);
  if (!moves_data(s.collective)) {
    if (s.count != 0 || s.op != ReduceOp::kNone || s.root != 0) {
      return "a barrier has no elements, no reduce op and no root";
    }
    s.dtype = Dtype::kUint8;
    return "";
  }
  // Which ranks may be its root is for the engine to say: one that died may have left its input.
  if (!has_root(s.collective) && s.root != 0) return fmt::format("{} has no root", name);
  if (!reduces(s.collective)) {
    return s.op == ReduceOp::kNone ? "" : fmt::format("{} has no reduce op", name);
  }
  if (s.op == ReduceOp::kNone) return fmt::format("{} needs a reduce op", name);
  return can_reduce(s.dtype, s.op).message();
}

// The first byte of a buffer that lies wholly in one of the session's segments, aligned to its
// elements.
tl::expected<std::byte*, std::string> locate(const char* which, const wire::Buffer& buffer,
                                             uint64_t bytes, Dtype dtype,
                                             const TrainerMemory& memory) {
  const auto segment = memory.find(buffer.segment());
  if (!segment) {
    return Refusal(
        fmt::format("{}: segment {} does not belong to this session", which, buffer.segment()));
  }
  const uint64_t there = segment->size();
  const uint64_t element = size_of(dtype);
  if (buffer.offset() > there || bytes > there - buffer.offset()) {
    return Refusal(
        fmt::format("{}: {} elements of {} at offset {} reach beyond segment {} of {} bytes", which,
                    bytes / element, name_of(dtype), buffer.offset(), buffer.segment(), there));
  }
  if (buffer.offset() % element != 0) {
    return Refusal(fmt::format("{}: offset {} is not a multiple of the {} bytes of {}", which,
                               buffer.offset(), element, name_of(dtype)));
  }
  return segment->data() + buffer.offset();
}

// Likewise a word in the segment of one of the op's buffers, with which it is lent, for so many
// parts; none if it is not said to be there.
tl::expected<StreamWord, std::string> locate(const char* which, const wire::StreamWord& word,
                                             uint32_t parts, const core::Submission& submission,
                                             const TrainerMemory& memory) {
  if (word.value() == 0) return StreamWord();
  const uint64_t segment = word.segment();
  if (segment == 0 ||
      (segment != submission.input.segment && segment != submission.output.segment)) {
    return Refusal(fmt::format("{}: segment {} has none of the op's buffers", which, segment));
  }
  wire::Buffer place;
  place.set_segment(segment);
  place.set_offset(word.offset());
  auto at = locate(which, place, sizeof(uint32_t), Dtype::kUint32, memory);
  if (!at) return Refusal(at.error());
  return StreamWord{reinterpret_cast<uint32_t*>(*at), word.value(), parts};
}

// Of which GPU's memory a buffer is, that the daemon is to fetch or to write.
tl::expected<transport::GpuRange, std::string> on_gpu(const char* which, const core::BufferRef& at,
                                                      uint64_t bytes, const TrainerMemory& memory) {
  const transport::OpenGpuMemory* const gpu = memory.gpu(at.segment);
  if (gpu == nullptr) {
    return Refusal(fmt::format("{}: segment {} stands for no GPU's memory that was shared", which,
                               at.segment));
  }
  if (at.offset > gpu->bytes() || bytes > gpu->bytes() - at.offset) {
    return Refusal(fmt::format("{}: {} bytes at offset {} reach beyond the {} bytes on the GPU",
                               which, bytes, at.offset, gpu->bytes()));
  }
  return transport::GpuRange{gpu, at.offset};
}

// Empty if GPUs can do that.
std::string fault_on_gpu(const core::Submission& submission, const Extent& extent,
                         const wire::Operation& operation) {
  const Signature& s = submission.signature;
  const bool known = s.collective == Collective::kAllreduce ||
                     s.collective == Collective::kReduceScatter ||
                     s.collective == Collective::kAllgather;
  const bool gathers = s.collective == Collective::kAllgather;
  if (!known || (gathers ? extent.output : extent.input) == 0) {
    return fmt::format("GPUs of the daemon have no part in {}", describe(s));
  }
  if (operation.reached().value() == 0) {
    return "what lies on a GPU needs a word that says when it is there";
  }
  return "";
}

bool overlap(const std::byte* a, uint64_t a_bytes, const std::byte* b, uint64_t b_bytes) {
  return a < b + b_bytes && b < a + a_bytes;
}

}  // namespace

tl::expected<CheckedOperation, std::string> check_operation(const wire::Operation& operation,
                                                            uint32_t rank,
                                                            const TrainerMemory& memory) {
  CheckedOperation checked;
  core::Submission& submission = checked.submission;
  Signature& signature = submission.signature;
  if (!from_wire(operation.signature(), &signature)) {
    return Refusal(
        "unknown collective, element type, reduce op or wire type, a wire type or factor that this "
        "op cannot have, or a count beyond any machine");
  }
  if (std::string fault = fault_of_signature(signature); !fault.empty()) {
    return Refusal(fault);
  }
  if (operation.name().size() > kNameLength) {
    return Refusal(
        fmt::format("a name of {} bytes; {} are allowed", operation.name().size(), kNameLength));
  }
  submission.rank = rank;
  submission.ticket = operation.ticket();
  submission.key = from_wire(operation.key());
  submission.name = operation.name();
  submission.position = operation.position();
  submission.priority = operation.priority();
  submission.prescale = factor_from_wire(operation.prescale());
  if (Status fault = can_scale(signature.collective, signature.dtype, submission.prescale);
      !fault.ok()) {
    return Refusal(fault.message());
  }
  if (needs_all_ranks(signature.collective) && submission.position >= signature.ranks) {
    return Refusal(fmt::format("position {} among {} ranks", submission.position, signature.ranks));
  }

  if (!from_wire(operation.counts(), &signature)) {
    return Refusal(fmt::format("{}, but its {} counts are not those", describe(signature),
                               operation.counts().size()));
  }
  const Extent extent = extent_of(signature, rank, submission.position);
  if (extent.output != 0) {
    auto output = locate("output", operation.output(), extent.output, signature.dtype, memory);
    if (!output) return Refusal(output.error());
    checked.output = *output;
    submission.output = {operation.output().segment(), operation.output().offset()};
  }
  if (extent.input != 0) {
    auto input = locate("input", operation.input(), extent.input, signature.dtype, memory);
    if (!input) return Refusal(input.error());
    checked.input = *input;
    submission.input = {operation.input().segment(), operation.input().offset()};
  }
  const uint64_t part = checked.part_bytes = operation.part_bytes();
  if (part != 0 && part < kPartBytesLeast) {
    return Refusal(
        fmt::format("parts of {} bytes; at least {} are allowed", part, kPartBytesLeast));
  }
  uint32_t parts_in = parts_of(extent.input, part), parts_out = parts_of(extent.output, part);
  if (operation.on_gpu()) {
    if (std::string fault = fault_on_gpu(submission, extent, operation); !fault.empty()) {
      return Refusal(fault);
    }
    const bool stays = operation.stays_on_gpu();
    if (stays && signature.blocks.uneven()) {
      return Refusal("only equal blocks stay on GPUs of the daemon");
    }
    if (stays || signature.collective != Collective::kAllgather) {
      auto input = on_gpu("input", submission.input, extent.input, memory);
      if (!input) return Refusal(input.error());
      checked.gpu_input = *input;
      parts_in = 1;
    }
    if (stays || signature.collective != Collective::kReduceScatter) {
      auto output = on_gpu("output", submission.output, extent.output, memory);
      if (!output) return Refusal(output.error());
      checked.gpu_output = *output;
      parts_out = 1;
    }
  }
  auto reached = locate("word of the stream", operation.reached(), parts_in, submission, memory);
  auto ended = locate("word of the end", operation.ended(), parts_out, submission, memory);
  if (!reached || !ended) return Refusal(!reached ? reached.error() : ended.error());
  checked.reached = *reached;
  checked.ended = *ended;
  if (extent.input == 0 || extent.output == 0 ||
      !overlap(checked.input, extent.input, checked.output, extent.output)) {
    return checked;
  }
  if (in_place(signature, submission.position, checked.input, checked.output)) return checked;
  return Refusal("input and output overlap; they must be " +
                 std::string(in_place_words(signature.collective)));
}

}  // namespace gradring::daemon
