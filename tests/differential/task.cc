#include "tests/differential/task.h"

#include <algorithm>

#include "proto/hash.h"

namespace gradring::differential {
namespace {

gradring_wire number_of(WireType wire, bool says_it) {
  if (wire == WireType::kNative) return says_it ? GRADRING_WIRE_NATIVE : GRADRING_WIRE_DEFAULT;
  return static_cast<gradring_wire>(wire);
}

}  // namespace

Task::Task(const Program& program, const Op& op, uint32_t rank, Arenas& arenas)
    : program_(program),
      op_(op),
      rank_(rank),
      said_(said_by(op, rank)),
      manner_(manner_of(program.seed, op, rank)),
      extents_(extents_of(said_, rank)) {
  lay_out(arenas);
  describe();
}

void Task::lay_out(Arenas& arenas) {
  const uint64_t element = size_of(said_.dtype);
  const uint64_t shift = manner_.shift * element;
  Arena& of_input =
      arenas.of({manner_.input_registered, manner_.input_on_gpu, manner_.input_pooled});
  Arena& of_output =
      arenas.of({manner_.output_registered, manner_.output_on_gpu, manner_.output_pooled});
  const uint64_t input = extents_.input * element, output = extents_.output * element;
  uint64_t input_at = 0;
  if (manner_.in_place && input != 0 && output != 0) {
    buffers_.emplace_back(of_input, std::max(input, output), shift);
    const bool gathers =
        said_.collective == GRADRING_ALLGATHER || said_.collective == GRADRING_GATHER;
    (gathers ? input_at : output_at_) = own_block(said_, rank_) * element;
  } else {
    buffers_.emplace_back(of_input, input, shift);
    buffers_.emplace_back(of_output, output, shift);
  }
  Buffer& from = buffers_.front();
  if (input != 0) from.fill(input_at, input, cycle_of(program_.seed, said_, rank_, extents_.input));
  described_.input = from.named(input_at);
  described_.output = buffers_.back().named(output_at_);
  described_.stream =
      from.arena().on_gpu() ? from.arena().stream() : buffers_.back().arena().stream();
}

// What fails leaves there what means nothing.
const Arena* Task::waits_by() const {
  const Arena& to = buffers_.back().arena();
  const bool may = extents_.output != 0 && op_.oddity == Oddity::kNone && manner_.waits_by_stream;
  return may && to.on_gpu() ? &to : nullptr;
}

void Task::describe() {
  described_.struct_size = sizeof described_;
  described_.collective = said_.collective;
  if (is_far() && rank_ != said_.root) described_.collective = GRADRING_RECV;
  described_.dtype = static_cast<gradring_dtype>(said_.dtype);
  described_.op = static_cast<gradring_reduce_op>(said_.op);
  described_.root = is_far() ? (rank_ == said_.root ? said_.to : said_.root) : said_.root;
  described_.count = said_.count;
  described_.name = said_.name.empty() ? nullptr : op_.name.c_str();
  described_.priority = manner_.priority;
  described_.ranks = said_.ranks;
  if (manner_.says_ranks && said_.ranks == 0) described_.ranks = said_.size;
  if (is_reduction(said_.collective)) {
    if (said_.dtype == Dtype::kFloat32) {
      described_.wire = number_of(said_.wire, manner_.says_wire);
    }
    if (manner_.prescale != 1) described_.prescale = manner_.prescale;
    if (said_.postscale != 1) described_.postscale = said_.postscale;
  }
  counts_ = said_.counts;
  if (counts_.empty() && manner_.says_counts && said_.ranks == 0 && in_blocks(said_.collective)) {
    const uint64_t n = said_.size;
    counts_.assign(said_.collective == GRADRING_ALLTOALL ? n * n : n, said_.count);
  }
  if (counts_.empty()) return;
  described_.counts = counts_.data();
  described_.counts_length = counts_.size();
}

std::string Task::fault(const Reference& reference) {
  for (Buffer& buffer : buffers_) buffer.look();
  Buffer& to = buffers_.back();
  const uint64_t element = size_of(op_.dtype);
  for (const Piece& piece : reference.pieces_for(rank_)) {
    std::string wrong = reference.fault_in(piece, rank_, to.data() + output_at_);
    if (!wrong.empty()) return wrong;
    to.accept(output_at_ + piece.to * element, piece.count * element);
  }
  return fault_elsewhere();
}

std::string Task::fault_after_failure() {
  for (Buffer& buffer : buffers_) buffer.look();
  return fault_elsewhere();
}

std::string Task::fault_elsewhere() const {
  for (const Buffer& buffer : buffers_) {
    std::string wrong = buffer.fault();
    if (!wrong.empty()) return wrong;
  }
  return "";
}

uint64_t Task::digest() const {
  const uint64_t bytes = extents_.output * size_of(op_.dtype);
  return fnv1a({buffers_.back().data() + output_at_, bytes});
}

}  // namespace gradring::differential
