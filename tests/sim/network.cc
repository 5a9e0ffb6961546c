// The network, and what befalls it.

#include <algorithm>

#include "tests/sim/world.h"

namespace gradring::sim {
namespace {

constexpr Time kGoodbye =
    20 * core::kMillisecond;  // until the other end of a closed connection knows

std::string way(uint32_t from, uint32_t to) {
  return "n" + std::to_string(from) + " -> n" + std::to_string(to) + " ";
}

}  // namespace

void World::connect(uint32_t a, uint32_t b) {
  for (const auto& [self, other] : {std::pair(a, b), std::pair(b, a)}) {
    Link& l = link(self, other);
    l.up = l.open = true;
    l.broken.reset();
    l.disturbed = events_.now();
    ++l.generation;
    const uint64_t connection = ++l.connection;
    SimNode* node = nodes_[self].get();
    after(kGoodbye, [this, node, self = self, other = other, connection] {
      node->run([this, node, self, other, connection] {
        if (link(self, other).connection != connection || !link(self, other).open) return;
        trace([&] { return node->name() + " is connected to n" + std::to_string(other); });
        if (has_overlay()) node->peers()->link_up(other);
        node->membership().peer_up(nodes_[other]->name());
      });
    });
  }
}

// Nothing goes that way any more, and what is under way is lost.
void World::cut(uint32_t from, uint32_t to) {
  link(from, to).up = false;
  ++link(from, to).generation;
  if (has_overlay()) link(from, to).disturbed = events_.now();
}

// A node notices that a connection broke, or closes it, and the other end learns of that if it can.
void World::lose(uint32_t self, uint32_t peer, Cause cause, Time within) {
  SimNode* node = nodes_[self].get();
  const uint64_t connection = link(self, peer).connection;
  events_.in(within, [this, node, self, peer, cause, connection] {
    node->run([this, node, self, peer, cause, connection] {
      Link& mine = link(self, peer);
      if (mine.connection != connection || !mine.open) return;
      if (is_relayed(self, peer)) return node->peers()->lose(peer, cause == Cause::kPeerSilent);
      mine.open = false;
      trace([&] { return node->name() + " has lost n" + std::to_string(peer); });
      // What was sent before may yet arrive; nothing is taken from there any more.
      if (std::exchange(mine.up, false)) lose(peer, self, Cause::kPeerLost, delay(kGoodbye));
      cut(peer, self);
      if (has_overlay()) node->peers()->link_lost(peer, cause == Cause::kPeerSilent);
      node->membership().peer_lost("n" + std::to_string(peer), cause, "the link broke");
    });
  });
}

void World::heal(uint32_t a, uint32_t b, Time when) {
  events_.in(when, [this, a, b] {
    if (!nodes_[a]->alive() || !nodes_[b]->alive()) return;
    const bool relayed = is_relayed(a, b);
    if (!relayed && (link(a, b).up || link(b, a).up)) return;
    const Time held = link(std::min(a, b), std::max(a, b)).held_until;
    if (held > events_.now()) return heal(a, b, held - events_.now());
    if (relayed) {
      link(a, b).data_cut = link(b, a).data_cut = false;
      return;
    }
    // A node greets nobody anew before it has noticed that the old connection is no more.
    if (link(a, b).open || link(b, a).open || nodes_[a]->paused() || nodes_[b]->paused()) {
      return heal(a, b, 100 * core::kMillisecond);
    }
    connect(a, b);
  });
}

void World::break_link(uint32_t a, uint32_t b, const Fault& fault) {
  Time& held = link(std::min(a, b), std::max(a, b)).held_until;
  if (fault.lasts != 0) held = std::max(held, events_.now() + fault.lasts);
  if (is_relayed(a, b)) return break_data(a, b, fault);
  if (!link(a, b).up && !link(b, a).up) return;
  const bool one_way = fault.kind == FaultKind::kOneWay;
  cut(b, a);
  if (!one_way) cut(a, b);
  const Cause cause = fault.detected > core::kSecond ? Cause::kPeerSilent : Cause::kPeerLost;
  const Time at_a = delay(fault.detected);
  const Time at_b = one_way ? at_a + kGoodbye : delay(fault.detected);
  lose(a, b, cause, at_a);
  lose(b, a, cause, at_b);
  if (fault.lasts != 0) heal(a, b, std::max({at_a, at_b, fault.lasts}) + delay(core::kSecond));
}

void World::strike(const Fault& fault) {
  trace([&] { return "FAULT " + describe(fault); });
  switch (fault.kind) {
    case FaultKind::kCrashNode:
      return crash(fault);
    case FaultKind::kDieSpeaking:
    case FaultKind::kRestartSpeaking:
      if (nodes_[fault.a]->alive()) doomed_[fault.a] = fault;
      return;
    case FaultKind::kBreakLink:
    case FaultKind::kOneWay:
      ++stats_.faults;
      return break_link(fault.a, fault.b, fault);
    case FaultKind::kPartition:
      ++stats_.faults;
      for (uint32_t a = 0; a < scenario_.nodes; ++a) {
        for (uint32_t b = a + 1; b < scenario_.nodes; ++b) {
          if ((fault.mask >> a & 1) != (fault.mask >> b & 1)) break_link(a, b, fault);
        }
      }
      return;
    case FaultKind::kSuspect:
      if (!link(fault.a, fault.b).up || !link(fault.b, fault.a).up) return;
      ++stats_.faults;
      lose(fault.a, fault.b, Cause::kPeerSilent, 0);
      return heal(fault.a, fault.b, delay(100 * core::kMillisecond));
    case FaultKind::kLoseLane:
      return lose_lane(fault);
    case FaultKind::kStall:
      ++stats_.faults;
      link(fault.a, fault.b).control.send(&events_, fault.lasts, [] {});
      if (fault.mask % 2 == 0) link(fault.a, fault.b).data.send(&events_, fault.lasts, [] {});
      link(fault.a, fault.b).disturbed = events_.now() + fault.lasts;
      return;
    case FaultKind::kDamage:
      ++stats_.faults;
      link(fault.a, fault.b).damage_percent = fault.percent;
      link(fault.a, fault.b).damage_until = events_.now() + fault.lasts;
      return;
    case FaultKind::kStop:
      return stop(fault);
    case FaultKind::kPauseNode:
      return pause(fault);
    case FaultKind::kRestart:
      return restart(fault);
    case FaultKind::kKillTrainer:
      ++stats_.faults;
      return trainers_of_job_[fault.a][fault.b]->kill();
  }
}

void World::deliver_control(uint32_t from, uint32_t to, const core::JobMessage& message) {
  SimNode* node = nodes_[to].get();
  trace([&] { return way(from, to) + describe(message) + (node->alive() ? "" : ", to the dead"); });
  node->run([this, node, from, message] {
    node->membership().on_message("n" + std::to_string(from), message, events_.now());
  });
}

// In the order in which it was sent, or not at all.
void World::carry(uint32_t from, uint32_t to, std::function<void()> deliver) {
  Link& l = link(from, to);
  if (!l.up) return;
  const bool late = scenario_.late_percent > 0 && random_.below(100) < scenario_.late_percent;
  l.control.send(&events_, delay(late ? scenario_.late_max : scenario_.latency_max),
                 [this, from, to, generation = l.generation, deliver = std::move(deliver)] {
                   if (link(from, to).generation == generation) deliver();
                 });
}

void World::send_control(uint32_t from, uint32_t to, const core::JobMessage& message) {
  Link& l = link(from, to);
  const bool relayed = is_relayed(from, to);
  if (relayed ? !l.open : !l.up) return;
  const bool of_change = message.index() > 7;
  const auto doom = of_change ? doomed_.find(from) : doomed_.end();
  if (doom != doomed_.end() && doom->second.words-- == 0) {
    const Fault fault = doom->second;
    return fault.kind == FaultKind::kDieSpeaking ? crash(fault) : restart(fault);
  }
  if (const auto* accept = std::get_if<core::change::Accept>(&message)) oracle_.note_asked(*accept);
  if (relayed) return nodes_[from]->peers()->send(to, message);
  carry(from, to, [this, from, to, message] { deliver_control(from, to, message); });
  // Messages of a view change may come at any time and any number of times.
  if (!of_change || random_.below(100) >= scenario_.stale_percent) return;
  events_.in(delay(400 * core::kMillisecond), [this, from, to, message] {
    if (link(from, to).up) deliver_control(from, to, message);
  });
}

void World::damage(uint32_t from, uint32_t to, std::vector<std::byte>* bytes) {
  const Link& l = link(from, to);
  if (events_.now() >= l.damage_until || random_.below(100) >= l.damage_percent) return;
  (*bytes)[random_.below(bytes->size())] ^= std::byte{1} << random_.below(8);
  ++stats_.damaged;
  trace([&] { return way(from, to) + "damages a slice"; });
}

void World::send_data(uint32_t from, uint32_t to, const Frame& sent, Payload payload) {
  Link& l = link(from, to);
  if (!l.up) return;
  Frame frame = sent;
  frame.ready.signature.blocks = Blocks::told(sent.ready.signature.blocks.digest());
  const uint32_t lane = lane_for(l, frame);
  if (l.broken == lane) return;
  const auto arrive = [this, from, to, generation = l.generation, lane,
                       swallowed = l.lane_generation[lane], frame, payload = std::move(payload)] {
    const Link& now = link(from, to);
    if (now.generation != generation || now.lane_generation[lane] != swallowed) return;
    SimNode* node = nodes_[to].get();
    trace([&] { return way(from, to) + describe(frame); });
    node->run([node, from, frame, payload] { node->on_data(from, frame, payload); });
  };
  const int copies = random_.below(100) < scenario_.duplicate_percent ? 2 : 1;
  for (int i = 0; i < copies; ++i) {
    if (scenario_.reorder_data || i > 0) {
      after(scenario_.latency_max, arrive);
    } else {
      l.data.send(&events_, delay(scenario_.latency_max), arrive);
    }
  }
}

}  // namespace gradring::sim
