// Ops that need all of their ranks: who they are, and where their buffers lie.

#include <algorithm>

#include "daemon/core/job_engine.h"

namespace gradring::core {

void JobEngine::seat_all() {
  seats_.clear();
  for (const Member& member : view_.members) {
    for (const RankInfo& info : member.ranks) seats_.push_back({info.rank, member.node});
  }
  std::sort(seats_.begin(), seats_.end(),
            [](const RankPlace& a, const RankPlace& b) { return a.rank < b.rank; });
}

// The op keeps those it began with: a rank that dies after it submitted still counts.
void JobEngine::take_seats(Op& op, const Signature& signature) const {
  if (!op.seats.empty() || !needs_all_ranks(signature.collective)) return;
  if (signature.ranks != view_.size) return;
  op.seats = seats_;
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
  const auto& seats = known != nullptr && !known->seats.empty() ? known->seats : seats_;
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

// The job has other ranks by now than the op was submitted for. One that a view spares goes on with
// those that it began with, unless it came here when these were gone already.
std::optional<MismatchBody> JobEngine::wrong_ranks(const Op& op, uint32_t rank,
                                                   const Signature& signature) const {
  if (!needs_all_ranks(signature.collective)) return std::nullopt;
  if (signature.ranks == view_.size) return std::nullopt;
  if (op.spared && op.seats.size() == signature.ranks) return std::nullopt;
  Signature wanted = signature;
  wanted.ranks = view_.size;
  return MismatchBody{kNoRank, rank, wanted, signature};
}

std::vector<Seat> JobEngine::seats_of(const Op& op) const {
  std::vector<Seat> seats;
  if (op.signature->collective == Collective::kBroadcast) {
    const uint32_t root = op.signature->root;
    const auto keeper = op.root_node.empty() ? std::nullopt : view_.index_of(op.root_node);
    seats.push_back({root, keeper ? *keeper : view_.has(root) ? view_.host_of(root) : 0});
  }
  // Of thousands of ranks most are on the same node as the one before, or on the next.
  uint32_t guess = 0;
  for (const RankPlace& place : op.seats) {
    if (view_.members[guess].node != place.node) guess = (guess + 1) % members();
    if (view_.members[guess].node == place.node) {
      seats.push_back({place.rank, guess});
      continue;
    }
    const auto member = view_.index_of(place.node);
    seats.push_back({place.rank, member.value_or(Seat::kNobody)});
    guess = member.value_or(guess);
  }
  return seats;
}

}  // namespace gradring::core
