#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/differential/program.h"
#include "tests/differential/values.h"

namespace gradring::differential {

// Part of an output, and from where in the inputs it comes; in elements.
struct Piece {
  uint64_t to = 0;
  uint64_t from = 0;
  uint64_t count = 0;
  uint32_t giver = 0;  // of what is moved
};

// That a node may sum its ranks' inputs first, and add the sum to what came (docs/collectives.md,
// sums on the node's GPUs).
struct NodeSums {
  bool may_be = false;
  // By rank: the GPU on which each lies, two of them at most. What lies on one may be summed before
  // it is added to the other's, as with NCCL. Empty: it is not.
  std::vector<uint32_t> gpus;
};

// What one op of a program must leave on its ranks, told from docs/collectives.md alone: what goes
// where, and in which order it adds.
class Reference {
 public:
  // `nodes`: where each rank of the group is.
  Reference(const Program& program, const Op& op, std::vector<uint32_t> nodes,
            NodeSums node_sums = {});

  // Of the output of one rank. The rest of it must be as it was.
  std::vector<Piece> pieces_for(uint32_t rank) const;
  // The first element of that piece of the output which is not what it must be, in words; empty if
  // there is none.
  std::string fault_in(const Piece& piece, uint32_t rank, const std::byte* output) const;

 private:
  using Ring = std::vector<std::vector<uint32_t>>;  // the ranks of each node

  Ring ring() const;
  bool is_packed(const Ring& ring) const;
  uint32_t member_behind(const Ring& ring, uint32_t rank) const;
  // What the inputs, by rank, are when they have gone once round the ring from that member on.
  // `ways`: by member, how its own sum is made first.
  enum class Way : uint8_t { kNot, kByRank, kByGpu };
  Bytes sum_from(const Ring& ring, uint32_t start, const std::vector<Way>& ways,
                 const std::vector<Bytes>& inputs) const;
  Bytes sum_of(const std::vector<uint32_t>& ranks, Way way, const std::vector<Bytes>& inputs) const;
  // All that members may do in all combinations; what comes first is that none sums first.
  std::vector<std::vector<Way>> ways_for(size_t members) const;
  // All that it may be: an allreduce may begin anywhere.
  struct Candidates {
    std::vector<Bytes> all;
    size_t first = 1;  // so many of them begin at the first member, or wherever they must
  };
  Candidates candidates(const Piece& piece, uint32_t rank) const;
  double tolerance() const;

  const Program& program_;
  const Op& op_;
  const std::vector<uint32_t> nodes_;
  const NodeSums node_sums_;
};

}  // namespace gradring::differential
