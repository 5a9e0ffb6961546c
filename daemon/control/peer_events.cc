// What comes of peers: news of them, and what they send.

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "daemon/clock.h"
#include "daemon/control/control_thread.h"
#include "daemon/notice.h"
#include "daemon/wire/peer_wire.h"

namespace gradring::daemon {

void ControlThread::peer_up(const std::string& node) {
  setup_.flight->record({.kind = FlightKind::kPeerUp}, node);
  membership_.peer_up(node);
}

void ControlThread::peer_lost(const std::string& node, Cause cause, const std::string& evidence) {
  vitals_.peer_lost(node, cause);
  part_with(node, cause, evidence);
}

// Counted as no loss: nodes that are restarted one after the other are no link that comes and goes.
void ControlThread::peer_stopped(const std::string& node) {
  part_with(node, Cause::kPeerLost, kPeerWasStopped);
}

void ControlThread::part_with(const std::string& node, Cause cause, const std::string& evidence) {
  const FlightEvent lost{.kind = FlightKind::kPeerLost, .code = static_cast<uint8_t>(cause)};
  setup_.flight->record(lost, node, evidence);
  membership_.peer_lost(node, cause, evidence);
  queries_.peer_gone(node, evidence);
}

void ControlThread::peer_away(const std::string& node, const std::string& evidence) {
  FlightEvent away{.kind = FlightKind::kPeerLost};
  setup_.flight->record(away, node, "may come back");
  membership_.peer_away(node);
  queries_.peer_gone(node, evidence);
}

void ControlThread::lane_lost(const std::string& node, const std::string& why) {
  setup_.flight->record({.kind = FlightKind::kLaneLost}, node, why);
  vitals_.lane_lost(node);
  membership_.lane_lost(node, why);
}

void ControlThread::peer_suspect(const std::string& node, bool suspected) {
  membership_.peer_suspect(node, suspected);
}

void ControlThread::peer_message(const std::string& node, const wire::PeerMessage& message) {
  if (message.has_job_query()) return queries_.on_peer_query(node, message.job_query());
  if (message.has_job_query_reply()) return queries_.on_peer_reply(node, message.job_query_reply());
  if (message.has_question()) return queries_.on_question(node, message.question());
  if (message.has_reply()) return queries_.on_reply(node, message.reply());
  if (const auto job_message = job_message_of(message)) {
    return membership_.on_message(node, *job_message, monotonic_now());
  }
  const auto text =
      fmt::format("peer {} sent a message that is malformed, or of a newer gradringd", node);
  if (told_of_peers_.lets(text, monotonic_now())) spdlog::warn(text);
}

}  // namespace gradring::daemon
