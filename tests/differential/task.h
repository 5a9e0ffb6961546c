#pragma once

#include <gradring/gradring.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tests/differential/buffers.h"
#include "tests/differential/program.h"
#include "tests/differential/reference.h"

namespace gradring::differential {

// One op on one of its ranks: its buffers, what it is submitted as, and what must come of it.
class Task {
 public:
  // `rank`: of the op's group.
  Task(const Program& program, const Op& op, uint32_t rank, Arenas& arenas);
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;

  const Op& op() const { return op_; }
  const Manner& manner() const { return manner_; }
  bool is_far() const { return op_.collective == GRADRING_SEND; }
  // Points into this object.
  const gradring_op& described() const { return described_; }
  gradring_request request = 0;

  // Whose stream may wait for it; null: it waits itself.
  const Arena* waits_by() const;

  // What is wrong with its memory after a good end, or after a failure; empty if nothing is.
  std::string fault(const Reference& reference);
  std::string fault_after_failure();
  // Of the bits that are the same on all ranks.
  uint64_t digest() const;

 private:
  void lay_out(Arenas& arenas);
  std::string fault_elsewhere() const;
  void describe();

  const Program& program_;
  const Op& op_;
  const uint32_t rank_;
  const Op said_;
  const Manner manner_;
  const Extents extents_;
  std::vector<Buffer> buffers_;  // two, or one that holds both
  uint64_t output_at_ = 0;       // in the last of them, in bytes
  std::vector<uint64_t> counts_;
  gradring_op described_{};
};

}  // namespace gradring::differential
