#include <fmt/format.h>

#include <algorithm>

#include "client/src/communicator/communicator.h"
#include "client/src/refusal.h"

// The views of the job, and the join points between which it may grow.
namespace gradring::client {
void Communicator::adopt(View view) {
  size_ = static_cast<int32_t>(view.size());
  if (view.local_size > 0) local_size_ = view.local_size;
  epoch_ = std::max(epoch_.load(), view.epoch);
  views_.add(std::move(view));
}

Status Communicator::on_view_changed(const wire::ViewChanged& changed) {
  if (views_.empty()) {
    // Right behind the answer to the join: it waits until that has been seen.
    early_view_ = changed;
    return {};
  }
  if (changed.job() != job_) return invalid(fmt::format("of job {}, not ours", changed.job()));
  auto view = view_from(changed.view(), settings_.rank, session_.place().node);
  if (!view) return invalid(std::move(view.error()));
  if (!changed.explanation().empty()) view->explanation = changed.explanation();
  const View& newest = views_.newest();
  if (view->epoch < newest.epoch) {
    return invalid(fmt::format("epoch {} was told after epoch {}", view->epoch, newest.epoch));
  }
  if (view->epoch == newest.epoch) return {};  // told once more
  if (view->grown != newest.grown) {
    // Going on would match our ops with other ones of theirs.
    if (join_point_ == 0) {
      return invalid(fmt::format("ranks came in with epoch {}, and rank {} was at no join point",
                                 view->epoch, settings_.rank));
    }
    // Who came in begins to count there, and so does everybody.
    sequence_ = 0;
    name_uses_.clear();
    joins_ = 0;
  }
  adopt(std::move(*view));
  on_early_ends();
  return {};
}

View Communicator::view() {
  Inside inside(*this);
  return views_.newest();
}

tl::expected<std::vector<uint32_t>, Status> Communicator::ranks_of(uint64_t epoch) {
  Inside inside(*this);
  if (const View* view = views_.find(epoch)) return view->ranks;
  return tl::unexpected(Status(
      Code::kNotFound, fmt::format("the view of epoch {} is not known: it was never told, or more "
                                   "than {} others came after it",
                                   epoch, Views::kKept)));
}

tl::expected<Communicator::Joined, Status> Communicator::join_point() {
  Inside inside(*this);
  Request request;
  request.signature.collective = Collective::kJoinPoint;
  uint64_t ticket = 0;
  if (Status refused = send(inside.lock(), {&request, 1}, &ticket); !refused.ok()) {
    return tl::unexpected(refused);
  }
  auto outcome = take(inside.lock(), ticket, kNever);
  if (!outcome) return tl::unexpected(outcome.error());
  View view = views_.at((*outcome)->epoch);
  return Joined{std::move(**outcome), std::move(view)};
}

Status Communicator::out_of_turn(const Request& request) const {
  if (request.is_join_point() && request.given_key) return {};  // it has failed, and is counted
  if (join_point_ != 0) {
    return invalid(
        fmt::format("{} cannot be submitted while a join point of this communicator is "
                    "under way; wait until that has returned",
                    gradring::describe(request.signature)));
  }
  if (join_ != 0 && !request.given_key) {
    return invalid(
        fmt::format("rank {} has joined; ops may follow when gradring_join, or gradring_abandon, "
                    "has returned",
                    settings_.rank));
  }
  if (!request.is_join_point()) {
    if (!newcomer_) return {};
    return invalid(
        fmt::format("rank {} came into a running job, so its first op must be "
                    "gradring_join_point, where the others wait for it",
                    settings_.rank));
  }
  if (!far_.empty()) {
    const auto& [ticket, far] = *far_.begin();
    return invalid(fmt::format(
        "a join point cannot begin while request {}, a {} rank {}, has not been waited for", ticket,
        far.sends ? "send to" : "receive from", far.peer));
  }
  for (const auto& [ticket, open] : requests_) {
    if (open.outcome.ended()) continue;
    return invalid(
        fmt::format("a join point cannot begin while request {}, {}, is under way; wait "
                    "for it first",
                    ticket, describe(open)));
  }
  return {};
}

}  // namespace gradring::client
