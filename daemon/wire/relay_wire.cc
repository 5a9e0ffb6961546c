#include "daemon/wire/relay_wire.h"

#include "daemon/wire/view_wire.h"

namespace gradring::daemon {
namespace {

// An address, and a sentence for people.
constexpr size_t kNameMax = 300;
constexpr size_t kEvidenceMax = 1000;

// More than any way has; the way's own bound is checked where it is known.
constexpr int kPassedMax = 4096;

// Of a cluster of some thousand nodes half may die at once.
constexpr int kNoticesMax = 65536;

bool is_name(const std::string& text) { return !text.empty() && text.size() <= kNameMax; }

}  // namespace

wire::PeerMessage to_wire(const core::Parcel& parcel) {
  wire::PeerMessage message;
  wire::Relay* relay = message.mutable_relay();
  const core::Letter& letter = parcel.letter;
  relay->set_from(parcel.from);
  relay->set_to(parcel.to);
  relay->mutable_passed()->Add(parcel.passed.begin(), parcel.passed.end());
  relay->set_from_boot(letter.from.boot);
  relay->set_from_number(letter.from.number);
  relay->set_to_boot(letter.to.boot);
  relay->set_to_number(letter.to.number);
  relay->set_sequence(letter.sequence);
  relay->set_taken(letter.taken);
  relay->set_attempt(letter.attempt);
  relay->set_asks(letter.asks);
  relay->set_bound(letter.bound);
  relay->set_denials(letter.denials);
  relay->set_buried(letter.buried);
  relay->set_body(letter.body);
  return message;
}

std::optional<core::Parcel> parcel_of(const wire::Relay& relay) {
  if (!is_name(relay.from()) || !is_name(relay.to()) || relay.passed_size() > kPassedMax) {
    return std::nullopt;
  }
  core::Parcel parcel{relay.from(), relay.to(), {relay.passed().begin(), relay.passed().end()}, {}};
  core::Letter& letter = parcel.letter;
  letter.from = {relay.from_boot(), relay.from_number()};
  letter.to = {relay.to_boot(), relay.to_number()};
  letter.sequence = relay.sequence();
  letter.taken = relay.taken();
  letter.attempt = relay.attempt();
  letter.asks = relay.asks();
  letter.bound = relay.bound();
  letter.denials = relay.denials();
  letter.buried = relay.buried();
  letter.body = relay.body();
  return parcel;
}

wire::PeerMessage to_wire(const std::vector<core::Notice>& notices) {
  wire::PeerMessage message;
  for (const core::Notice& notice : notices) {
    wire::Notice* to = message.mutable_notices()->add_notices();
    to->set_node(notice.node);
    to->set_boot(notice.boot);
    to->set_number(notice.number);
    to->set_dead(notice.dead);
    to->set_silent(notice.silent);
    to->set_evidence(shortened(notice.evidence, kEvidenceMax));
  }
  return message;
}

std::vector<core::Notice> notices_of(const wire::Notices& notices) {
  std::vector<core::Notice> list;
  if (notices.notices_size() > kNoticesMax) return list;
  for (const wire::Notice& from : notices.notices()) {
    if (!is_name(from.node()) || from.evidence().size() > kEvidenceMax) continue;
    list.push_back(
        {from.node(), from.boot(), from.number(), from.dead(), from.silent(), from.evidence()});
  }
  return list;
}

}  // namespace gradring::daemon
