// Uneven data: a rank that has no more of it stands in for itself in the ops of the others, with
// values that change nothing, until all ranks have none. A rank that goes back to an earlier step
// ends them instead.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "client/src/communicator/communicator.h"
#include "client/src/limits.h"
#include "proto/gone_back.h"
#include "proto/identity.h"
#include "proto/wire.h"

namespace gradring::client {
namespace {

// Where the output lies, behind the input.
uint64_t output_in(const Extent& extent) {
  constexpr uint64_t kAlign = 64;
  return (extent.input + kAlign - 1) / kAlign * kAlign;
}

// What a join tells the others, so that the largest is of who was last: its own ops, and its rank.
constexpr int64_t kRankBits = 20;
static_assert(kRanksMax <= uint32_t{1} << kRankBits);

// Ranks that name the lengths of all blocks know of one another; and nobody has a value for the one
// rank whose values count.
bool can_stand_in(const Signature& s, uint32_t rank, uint32_t position) {
  const bool gives = s.collective == Collective::kBroadcast || s.collective == Collective::kScatter;
  if (gives && s.root == rank) return false;
  if (needs_all_ranks(s.collective) && position >= s.ranks) return false;
  return moves_data(s.collective) ? s.collective != Collective::kJoin && !s.blocks.uneven() : true;
}

}  // namespace

tl::expected<Communicator::AllJoined, Status> Communicator::join_all(Others others) {
  Inside inside(*this);
  auto& lock = inside.lock();
  if (join_ != 0) {
    return tl::unexpected(
        Status(Code::kInvalidArgument,
               fmt::format("rank {} has joined already, in another thread", settings_.rank)));
  }
  if (others == Others::kEnd && !session_.asks_for_failed()) {
    return tl::unexpected(
        Status(Code::kIncompatible,
               fmt::format("the daemon on node {} is too old for gradring_abandon, which would not "
                           "return where others are at a join point; upgrade gradringd there",
                           session_.place().node)));
  }
  Request request;
  request.signature = {Collective::kJoin, Dtype::kInt64, ReduceOp::kMax, 0, 1};
  const Extent extent = extent_of(request.signature, settings_.rank, 0);
  const uint64_t bytes = output_in(extent) + extent.output;
  const auto buffer = scratch(lock, bytes);
  if (!buffer) return tl::unexpected(buffer.error());
  *reinterpret_cast<int64_t*>(*buffer) =
      static_cast<int64_t>(own_ops_ << kRankBits | settings_.rank);
  request.given_key = {OpKey::kNoMoreSpace, joins_};
  uint64_t ticket = 0;
  if (Status refused = send_scratch(lock, std::move(request), *buffer, &ticket); !refused.ok()) {
    spare_.emplace(bytes, *buffer);
    return tl::unexpected(refused);
  }
  ++joins_;
  if (Status fault = stand_in_until(lock, ticket, others); !fault.ok())
    return tl::unexpected(fault);
  auto outcome = take(lock, ticket, kNever);
  if (!outcome) return tl::unexpected(outcome.error());
  AllJoined joined;
  const int64_t last = *reinterpret_cast<const int64_t*>(*buffer + output_in(extent));
  joined.last_rank = static_cast<uint32_t>(last & ((int64_t{1} << kRankBits) - 1));
  joined.outcome = std::move(**outcome);
  own_ops_ = 0;
  spare_.emplace(bytes, *buffer);
  free_scratch(lock);
  return joined;
}

// Until the join has ended, and with it all that was asked for.
Status Communicator::stand_in_until(std::unique_lock<std::mutex>& lock, uint64_t join,
                                    Others others) {
  const auto ended = [this](uint64_t ticket) {
    const auto request = requests_.find(ticket);
    return request == requests_.end() || request->second.outcome.ended();
  };
  const auto any_ended = [&] {
    return std::any_of(standing_in_.begin(), standing_in_.end(),
                       [&](const auto& entry) { return ended(entry.first); });
  };
  while (!ended(join) || !standing_in_.empty()) {
    session_.wait_until(lock, kNever, [&] {
      return session_.interrupted() || !asked_.empty() || any_ended() ||
             (ended(join) && standing_in_.empty());
    });
    if (session_.interrupted()) return session_.why_over();
    std::erase_if(standing_in_, [&](const auto& entry) {
      if (!ended(entry.first)) return false;
      requests_.erase(entry.first);
      if (entry.second.bytes > 0) spare_.emplace(entry.second.bytes, entry.second.memory);
      return true;
    });
    while (!asked_.empty()) {
      const wire::StandIn asked = std::move(asked_.front());
      asked_.pop_front();
      if (Status fault = stand_in(lock, asked, others); !fault.ok() && refusal().ok()) return fault;
    }
  }
  return {};
}

Status Communicator::stand_in(std::unique_lock<std::mutex>& lock, const wire::StandIn& asked,
                              Others others) {
  const OpKey key = from_wire(asked.key());
  if (!take_key(key)) return {};
  const View& view = views_.newest();
  Request request;
  Signature& s = request.signature;
  const auto fail_the_op = [&] {
    s = gone_back();
    if (others == Others::kStandIn) s.op = ReduceOp::kMax;
    if (key.space == OpKey::kJoinSpace) s = {Collective::kJoinPoint};
    request.position = 0;
  };
  const bool known = asked.has_signature() && from_wire(asked.signature(), &s);
  if (known && needs_all_ranks(s.collective)) request.position = view.position_of(settings_.rank);
  if (others == Others::kEnd || !known || !can_stand_in(s, settings_.rank, request.position)) {
    fail_the_op();
  }
  request.given_key = key;
  request.priority = std::numeric_limits<int32_t>::min();  // those who need it have a say
  const Extent extent = extent_of(s, settings_.rank, request.position);
  uint64_t bytes = output_in(extent) + extent.output;
  std::byte* memory = nullptr;
  if (bytes > 0) {
    const auto found = scratch(lock, bytes);
    if (found) {
      memory = *found;
      lock.unlock();
      fill_identity(s.dtype, reduces(s.collective) ? s.op : ReduceOp::kNone, memory,
                    extent.input / size_of(s.dtype));
      lock.lock();
    } else if (session_.over()) {
      return found.error();
    } else {
      fail_the_op();  // which the others would wait for until its deadline
      bytes = 0;
    }
  }
  uint64_t ticket = 0;
  Status refused = send_scratch(lock, std::move(request), memory, &ticket);
  if (refused.ok()) {
    standing_in_[ticket] = {memory, bytes};
  } else if (memory != nullptr) {
    spare_.emplace(bytes, memory);
  }
  return refused;
}

Status Communicator::send_scratch(std::unique_lock<std::mutex>& lock, Request request,
                                  std::byte* memory, uint64_t* ticket) {
  const Extent extent = request.extent =
      extent_of(request.signature, settings_.rank, request.position);
  if (extent.input != 0) {
    const auto from = segments_.find(memory, extent.input, "input");
    if (!from) return from.error();
    request.input = Loan(*from);
  }
  if (extent.output != 0) {
    const auto to = segments_.find(memory + output_in(extent), extent.output, "output");
    if (!to) return to.error();
    request.output = Loan(*to);
  }
  return send(lock, {&request, 1}, ticket);
}

// Memory that was used before, if it is not far too large.
tl::expected<std::byte*, Status> Communicator::scratch(std::unique_lock<std::mutex>& lock,
                                                       uint64_t bytes) {
  const auto spare = spare_.lower_bound(bytes);
  if (spare != spare_.end() && spare->first / 2 <= bytes) {
    std::byte* const memory = spare->second;
    spare_.erase(spare);
    return memory;
  }
  return allocate(lock, bytes);
}

void Communicator::free_scratch(std::unique_lock<std::mutex>& lock) {
  for (const auto& [bytes, memory] : std::exchange(spare_, {})) {
    // If that is refused, it goes with the session.
    static_cast<void>(give_back(lock, *segments_.at(memory)));
  }
}

// False: it is on its way already. One that this rank submitted once and was refused is not, and
// the others wait for it. Counters stay where they would be had it not joined.
bool Communicator::take_key(const OpKey& key) {
  const auto is_it = [&key](const auto& entry) {
    return entry.second.key == key && !entry.second.outcome.ended();
  };
  if (std::any_of(requests_.begin(), requests_.end(), is_it)) return false;
  uint64_t& next = key.space == 0 ? sequence_ : name_uses_[key.space];
  next = std::max(next, key.sequence + 1);
  return true;
}

void Communicator::on_stand_in(const wire::StandIn& asked) {
  if (join_ != 0 && asked.job() == job_) asked_.push_back(asked);
}

}  // namespace gradring::client
