#include "daemon/control/queries/asker.h"

#include <fmt/format.h>

#include <utility>

#include "daemon/clock.h"
#include "daemon/notice.h"

namespace gradring::daemon {

Status place_for(const Asker& asker, size_t all, size_t own, size_t most) {
  if (all >= most) return {Code::kResourceExhausted, "too many queries at once; try again"};
  if (asker.uid == 0 || own < most / 2) return {};
  return {Code::kResourceExhausted,
          fmt::format("uid {} asks {} queries at once already; try again", asker.uid, own)};
}

void Answers::give(const Asker& asker, wire::QueryReply reply) {
  if (reply.answered_at() == 0) reply.set_answered_at(monotonic_now());
  if (!asker.node.empty()) {
    wire::PeerMessage message;
    message.mutable_reply()->set_id(asker.request);
    *message.mutable_reply()->mutable_reply() = std::move(reply);
    peers_->send(asker.node, std::move(message));
    return;
  }
  wire::DaemonMessage message;
  message.set_request(asker.request);
  *message.mutable_reply() = std::move(reply);
  clients_->answer(asker.routing_id, std::move(message));
}

void Answers::refuse(const Asker& asker, const Status& why) {
  tell_limit(why);
  refuse_quietly(asker, why);
}

void Answers::refuse_quietly(const Asker& asker, const Status& why) {
  if (asker.node.empty()) return clients_->refuse_quietly(asker.routing_id, asker.request, why);
  wire::PeerMessage message;
  message.mutable_reply()->set_id(asker.request);
  wire::Refused* refused = message.mutable_reply()->mutable_refused();
  refused->set_code(static_cast<uint32_t>(why.code()));
  refused->set_message(why.message());
  peers_->send(asker.node, std::move(message));
}

}  // namespace gradring::daemon
