// Ops that need all of their ranks: who they are, and where their buffers lie.

#include <algorithm>

#include "daemon/core/job_engine.h"

namespace gradring::core {

// The op keeps those it began with: a rank that dies after it submitted still counts.
void JobEngine::take_seats(Op& op, const Signature& signature) const {
  if (!op.seats.empty() || !needs_all_ranks(signature.collective)) return;
  if (signature.ranks != view_.size) return;
  op.seats = places_;
}

// `known`: the op, if there is one; else whether there may be one more. How many ranks there are is
// not for one submission to get wrong alone: all must be told (wrong_ranks).
Status JobEngine::check_seat(const Submission& submission, const Op* known) const {
  constexpr uint64_t kSlicesMax = 1 << 24;  // their states are kept
  const Signature& s = submission.signature;
  // Each op has a place for every rank of this node. Of so many ranks it is their own bound that
  // counts.
  constexpr uint64_t kRanksAsUsual = 16;
  const uint64_t places = ops_.size() * locals_.size();
  if (known == nullptr && places >= kRanksAsUsual * options_.open_ops_per_rank_max) {
    return {Code::kResourceExhausted, "the job has " + std::to_string(ops_.size()) +
                                          " ops open on this node, each with a place for " +
                                          std::to_string(locals_.size()) +
                                          " ranks; wait for some first"};
  }
  if (slices_for(s, slice_bytes_for(s, members(), options_.plan)) > kSlicesMax) {
    return {Code::kInvalidArgument, describe(s) + " is too much for one op"};
  }
  if (!needs_all_ranks(s.collective)) return {};
  const auto& seats = known != nullptr && !known->seats.empty() ? known->seats : places_;
  if (s.ranks != 0 && seats.size() != s.ranks) return {};
  if (submission.position >= s.ranks || seats[submission.position].rank != submission.rank) {
    return {Code::kInvalidArgument, "rank " + std::to_string(submission.rank) +
                                        " is not the one at position " +
                                        std::to_string(submission.position)};
  }
  const bool has_its_root =
      !has_root(s.collective) || std::any_of(seats.begin(), seats.end(),
                                             [&](const auto& seat) { return seat.rank == s.root; });
  if (has_its_root) return {};
  return {Code::kInvalidArgument,
          describe(s) + ", which is not among the job's " + std::to_string(s.ranks) + " ranks"};
}

}  // namespace gradring::core
