#include "daemon/core/peer_net.h"

#include <algorithm>
#include <limits>

namespace gradring::core {
namespace {

// One of two tries to open their channel first: both at once would answer one another in vain.
constexpr Time kSecondTries = 500 * kMillisecond;

constexpr Time kNever = std::numeric_limits<Time>::max();

}  // namespace

std::vector<std::string> PeerNet::all_names(const PeerNetOptions& options) {
  std::vector<std::string> names = options.peers;
  names.push_back(options.self);
  return names;
}

PeerNet::PeerNet(PeerNetOptions options, PeerNetActions* actions)
    : options_(std::move(options)),
      actions_(actions),
      overlay_(all_names(options_), options_.links_max),
      self_(*overlay_.place_of(options_.self)),
      relay_(&overlay_, self_),
      obituaries_(options_.self, options_.boot, options_.patience),
      nodes_(overlay_.count()) {
  for (uint32_t place = 0; place < overlay_.count(); ++place) {
    if (place == self_) continue;
    Node& node = nodes_[place];
    node.link = overlay_.linked(self_, place);
    node.due = kNever;
    if (!node.link) {
      node.courier = std::make_unique<Courier>(&options_.courier, options_.boot, kNever);
    }
  }
}

PeerNet::Node* PeerNet::node(const std::string& name) {
  const auto place = overlay_.place_of(name);
  return place && *place != self_ ? &nodes_[*place] : nullptr;
}
const PeerNet::Node* PeerNet::node(const std::string& name) const {
  return const_cast<PeerNet*>(this)->node(name);
}

// ---- links ----

bool PeerNet::wants_link(const std::string& peer) const {
  const Node* of = node(peer);
  return of != nullptr && of->link;
}

void PeerNet::link_wanted(const std::string& peer, Time now) {
  Node* of = node(peer);
  if (of == nullptr || of->link) return;
  of->link = true;
  const uint32_t place = *overlay_.place_of(peer);
  of->courier->close("it wants a connection", false, now);
  dispatch(place, now);
  of->courier.reset();
  schedule(place);
}

void PeerNet::link_up(const std::string& peer, uint64_t boot, bool passes_on, Time now) {
  Node* of = node(peer);
  if (of == nullptr) return;
  link_wanted(peer, now);
  const bool first = !relay_.any_link();
  of->boot = boot;
  of->passes_on = passes_on;
  relay_.link_up(*overlay_.place_of(peer), passes_on);
  if (passes_on) {
    if (const auto notices = obituaries_.greet(peer, boot); !notices.empty()) {
      actions_->pass(peer, notices);
    }
  }
  if (!first) return;
  for (uint32_t place = 0; place < nodes_.size(); ++place) {
    if (!nodes_[place].courier) continue;
    nodes_[place].courier->hurry(now + delay_of(place));
    schedule(place);
  }
}

void PeerNet::link_lost(const std::string& peer, bool silent, const std::string& evidence,
                        Time now) {
  Node* of = node(peer);
  const auto place = overlay_.place_of(peer);
  if (of == nullptr || !relay_.is_up(*place)) return;
  relay_.link_down(*place);
  if (relay_.any_link()) return tell(obituaries_.lost(peer, of->boot, silent, evidence, now), "");
  obituaries_.forget_own();
  for (uint32_t other = 0; other < nodes_.size(); ++other) {
    if (!nodes_[other].courier) continue;
    nodes_[other].courier->close("no connection to any node is left", silent, now);
    dispatch(other, now);
  }
}

void PeerNet::on_parcel(const std::string&, Parcel parcel, Time now) {
  const auto to = overlay_.place_of(parcel.to);
  const auto from = overlay_.place_of(parcel.from);
  // Its own comes back here from a dead end, and from nowhere else.
  const bool comes_back = from == self_ && to != self_ && !parcel.passed.empty() &&
                          parcel.passed.front() == Relay::print_of(options_.self);
  const bool foreign = from && *from != self_;
  if (!to || (!foreign && !comes_back) || parcel.passed.size() > relay_.hops_max()) {
    ++dropped_;
    return;
  }
  if (*to != self_) {
    ++passed_on_;
    return forward(*to, std::move(parcel));
  }
  Node& sender = nodes_[*from];
  if (!sender.courier) {  // with a link there is another way
    ++dropped_;
    return;
  }
  if (parcel.letter.buried != 0) return hear_of_own_death(*from, parcel.letter, now);
  if (is_buried(*from, parcel.letter, now)) return;
  sender.courier->on_letter(parcel.letter, now);
  dispatch(*from, now);
}

// Whoever is thought dead must deny it before it is heard. It may not know what is said of it, and
// its denial may have come to all but us.
bool PeerNet::is_buried(uint32_t place, const Letter& letter, Time now) {
  const std::string& name = overlay_.name_at(place);
  if (!obituaries_.dead(name, letter.from.boot)) return false;
  const uint64_t number = obituaries_.word_on(name, letter.from.boot)->number;
  if (letter.denials > number) {
    tell(obituaries_.on_notice({name, letter.from.boot, letter.denials, false, false, ""}, now),
         "");
    return false;
  }
  Letter answer;
  answer.to = letter.from;
  answer.attempt = letter.attempt;  // each of its tries is answered by another way
  answer.buried = number + 1;
  write(place, std::move(answer));
  return true;
}

void PeerNet::hear_of_own_death(uint32_t from, const Letter& letter, Time now) {
  const Notice notice{options_.self, letter.to.boot, letter.buried - 1, true, false, ""};
  tell(obituaries_.on_notice(notice, now), "");
  if (letter.buried > obituaries_.denials()) return;
  nodes_[from].courier->hurry(now + kSecondTries);
  schedule(from);
}

void PeerNet::on_notices(const std::string& link, const std::vector<Notice>& notices, Time now) {
  std::vector<Notice> news;
  for (const Notice& notice : notices) {
    const Node* about = node(notice.node);
    if (about == nullptr && notice.node != options_.self) continue;
    const std::vector<Notice> more = obituaries_.on_notice(notice, now);
    news.insert(news.end(), more.begin(), more.end());
    if (about == nullptr || more.empty() || notice.dead || !about->courier) continue;
    const uint32_t place = *overlay_.place_of(notice.node);
    nodes_[place].courier->hurry(now + delay_of(place));
    schedule(place);
  }
  // A denial must reach the one as well that told of the death.
  const bool own = std::any_of(news.begin(), news.end(), [this](const Notice& notice) {
    return notice.node == options_.self;
  });
  tell(news, own ? "" : link);
}

void PeerNet::tell(const std::vector<Notice>& notices, const std::string& except) {
  if (notices.empty()) return;
  for (uint32_t place = 0; place < nodes_.size(); ++place) {
    if (!nodes_[place].passes_on || !relay_.is_up(place)) continue;
    const std::string& link = overlay_.name_at(place);
    if (link != except) actions_->pass(link, notices);
  }
}

void PeerNet::write(uint32_t to, Letter letter) {
  letter.denials = obituaries_.denials();
  forward(to, {options_.self, overlay_.name_at(to), {}, std::move(letter)});
}

void PeerNet::forward(uint32_t to, Parcel parcel) {
  parcel.passed.push_back(Relay::print_of(options_.self));
  const auto next = relay_.next_hop(to, parcel.passed, parcel.letter.attempt);
  if (next) {
    actions_->pass(overlay_.name_at(*next), parcel);
  } else {
    ++dropped_;
  }
}

// ---- peers without a link ----

bool PeerNet::send(const std::string& peer, std::string body, Time now) {
  Node* to = node(peer);
  if (to == nullptr || !to->courier) return false;
  const bool sent = to->courier->send(std::move(body), now);
  const uint32_t place = *overlay_.place_of(peer);
  for (Letter& letter : to->courier->take_letters()) {
    write(place, std::move(letter));
  }
  schedule(place);
  return sent;
}

void PeerNet::close(const std::string& peer, const std::string& why, Time now) {
  Node* to = node(peer);
  if (to == nullptr || !to->courier) return;
  to->courier->close(why, false, now);
  dispatch(*overlay_.place_of(peer), now);
}

// Letters go out and events are told. A call back may end the courier (link_wanted), or send.
void PeerNet::dispatch(uint32_t place, Time now) {
  (void)now;
  const std::string& peer = overlay_.name_at(place);
  Courier& courier = *nodes_[place].courier;
  for (Letter& letter : courier.take_letters()) {
    write(place, std::move(letter));
  }
  const std::vector<Courier::Event> events = courier.take_events();
  schedule(place);
  for (const Courier::Event& event : events) {
    switch (event.what) {
      case Courier::Event::What::kUp:
        actions_->relayed_up(peer);
        break;
      case Courier::Event::What::kMessage:
        actions_->relayed_message(peer, event.text);
        break;
      case Courier::Event::What::kDown:
        actions_->relayed_down(peer, event.silent, event.text);
        break;
    }
  }
}

// Of a death nobody tells where all who saw it died as well. So when nodes have died, those are
// asked to which no way is left over nodes that seem to be up.
void PeerNet::doubt_unreached(Time now) {
  std::vector<bool> reached(nodes_.size());
  std::vector<uint32_t> way = {self_};
  reached[self_] = true;
  while (!way.empty()) {
    const uint32_t at = way.back();
    way.pop_back();
    for (const uint32_t next : overlay_.links_of(at)) {
      const auto& courier = nodes_[next].courier;
      const bool up = courier ? courier->state() == Courier::State::kUp : relay_.is_up(next);
      if (reached[next] || !up || (at == self_ && !relay_.is_up(next))) continue;
      reached[next] = true;
      way.push_back(next);
    }
  }
  for (uint32_t place = 0; place < nodes_.size(); ++place) {
    if (reached[place] || !nodes_[place].courier) continue;
    nodes_[place].courier->doubt(now);
    schedule(place);
  }
}

void PeerNet::tick(Time now) {
  const std::vector<Notice> deaths = obituaries_.tick(now);
  for (const Notice& notice : deaths) {
    const uint32_t place = *overlay_.place_of(notice.node);
    const Node& about = nodes_[place];
    if (!about.courier || about.courier->peer_end().boot != notice.boot) continue;
    nodes_[place].courier->close(notice.evidence, notice.silent, now);
    dispatch(place, now);
  }
  if (!deaths.empty()) doubt_unreached(now);
  if (!relay_.any_link()) return;
  while (!due_.empty() && due_.begin()->first <= now) {
    const uint32_t place = due_.begin()->second;
    nodes_[place].courier->tick(now);
    dispatch(place, now);
  }
}

Time PeerNet::next_deadline() const {
  Time next = obituaries_.next_deadline();
  if (!due_.empty() && relay_.any_link()) next = std::min(next, due_.begin()->first);
  return next;
}

void PeerNet::schedule(uint32_t place) {
  Node& of = nodes_[place];
  const Time next = of.courier ? of.courier->next_deadline() : kNever;
  if (next == of.due) return;
  due_.erase({of.due, place});
  of.due = next;
  if (next != kNever) due_.emplace(next, place);
}

Time PeerNet::delay_of(uint32_t place) const { return self_ < place ? 0 : kSecondTries; }

bool PeerNet::relayed_is_up(const std::string& peer) const {
  const Node* of = node(peer);
  return of != nullptr && of->courier && of->courier->state() == Courier::State::kUp;
}

uint64_t PeerNet::resent() const {
  uint64_t sum = 0;
  for (const Node& of : nodes_) sum += of.courier ? of.courier->resent() : 0;
  return sum;
}

}  // namespace gradring::core
