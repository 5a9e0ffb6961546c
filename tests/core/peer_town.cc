#include "tests/core/peer_town.h"

#include <algorithm>

namespace gradring::core {
namespace {

constexpr Time kHop = 1 * kMillisecond;
constexpr Time kBeat = 250 * kMillisecond;  // a quarter of `suspect`, as in the daemon

std::vector<std::string> names(uint32_t count) {
  std::vector<std::string> all;
  for (uint32_t i = 0; i < count; ++i) all.push_back("n" + std::to_string(10000 + i));
  return all;
}

}  // namespace

struct PeerTown::House : PeerNetActions {
  House(PeerTown* in, uint32_t at, uint64_t life)
      : town(in), place(at), boot(life), watch(in->options_.watch), net(options(), this) {}

  PeerNetOptions options() const {
    PeerNetOptions made;
    made.self = town->overlay_.name_at(place);
    made.boot = boot;
    for (uint32_t other = 0; other < town->overlay_.count(); ++other) {
      if (other != place) made.peers.push_back(town->overlay_.name_at(other));
    }
    made.links_max = town->options_.links_max;
    return made;
  }

  uint32_t place_of(const std::string& name) const { return *town->overlay_.place_of(name); }

  void pass(const std::string& link, const Parcel& parcel) override {
    const uint32_t to = place_of(link);
    ++sent.parcels;
    if (town->random_.below(100) < town->options_.lost) return;
    const int copies = town->random_.below(100) < town->options_.doubled ? 2 : 1;
    const auto shared = std::make_shared<const Parcel>(parcel);
    for (int i = 0; i < copies; ++i) {
      town->post({0, place, to, links.at(to), OnTheWay::What::kParcel, shared, {}, std::string()});
    }
  }
  void pass(const std::string& link, const std::vector<Notice>& notices) override {
    const uint32_t to = place_of(link);
    ++sent.notices;
    town->post(
        {0, place, to, links.at(to), OnTheWay::What::kNotices, nullptr, notices, std::string()});
  }
  void relayed_up(const std::string& peer) override { town->up_at(place, place_of(peer)); }
  void relayed_down(const std::string& peer, bool silent, const std::string& why) override {
    town->down_at(place, {place_of(peer), silent, why, town->now});
  }
  void relayed_message(const std::string& peer, const std::string& body) override {
    if (town->on_message) return town->on_message(place, place_of(peer), body);
    got.emplace_back(place_of(peer), body);
  }

  PeerTown* const town;
  const uint32_t place;
  const uint64_t boot;
  bool alive = true;
  FailureDetector watch;
  PeerNet net;
  std::map<uint32_t, uint64_t> links;  // up; the connection
  std::vector<Loss> losses;
  std::vector<std::pair<uint32_t, std::string>> got;
  Sent sent;
};

PeerTown::PeerTown(uint32_t count, const Options& options)
    : options_(options), overlay_(names(count), options.links_max), random_(options.seed) {
  for (uint32_t place = 0; place < count; ++place) {
    houses_.push_back(std::make_unique<House>(this, place, ++boots_));
  }
}

PeerTown::~PeerTown() = default;

bool PeerTown::alive(uint32_t place) const { return houses_[place]->alive; }
PeerNet& PeerTown::net(uint32_t place) { return houses_[place]->net; }
const std::vector<PeerTown::Loss>& PeerTown::losses(uint32_t at) const {
  return houses_[at]->losses;
}
const std::vector<std::pair<uint32_t, std::string>>& PeerTown::got(uint32_t at) const {
  return houses_[at]->got;
}
const PeerTown::Sent& PeerTown::sent(uint32_t place) const { return houses_[place]->sent; }
void PeerTown::forget_sent() {
  for (auto& house : houses_) house->sent = {};
}

bool PeerTown::passes(uint32_t a, uint32_t b) const {
  return houses_[a]->alive && houses_[b]->alive && cut_.count(std::minmax(a, b)) == 0;
}

void PeerTown::run(Time span) {
  for (const Time end = now + span; now < end; now += kMillisecond) {
    while (!on_the_way_.empty() && on_the_way_.front().at <= now) {
      const OnTheWay message = std::move(on_the_way_.front());
      on_the_way_.pop_front();
      arrive(message);
    }
    for (uint32_t place = 0; place < count(); ++place) {
      if (!houses_[place]->alive) continue;
      // Not all at the same moment.
      const Time shift = static_cast<Time>(place % 250) * kMillisecond;
      if ((now + shift) % kBeat == 0) tick_links(place);
      if (net(place).next_deadline() <= now) net(place).tick(now);
    }
  }
}

void PeerTown::tick_links(uint32_t place) {
  House& house = *houses_[place];
  for (const uint32_t peer : overlay_.links_of(place)) {
    if (peer > place && house.links.count(peer) == 0 && passes(place, peer)) connect(place, peer);
  }
  for (const auto& [link, connection] : house.links) {
    ++house.sent.heartbeats;
    post({0, place, link, connection, OnTheWay::What::kHeartbeat, nullptr, {}, std::string()});
  }
  for (const auto& change : house.watch.tick(now)) {
    if (change.health != FailureDetector::Health::kLost) continue;
    lose(place, house.place_of(change.peer), true, "silent");
  }
}

void PeerTown::connect(uint32_t a, uint32_t b) {
  // What is left of the last connection is noticed by who dials.
  lose(a, b, false, "connected anew");
  lose(b, a, false, "connected anew");
  ++connections_;
  for (const auto& [at, peer] : {std::pair(a, b), std::pair(b, a)}) {
    House& house = *houses_[at];
    house.links[peer] = connections_;
    house.watch.add(overlay_.name_at(peer), now);
  }
  for (const auto& [at, peer] : {std::pair(a, b), std::pair(b, a)}) {
    net(at).link_up(overlay_.name_at(peer), houses_[peer]->boot, true, now);
    up_at(at, peer);
  }
}

void PeerTown::lose(uint32_t at, uint32_t link, bool silent, const std::string& why) {
  House& house = *houses_[at];
  if (house.links.erase(link) == 0) return;
  house.watch.remove(overlay_.name_at(link));
  net(at).link_lost(overlay_.name_at(link), silent, why, now);
  down_at(at, {link, silent, why, now});
}

void PeerTown::post(OnTheWay message) {
  message.at = now + kHop;
  on_the_way_.push_back(std::move(message));
}

void PeerTown::arrive(const OnTheWay& message) {
  House& house = *houses_[message.to];
  const auto link = house.links.find(message.from);
  if (!house.alive || link == house.links.end() || link->second != message.connection) return;
  if (message.what == OnTheWay::What::kClosed) {
    return lose(message.to, message.from, false, "connection closed");
  }
  if (!passes(message.from, message.to)) return;
  const std::string& name = overlay_.name_at(message.from);
  house.watch.heard(name, now);
  switch (message.what) {
    case OnTheWay::What::kHeartbeat:
    case OnTheWay::What::kClosed:
      return;
    case OnTheWay::What::kParcel:
      return house.net.on_parcel(name, *message.parcel, now);
    case OnTheWay::What::kNotices:
      return house.net.on_notices(name, message.notices, now);
    case OnTheWay::What::kDirect:
      if (on_message) return on_message(message.to, message.from, message.body);
      house.got.emplace_back(message.from, message.body);
  }
}

void PeerTown::kill(uint32_t place, bool silent) {
  House& house = *houses_[place];
  house.alive = false;
  if (silent) return;
  for (const auto& [link, connection] : house.links) {
    post({0, place, link, connection, OnTheWay::What::kClosed, nullptr, {}, std::string()});
  }
}

void PeerTown::start(uint32_t place) {
  houses_[place] = std::make_unique<House>(this, place, ++boots_);
}

void PeerTown::cut_off(uint32_t place) {
  for (const uint32_t link : overlay_.links_of(place)) cut(place, link);
}

void PeerTown::close(uint32_t a, uint32_t b) {
  lose(a, b, false, "connection closed");
  lose(b, a, false, "connection closed");
}

bool PeerTown::send(uint32_t from, uint32_t to, const std::string& body) {
  House& house = *houses_[from];
  const auto link = house.links.find(to);
  if (!overlay_.linked(from, to)) return house.net.send(overlay_.name_at(to), body, now);
  if (link == house.links.end()) return false;
  ++house.sent.direct;
  post({0, from, to, link->second, OnTheWay::What::kDirect, nullptr, {}, body});
  return true;
}

bool PeerTown::up(uint32_t at, uint32_t peer) const {
  const House& house = *houses_[at];
  if (overlay_.linked(at, peer)) return house.links.count(peer) > 0;
  return house.net.relayed_is_up(overlay_.name_at(peer));
}

bool PeerTown::all_up() const {
  for (uint32_t at = 0; at < count(); ++at) {
    for (uint32_t peer = 0; peer < count(); ++peer) {
      if (at != peer && alive(at) && alive(peer) && !up(at, peer)) return false;
    }
  }
  return true;
}

void PeerTown::up_at(uint32_t at, uint32_t peer) {
  if (on_up) on_up(at, peer);
}

void PeerTown::down_at(uint32_t at, const Loss& loss) {
  if (on_down) return on_down(at, loss);
  houses_[at]->losses.push_back(loss);
}

}  // namespace gradring::core
