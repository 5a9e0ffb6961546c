#include "daemon/control/queries/far_queries.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace gradring::daemon {
namespace {

// Longer than a peer takes for an answer that it has to gather from others.
constexpr core::Time kForPeer = 2 * core::kSecond;

constexpr size_t kFarPendingMax = 512;

}  // namespace

void FarQueries::ask(const Asker& asker, const wire::Query& query, core::Time now,
                     core::Time takes) {
  const auto own = std::ranges::count_if(
      pending_, [&asker](const auto& entry) { return entry.second.asker.uid == asker.uid; });
  const Status place = place_for(asker, pending_.size(), static_cast<size_t>(own), kFarPendingMax);
  if (!place.ok()) return answers_.refuse(asker, place);
  wire::PeerMessage message;
  message.mutable_question()->set_id(next_);
  message.mutable_question()->set_uid(asker.uid);
  *message.mutable_question()->mutable_query() = query;
  message.mutable_question()->mutable_query()->clear_node();
  if (!peers_->send(query.node(), std::move(message))) {
    return answers_.refuse(
        asker, {Code::kNotFound, fmt::format("this daemon is not connected with a node {}; "
                                             "gradringctl peers lists those that it is with",
                                             query.node())});
  }
  pending_[next_++] = {asker, query.node(), now, kForPeer + takes};
}

void FarQueries::on_reply(const std::string& node, const wire::Reply& reply, core::Time now) {
  const auto it = pending_.find(reply.id());
  if (it == pending_.end() || it->second.node != node) return;
  const Pending pending = std::move(it->second);
  pending_.erase(it);
  if (!reply.has_reply()) {
    const Status why(static_cast<Code>(reply.refused().code()), reply.refused().message());
    return answers_.refuse_quietly(pending.asker, why);
  }
  wire::QueryReply answer = reply.reply();
  answer.set_forwarded_at(pending.asked);
  answer.set_returned_at(now);
  answers_.give(pending.asker, std::move(answer));
}

void FarQueries::peer_gone(const std::string& node, const std::string& evidence) {
  const Status why(Code::kUnavailable,
                   fmt::format("node {} went before it answered: {}", node, evidence));
  for (auto it = pending_.begin(); it != pending_.end();) {
    if (it->second.node != node) {
      ++it;
      continue;
    }
    answers_.refuse(it->second.asker, why);
    it = pending_.erase(it);
  }
}

void FarQueries::tick(core::Time now) {
  for (auto it = pending_.begin(); it != pending_.end();) {
    if (now < it->second.asked + it->second.patience) {
      ++it;
      continue;
    }
    answers_.refuse(it->second.asker,
                    {Code::kDeadlineExceeded,
                     fmt::format("node {} did not answer within {} s: it is busy, stopped, or of a "
                                 "release that does not know the question",
                                 it->second.node, it->second.patience / core::kSecond)});
    it = pending_.erase(it);
  }
}

core::Time FarQueries::next_deadline() const {
  core::Time next = std::numeric_limits<core::Time>::max();
  for (const auto& [id, pending] : pending_) {
    next = std::min(next, pending.asked + pending.patience);
  }
  return next;
}

}  // namespace gradring::daemon
