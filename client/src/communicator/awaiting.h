#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "proto/types.h"
#include "proto/wire.h"

namespace gradring::client {

// Whom an op waits for, as the daemon of this node knows it.
struct Awaiting {
  enum class What : uint8_t { kNothingKnown, kRanks, kToJoin, kData };
  struct Rank {
    uint32_t rank = 0;
    std::string node;
    int64_t pid = 0;    // 0: unknown
    std::string state;  // worth a word: "stopped"
  };
  // One of whose ranks at least has not submitted it: which one, that node's daemon knows.
  struct Node {
    std::string node;
    std::vector<uint32_t> ranks;
    bool speaks_for_others = false;  // a large job: it may be a rank of a node behind that one
  };

  What what = What::kNothingKnown;
  std::string other;  // not the op itself, of which nothing is known, but this one
  std::vector<Rank> ranks;
  std::vector<Node> nodes;
  uint32_t slices_final = 0;  // of kData
  uint32_t slices = 0;

  // Those who may be missing are no more than these.
  bool may_miss(uint32_t rank) const;
  void renumber(const std::function<uint32_t(uint32_t)>& name_of);
};

// Of one op.
struct Progress {
  std::string op;    // "allreduce sum of 4 float32 (op 3)"
  std::string what;  // a half sentence on that
  Awaiting awaiting;
  std::optional<uint32_t> first;  // the lowest rank that is not missing, as far as is known
};

Awaiting awaiting_from(const wire::JobReport& report, const OpKey& key);

// "waits for rank 3 (node b, pid 4711, stopped)"; of kNothingKnown empty.
std::string describe(const Awaiting& awaiting);

}  // namespace gradring::client
