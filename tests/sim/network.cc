// The network, and what befalls it.

#include <algorithm>

#include "tests/sim/world.h"

namespace gradring::sim {
namespace {

constexpr Time kGoodbye =
    20 * core::kMillisecond;  // until the other end of a closed connection knows

// From the word to stop until a daemon has ended, at most: 1 s for its buffers and 0.2 s for words.
constexpr Time kStopTime = 1200 * core::kMillisecond;

// How long daemons wait for one that restarts, and it for them.
constexpr Time kRestartGrace = 10 * core::kSecond;

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
        node->membership().peer_up(nodes_[other]->name());
      });
    });
  }
}

// Nothing goes that way any more, and what is under way is lost.
void World::cut(uint32_t from, uint32_t to) {
  link(from, to).up = false;
  ++link(from, to).generation;
}

// A node notices that a connection broke, or closes it, and the other end learns of that if it can.
void World::lose(uint32_t self, uint32_t peer, Cause cause, Time within) {
  SimNode* node = nodes_[self].get();
  const uint64_t connection = link(self, peer).connection;
  events_.in(within, [this, node, self, peer, cause, connection] {
    node->run([this, node, self, peer, cause, connection] {
      Link& mine = link(self, peer);
      if (mine.connection != connection || !std::exchange(mine.open, false)) return;
      trace([&] { return node->name() + " has lost n" + std::to_string(peer); });
      // What was sent before may yet arrive; nothing is taken from there any more.
      if (std::exchange(mine.up, false)) lose(peer, self, Cause::kPeerLost, delay(kGoodbye));
      cut(peer, self);
      node->membership().peer_lost("n" + std::to_string(peer), cause, "the link broke");
    });
  });
}

void World::heal(uint32_t a, uint32_t b, Time when) {
  events_.in(when, [this, a, b] {
    if (!nodes_[a]->alive() || !nodes_[b]->alive()) return;
    if (link(a, b).up || link(b, a).up) return;
    const Time held = link(std::min(a, b), std::max(a, b)).held_until;
    if (held > events_.now()) return heal(a, b, held - events_.now());
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

void World::crash(const Fault& fault) {
  SimNode& node = *nodes_[fault.a];
  if (!node.alive()) return;
  ++stats_.faults;
  node.crash(false);
  trace([&] { return node.name() + " is dead"; });
  doomed_.erase(fault.a);
  // What it had said may arrive, or die with it.
  const bool speaks = fault.kind == FaultKind::kDieSpeaking || fault.kind == FaultKind::kStop;
  const bool arrives = speaks || random_.below(2) == 0;
  for (const auto& trainer : trainers_) {
    if (trainer->node() == fault.a) trainer->kill();
  }
  const Cause cause = fault.detected > core::kSecond ? Cause::kPeerSilent : Cause::kPeerLost;
  Time known = 0;
  for (uint32_t other = 0; other < scenario_.nodes; ++other) {
    if (other == fault.a) continue;
    if (arrives) {
      link(fault.a, other).up = false;
    } else {
      cut(fault.a, other);
    }
    cut(other, fault.a);
    const Time when = delay(fault.detected);
    known = std::max(known, when);
    if (nodes_[other]->alive()) lose(other, fault.a, cause, when);
  }
  if (fault.lasts != 0) bear_again(fault, std::max(known, fault.lasts) + delay(core::kSecond));
}

// Jobs end there, and all that is said of that arrives. Its trainers go with it.
void World::stop(const Fault& fault) {
  SimNode* node = nodes_[fault.a].get();
  if (!node->alive() || node->paused()) return;
  ++stats_.faults;
  ++stats_.stops;
  Failure failure{Cause::kDrained, {}};
  failure.blame.node = node->name();
  failure.blame.evidence = "the daemon was told to stop";
  node->run([node, failure] { node->membership().shut_down(failure); });
  after(kStopTime, [this, node, fault] {
    if (nodes_[fault.a].get() == node) crash(fault);
  });
}

SimNode& World::next_life(uint32_t index) {
  graves_.push_back(std::move(nodes_[index]));
  nodes_[index] = std::make_unique<SimNode>(this, index, graves_.size());
  for (uint32_t other = 0; other < scenario_.nodes; ++other) {
    if (other == index) continue;
    link(index, other).open = false;
    heal(index, other, 1);
  }
  return *nodes_[index];
}

// A new daemon in its place. It knows nothing, or what the last one has promised, and can speak for
// that (rule R2); its data and the trainers are gone in any case.
void World::bear_again(const Fault& fault, Time when) {
  const uint32_t index = fault.a;
  events_.in(when, [this, index, remembers = fault.remembers] {
    if (nodes_[index]->alive()) return;
    SimNode& node = next_life(index);
    trace([&] { return node.name() + " is born again"; });
    std::erase_if(known_, [index](const auto& entry) { return entry.first.second == index; });
    if (remembers) {
      ++stats_.witnesses;
      node.testify(*graves_.back());
    }
    for (const auto& trainer : trainers_) {
      if (trainer->node() == index) trainer->reborn();
    }
  });
}

// A job that had ended for a node left no record, so its next life does not know how that came.
void World::forget_ended(uint32_t index) {
  std::erase_if(known_, [&](const auto& entry) {
    return entry.first.second == index && !nodes_[index]->has_record(entry.first.first);
  });
}

// Whom it does not reach in time the new life of a daemon takes for lost.
void World::expect_others(uint32_t index) {
  SimNode* node = nodes_[index].get();
  for (uint32_t other = 0; other < scenario_.nodes; ++other) {
    if (other == index || !node->expects("n" + std::to_string(other))) continue;
    const uint64_t connection = link(index, other).connection;
    events_.in(kRestartGrace, [this, node, index, other, connection] {
      node->run([this, node, index, other, connection] {
        if (link(index, other).connection != connection) return;
        node->membership().peer_lost("n" + std::to_string(other), Cause::kPeerLost,
                                     "was not met again after the restart");
      });
    });
  }
}

// The daemon alone ends; its trainers wait for the next one, and the other daemons likewise.
void World::restart(const Fault& fault) {
  const uint32_t index = fault.a;
  SimNode& gone = *nodes_[index];
  if (!gone.alive() || gone.paused()) return;
  ++stats_.faults;
  ++stats_.restarts;
  for (const auto& trainer : trainers_) {
    if (trainer->node() != index) continue;
    if (trainer->state() < Trainer::State::kTraining) ++stats_.restarts_while_forming;
    trainer->detach();
  }
  gone.crash(true);
  trace([&] { return gone.name() + " restarts"; });
  doomed_.erase(index);
  const bool arrives = random_.below(2) == 0;
  for (uint32_t other = 0; other < scenario_.nodes; ++other) {
    if (other == index) continue;
    if (arrives) {
      link(index, other).up = false;
    } else {
      cut(index, other);
    }
    cut(other, index);
    if (nodes_[other]->alive()) miss(other, index, delay(fault.detected));
  }
  events_.in(fault.lasts, [this, index] { come_back(index); });
}

// A connection closed whose other end may come back: it is waited for.
void World::miss(uint32_t self, uint32_t peer, Time within) {
  SimNode* node = nodes_[self].get();
  const uint64_t connection = link(self, peer).connection;
  events_.in(within, [this, node, self, peer, connection] {
    node->run([this, node, self, peer, connection] {
      if (link(self, peer).connection != connection || !link(self, peer).open) return;
      link(self, peer).open = link(self, peer).up = false;
      cut(peer, self);
      const std::string name = "n" + std::to_string(peer);
      trace([&] { return node->name() + " waits for " + name + " to restart"; });
      node->membership().peer_away(name);
      events_.in(kRestartGrace, [this, node, self, peer, connection, name] {
        node->run([this, node, self, peer, connection, name] {
          if (link(self, peer).connection != connection) return;
          trace([&] { return node->name() + " waits for " + name + " no more"; });
          node->membership().peer_lost(name, Cause::kPeerLost, "did not come back");
        });
      });
    });
  });
}

void World::come_back(uint32_t index) {
  SimNode& node = next_life(index);
  trace([&] { return node.name() + " is back"; });
  node.remember(*graves_.back());
  forget_ended(index);
  expect_others(index);
  for (const core::SessionId session : node.known_sessions()) {
    if (trainer_of(session)->session() == session) continue;
    node.run([&node, session] {
      node.membership().session_lost(session, "did not attach to the restarted daemon");
    });
  }
  for (const auto& trainer : trainers_) {
    if (trainer->node() != index) continue;
    after(20 * core::kMillisecond, [this, index, t = trainer.get(), life = trainer->life()] {
      if (nodes_[index]->alive() && t->life() == life) t->reattach();
    });
  }
}

// Nobody there notices; the others do, if it lasts.
void World::pause(const Fault& fault) {
  SimNode* node = nodes_[fault.a].get();
  if (!node->alive() || node->paused()) return;
  ++stats_.faults;
  node->pause();
  const Time lasts = fault.lasts == 0 ? 5 * core::kSecond : fault.lasts;
  for (uint32_t other = 0; other < scenario_.nodes; ++other) {
    if (other == fault.a || !nodes_[other]->alive() || !link(other, fault.a).up) continue;
    const Time known = 100 * core::kMillisecond + delay(fault.detected);
    if (known >= lasts) continue;
    lose(other, fault.a, Cause::kPeerSilent, known);
    heal(fault.a, other, lasts + 30 * core::kMillisecond + delay(core::kSecond));
  }
  events_.in(lasts, [this, node] {
    trace([&] { return node->name() + " goes on"; });
    for (uint32_t other = 0; other < scenario_.nodes; ++other) {
      link(node->index(), other).disturbed = events_.now();
    }
    node->resume();
  });
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

void World::send_control(uint32_t from, uint32_t to, const core::JobMessage& message) {
  Link& l = link(from, to);
  if (!l.up) return;
  const bool of_change = message.index() > 7;
  const auto doom = of_change ? doomed_.find(from) : doomed_.end();
  if (doom != doomed_.end() && doom->second.words-- == 0) {
    const Fault fault = doom->second;
    return fault.kind == FaultKind::kDieSpeaking ? crash(fault) : restart(fault);
  }
  if (const auto* accept = std::get_if<core::change::Accept>(&message)) oracle_.note_asked(*accept);
  const bool late = scenario_.late_percent > 0 && random_.below(100) < scenario_.late_percent;
  l.control.send(&events_, delay(late ? scenario_.late_max : scenario_.latency_max),
                 [this, from, to, generation = l.generation, message] {
                   if (link(from, to).generation == generation) deliver_control(from, to, message);
                 });
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
