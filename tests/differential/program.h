#pragma once

#include <gradring/gradring.h>

#include <cstdint>
#include <string>
#include <vector>

#include "proto/types.h"

// Random programs of collectives. A program follows from its seed and the size of the world alone,
// so that every rank knows all of it.
namespace gradring::differential {

// What a reduction of floats is given: whole numbers, fractions of which order of additions counts,
// or bits with all that hurts. Everything else is given random bits.
enum class Values : uint8_t { kWhole, kFractions, kBits };

// In what the odd rank's op is not that of the others.
enum class Oddity : uint8_t {
  kNone,
  kCount,
  kDtype,
  kReduceOp,
  kRoot,
  kPostscale,
  kWire,
  kCollective,
  kRanks
};
inline constexpr uint8_t kOddityLast = 8;

struct Op {
  uint32_t number = 0;
  uint32_t group = 0;  // of the program
  uint32_t phase = 0;
  uint32_t size = 0;  // of the group
  // GRADRING_SEND is a send and its receive.
  gradring_collective collective = GRADRING_BARRIER;
  Dtype dtype = Dtype::kUint8;
  ReduceOp op = ReduceOp::kNone;
  WireType wire = WireType::kNative;
  uint32_t root = 0;  // who gives, of a send
  uint32_t to = 0;    // who gets, of a send
  uint64_t count = 0;
  std::vector<uint64_t> counts;  // of blocks that differ, instead
  bool scaled = false;
  double postscale = 1;
  std::string name;
  Values values = Values::kBits;
  bool late = false;  // it is waited for at the end of the program, not of its phase
  uint32_t ranks = 0;
  Oddity oddity = Oddity::kNone;
  uint32_t odd_rank = 0;

  // Elements that one gives to another, of what is in blocks.
  uint64_t block(uint32_t giver, uint32_t taker) const;
  // Of all that come before: of `giver`'s blocks, or of `taker`'s.
  uint64_t given_before(uint32_t giver, uint32_t taker) const;
  uint64_t taken_before(uint32_t giver, uint32_t taker) const;
};

// Of the group, who has a part in it.
bool takes_part(const Op& op, uint32_t rank);
bool is_reduction(gradring_collective collective);
bool in_blocks(gradring_collective collective);
bool has_root(gradring_collective collective);

// Elements of a rank's buffers.
struct Extents {
  uint64_t input = 0;
  uint64_t output = 0;
};
Extents extents_of(const Op& op, uint32_t rank);
// Where the smaller buffer lies in the larger one if the op is in place; both are equal else.
uint64_t own_block(const Op& op, uint32_t rank);

// The op as one rank submits it: the odd one says something else.
Op said_by(const Op& op, uint32_t rank);

// How one rank goes about an op; it is its own affair, but for the factor.
struct Manner {
  bool in_place = false;
  bool input_registered = false;
  bool output_registered = false;
  uint32_t shift = 0;  // of the buffers, in elements
  int32_t priority = 0;
  bool says_counts = false;  // even of equal blocks
  bool says_ranks = false;
  bool says_wire = false;  // even the one that is the default
  bool polls = false;
  double prescale = 1;
  // Where there is one.
  bool input_on_gpu = false;
  bool output_on_gpu = false;
  bool input_pooled = false;  // of gradring_gpu_alloc
  bool output_pooled = false;
  bool waits_by_stream = false;  // if the output is on it
};
Manner manner_of(uint64_t seed, const Op& op, uint32_t rank);

struct Group {
  std::vector<uint32_t> ranks;  // of the world, in the order of the group
  uint32_t phase = 0;           // at whose beginning it is made
};

struct Program {
  uint64_t seed = 0;
  uint32_t phases = 1;
  bool in_world = false;       // group 0 is the world itself
  bool ends_by_join = false;   // by a join point instead of a barrier
  bool in_order = false;       // all ranks submit in the order of numbers
  bool tries_refused = false;  // submissions that are refused, in front of others
  std::vector<Group> groups;   // all ranks of the others are in the first one, too
  std::vector<Op> ops;
};

struct Choice {
  bool formed = false;  // nothing has to come about while it runs, neither groups nor pairs
  bool large = false;   // many ops are of megabytes
};

// What the buffers of all large ops of a program take on one rank, at most.
constexpr uint64_t program_bytes_max(const Choice& choice) {
  return uint64_t{choice.large ? 48u : 6u} << 20;
}

Program make_program(uint64_t seed, uint32_t world_size, const Choice& choice = {});

// For people: "op 3, allreduce sum of 5 float32, named layer 2, among ranks 4 0 1".
std::string describe(const Program& program, const Op& op);

}  // namespace gradring::differential
