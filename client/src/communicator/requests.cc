#include "client/src/communicator/requests.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "client/src/api/error.h"
#include "client/src/limits.h"

namespace gradring::client {

Outcome failed(Failure failure, std::string message) {
  Outcome outcome;
  outcome.verdict = Verdict::kFailed;
  outcome.message = message.empty() ? gradring::describe(failure) : std::move(message);
  outcome.failure = std::move(failure);
  return outcome;
}

void write_result(const Outcome& outcome, gradring_result* result) {
  if (result == nullptr) return;
  gradring_result full{};
  full.struct_size = result->struct_size;
  full.verdict = static_cast<uint32_t>(outcome.verdict);
  full.cause = static_cast<uint32_t>(outcome.failure.cause);
  const Blame& blame = outcome.failure.blame;
  full.blamed_rank = blame.rank == kNoRank ? -1 : static_cast<int32_t>(blame.rank);
  full.blamed_pid = blame.pid;
  copy_text(blame.node, full.blamed_node, sizeof(full.blamed_node));
  full.ranks_min = outcome.ranks_min;
  full.ranks_max = outcome.ranks_max;
  full.epoch = outcome.epoch;
  full.size = outcome.size;
  copy_text(outcome.message, full.message, sizeof(full.message));
  std::memcpy(result, &full, std::min(result->struct_size, sizeof(full)));
}

// Less is sooner there by a copy of ours: the daemon's GPUs begin when all ranks here have come.
bool Request::suits_gpus() const {
  const bool known = signature.collective == Collective::kAllreduce ||
                     signature.collective == Collective::kReduceScatter ||
                     signature.collective == Collective::kAllgather;
  return known && std::max(extent.input, extent.output) > kPartBytes;
}

bool may_stay(const Request& request, const View& view, bool direct) {
  const Signature& s = request.signature;
  const bool as_it_is = s.wire == WireType::kNative && !s.blocks.uneven();
  return as_it_is && (direct || view.size() == static_cast<uint32_t>(view.local_size));
}

std::string describe(const Request& request) {
  if (request.is_join_point()) return gradring::describe(request.signature);
  return fmt::format("{} ({})", gradring::describe(request.signature),
                     request.name.empty() ? gradring::describe(request.key)
                                          : fmt::format("'{}', use {}", shown_name(request.name),
                                                        request.key.sequence));
}

}  // namespace gradring::client
