// How daemons end, by themselves or with all of their node, and what comes in their place.

#include <algorithm>
#include <utility>

#include "tests/sim/world.h"

namespace gradring::sim {
namespace {

// From the word to stop until a daemon has ended, at most: 1 s for its buffers and 0.2 s for words.
constexpr Time kStopTime = 1200 * core::kMillisecond;

}  // namespace

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
    const bool sees = are_connected(fault.a, other);
    if (arrives) {
      link(fault.a, other).up = false;
    } else {
      cut(fault.a, other);
    }
    cut(other, fault.a);
    const Time when = delay(fault.detected);
    known = std::max(known, when);
    if (sees && nodes_[other]->alive()) lose(other, fault.a, cause, when);
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
    const bool sees = are_connected(index, other);
    if (arrives) {
      link(index, other).up = false;
    } else {
      cut(index, other);
    }
    cut(other, index);
    const Time when = delay(fault.detected);
    if (sees && nodes_[other]->alive()) miss(other, index, when);
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
      if (is_relayed(self, peer)) return node->peers()->lose(peer, false);
      link(self, peer).open = link(self, peer).up = false;
      cut(peer, self);
      if (has_overlay()) node->peers()->link_lost(peer, false);
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

}  // namespace gradring::sim
