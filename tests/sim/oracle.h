#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "daemon/core/job_engine.h"
#include "daemon/core/messages.h"
#include "daemon/core/view.h"
#include "tests/sim/arithmetic.h"

namespace gradring::sim {

// Whose contributions are in a value, pass by pass in the order of summation. Between
// begin_apart() and now_added() is what was summed by itself, and then added to what was there.
using Passes = std::vector<std::vector<uint32_t>>;
inline std::vector<uint32_t> begin_apart() { return {kNoRank}; }
inline std::vector<uint32_t> now_added() { return {}; }

// To what was summed so far is added what has this sum.
inline void add(const Passes& sum, Passes* passes) {
  const bool apart = sum.size() > 1 || sum.front().size() > 1;
  if (apart) passes->push_back(begin_apart());
  passes->insert(passes->end(), sum.begin(), sum.end());
  if (apart) passes->push_back(now_added());
}

inline uint32_t ranks_in(const Passes& passes) {
  uint32_t ranks = 0;
  for (const auto& pass : passes)
    ranks += pass == begin_apart() ? 0 : static_cast<uint32_t>(pass.size());
  return ranks;
}

// A value and how it came about.
struct Value {
  std::vector<std::byte> bytes;
  Passes passes;
  uint32_t checksum = 0;  // made when the bytes were, or come with them
};
using Payload = std::shared_ptr<const Value>;  // none: no slice

// One op of one life of a job, whatever its key is in which epoch.
struct OpId {
  JobId job{};
  uint32_t op = 0;
  uint32_t step = 0;
  auto operator<=>(const OpId&) const = default;
};

// Whose outputs: those of all ranks, or that of one.
struct OutputId {
  OpId op;
  uint32_t target = kNoRank;
  auto operator<=>(const OutputId&) const = default;
};

// A slice of an op: its place in the inputs that it is made of, and in the outputs.
struct SlicePlace {
  OutputId outputs;
  uint64_t input_at = 0;
  uint64_t output_at = 0;
  size_t length = 0;
  WireType wire = WireType::kNative;  // as what it was rounded whenever it left a node
};

// Remembers what was said and done everywhere, and finds contradictions:
//  - P1: one view for each epoch of a job, and one proposal for each ballot;
//  - P2: the members of the last view told the same verdict of an op, and the same bits;
//  - D7: with completion=stable, whoever was told that an op ended well, dead and cut off or not,
//  was
//    told the same as the members of the last view;
//  - P3: a final value is the sum of untouched inputs, each at most once, in the documented order.
class Oracle {
 public:
  Oracle(bool stable, std::function<void(const std::string&)> violation)
      : stable_(stable), violation_(std::move(violation)) {}

  void note_view(const core::View& view);
  void note_asked(const core::change::Accept& accept);
  // This rank submitted another signature than the others: nothing of it may ever count.
  void note_odd_one(const OpId& id, uint32_t rank) { odd_ones_[id] = rank; }
  // A final value is about to be written to the outputs of a node. `input` tells a rank's.
  void note_final(const SlicePlace& place, const Signature& signature, core::ValueId value_id,
                  const Value& value, const std::function<Input(uint32_t rank)>& input);
  // Empty when every byte of an output belongs to one of the final values of its place.
  std::string fault_of_output(const OutputId& id, uint64_t bytes, const std::byte* output) const;
  // `pid` tells the lives of a rank apart.
  void note_end(const OpId& id, uint32_t rank, int64_t pid, const core::Outcome& outcome,
                std::vector<std::byte> result);
  // `stayed`: whether this process is a member of this life of the job to the end.
  using Stayed = std::function<bool(const JobId&, uint32_t rank, int64_t pid)>;
  void check_agreement(const Stayed& stayed);

  const core::View* last_view(const JobId& job) const;
  size_t views() const { return views_.size(); }

 private:
  struct End {
    core::Outcome outcome;
    std::vector<std::byte> result;
  };
  void compare(const OpId& id, uint32_t rank, const End& end, uint32_t other, const End& otherwise);

  const bool stable_;
  std::function<void(const std::string&)> violation_;
  std::map<std::pair<JobId, uint64_t>, core::View> views_;
  std::map<std::tuple<JobId, uint64_t, core::Ballot>, core::Proposal> asked_;  // by epoch
  std::map<std::tuple<OutputId, uint64_t, uint64_t>, std::vector<std::byte>>
      finals_;  // by offset, epoch
  std::map<OpId, uint32_t> odd_ones_;
  std::map<OpId, std::map<std::pair<uint32_t, int64_t>, End>> ends_;  // by rank and pid
};

}  // namespace gradring::sim
