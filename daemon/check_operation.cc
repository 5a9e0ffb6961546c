#include "daemon/check_operation.h"

#include <fmt/format.h>

#include "transport/reducer.h"

namespace gradring::daemon {
namespace {

// Fits a parameter's full path in any model; it is kept per open op.
constexpr size_t kNameLength = 512;

using Refusal = tl::unexpected<std::string>;

// Empty when the signature makes sense; also puts unused fields to what proto/types.h says.
std::string fault_of_signature(Signature& s) {
  switch (s.collective) {
    case Collective::kAllreduce:
      if (s.op == ReduceOp::kNone) return "an allreduce needs a reduce op";
      if (s.root != 0) return "an allreduce has no root";
      return transport::can_fold(s.dtype, s.op).message();
    case Collective::kBroadcast:
      if (s.op != ReduceOp::kNone) return "a broadcast has no reduce op";
      // Which ranks may be its root is for the engine to say: one that died may have left its
      // input.
      return "";
    case Collective::kBarrier:
    case Collective::kJoinPoint:
      if (s.count != 0 || s.op != ReduceOp::kNone || s.root != 0) {
        return "a barrier has no elements, no reduce op and no root";
      }
      s.dtype = Dtype::kUint8;
      return "";
  }
  return "unknown collective";
}

// The first byte of a buffer that lies wholly in one of the session's segments, aligned to its
// elements.
tl::expected<std::byte*, std::string> locate(const char* which, const wire::Buffer& buffer,
                                             const Signature& signature,
                                             const TrainerMemory& memory) {
  const auto segment = memory.find(buffer.segment());
  if (!segment) {
    return Refusal(
        fmt::format("{}: segment {} does not belong to this session", which, buffer.segment()));
  }
  const uint64_t there = segment->size();
  const uint64_t element = size_of(signature.dtype);
  if (buffer.offset() > there || signature.count > (there - buffer.offset()) / element) {
    return Refusal(fmt::format(
        "{}: {} elements of {} at offset {} reach beyond segment {} of {} bytes", which,
        signature.count, name_of(signature.dtype), buffer.offset(), buffer.segment(), there));
  }
  if (buffer.offset() % element != 0) {
    return Refusal(fmt::format("{}: offset {} is not a multiple of the {} bytes of {}", which,
                               buffer.offset(), element, name_of(signature.dtype)));
  }
  return segment->data() + buffer.offset();
}

}  // namespace

tl::expected<CheckedOperation, std::string> check_operation(const wire::Operation& operation,
                                                            uint32_t rank,
                                                            const TrainerMemory& memory) {
  CheckedOperation checked;
  core::Submission& submission = checked.submission;
  Signature& signature = submission.signature;
  if (!from_wire(operation.signature(), &signature)) {
    return Refusal("unknown collective, element type or reduce op, or a count beyond any machine");
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
  if (signature.count == 0) return checked;  // nothing to read or write

  auto output = locate("output", operation.output(), signature, memory);
  if (!output) return Refusal(output.error());
  checked.output = *output;
  submission.output = {operation.output().segment(), operation.output().offset()};

  // A broadcast reads the root's input only, and the others need not have one.
  if (signature.collective == Collective::kBroadcast && signature.root != rank) return checked;
  auto input = locate("input", operation.input(), signature, memory);
  if (!input) return Refusal(input.error());
  const uint64_t bytes = signature.bytes();
  if (*input != *output && *input < *output + bytes && *output < *input + bytes) {
    return Refusal("input and output overlap; they must be the same or apart");
  }
  checked.input = *input;
  submission.input = {operation.input().segment(), operation.input().offset()};
  return checked;
}

}  // namespace gradring::daemon
