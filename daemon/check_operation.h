#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <tl/expected.hpp>

#include "daemon/core/op.h"
#include "proto/stream_word.h"
#include "proto/wire.h"
#include "transport/gpus.h"

namespace gradring::daemon {

// The segments that a trainer may name.
class TrainerMemory {
 public:
  // Nothing: it has no such segment.
  virtual std::optional<std::span<std::byte>> find(uint64_t segment) const = 0;
  // The memory of a GPU for which that segment stands; null: none that was shared.
  virtual const transport::OpenGpuMemory* gpu(uint64_t /*segment*/) const { return nullptr; }

 protected:
  ~TrainerMemory() = default;
};

// An operation that may be handed to a job: every number in it has been checked against the
// trainer's own segments. Segments are named only where memory of them is used.
struct CheckedOperation {
  core::Submission submission;
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  StreamWord reached;  // for each part of the input
  StreamWord ended;    // of the output
  uint64_t part_bytes = 0;
  // Of what lies on a GPU for the daemon to sum, and to bring results to; else none.
  transport::GpuRange gpu_input;
  transport::GpuRange gpu_output;
};

// The refusal is a sentence for the trainer, which is of this rank. Nothing of `operation` is
// trusted: offsets may overflow, enumerations may be unknown, segments may be another's.
tl::expected<CheckedOperation, std::string> check_operation(const wire::Operation& operation,
                                                            uint32_t rank,
                                                            const TrainerMemory& memory);

}  // namespace gradring::daemon
