#include "tests/sim/world.h"

#include <algorithm>

#include "tests/sim/arithmetic.h"

namespace gradring::sim {
namespace {

// Everything must have ended long before: formation gives up after 300 s, lost peers are known
// after 3 s.
constexpr Time kEnd = 1500 * core::kSecond;
constexpr Time kTick = 250 * core::kMillisecond;

}  // namespace

World::World(const Scenario& scenario) : scenario_(scenario), random_(scenario.seed) {
  links_.resize(size_t{scenario_.nodes} * scenario_.nodes);
  for (uint32_t i = 0; i < scenario_.nodes; ++i)
    nodes_.push_back(std::make_unique<SimNode>(this, i));
  for (uint32_t a = 0; a < scenario_.nodes; ++a) {
    for (uint32_t b = a + 1; b < scenario_.nodes; ++b) connect(a, b);
  }
  for (uint32_t j = 0; j < scenario_.jobs.size(); ++j) {
    trainers_of_job_.emplace_back();
    for (uint32_t r = 0; r < scenario_.jobs[j].node_of_rank.size(); ++r) {
      trainers_.push_back(std::make_unique<Trainer>(this, j, r));
      trainers_of_job_.back().push_back(trainers_.back().get());
      after(60 * core::kMillisecond, [t = trainers_.back().get()] { t->start(); });
    }
  }
  for (const Fault& fault : scenario_.faults) {
    events_.at(fault.at, [this, fault] { strike(fault); });
  }
  events_.in(kTick, [this] { keep_ticking(); });
}

std::string World::run() {
  while (!events_.empty() && violation_.empty()) {
    if (events_.now() > kEnd) {
      check_end();
      violation("events go on although everything has ended");
      break;
    }
    events_.step();
  }
  if (violation_.empty()) check_end();
  stats_.events = events_.executed();
  return violation_;
}

// Time passes for the daemons as long as anything is under way.
void World::keep_ticking() {
  for (const auto& node : nodes_) {
    if (node->alive()) node->tick();
  }
  const bool idle = all_over() && std::all_of(nodes_.begin(), nodes_.end(), [](const auto& node) {
                      return !node->alive() || node->engines() == 0;
                    });
  if (!idle) events_.in(kTick, [this] { keep_ticking(); });
}

bool World::all_over() const {
  return std::all_of(trainers_.begin(), trainers_.end(), [](const auto& t) { return t->over(); });
}

std::string World::jobs_at(uint32_t node) const {
  std::string text;
  for (const core::JobInfo& job : nodes_[node]->membership().jobs()) {
    text += "; " + job.name + " " + name_of(job.state) + ": " + job.explanation;
  }
  return text;
}

void World::check_end() {
  for (const auto& trainer : trainers_) {
    if (!trainer->over()) {
      violation(trainer->name() + " on n" + std::to_string(trainer->node()) +
                " never ends: " + trainer->doing());
    }
  }
  for (const auto& node : nodes_) {
    if (!node->alive()) continue;
    if (node->engines() != 0) violation(node->name() + " keeps an engine of an ended job");
    for (const core::JobInfo& job : node->membership().jobs()) {
      if (job.state != core::JobState::kEnded && job.state != core::JobState::kFailed) {
        violation(node->name() + " keeps job " + job.name + " as " + name_of(job.state));
      }
    }
    if (node->membership().busy_jobs() != 0) violation(node->name() + " is busy at the end");
  }
}

void World::connect(uint32_t a, uint32_t b) {
  const uint64_t generation = ++link(a, b).generation;
  link(b, a).generation = generation;
  link(a, b).up = link(b, a).up = true;
  for (const auto& [self, other] : {std::pair(a, b), std::pair(b, a)}) {
    after(100 * core::kMillisecond, [this, self = self, other = other, generation] {
      if (!nodes_[self]->alive() || link(self, other).generation != generation) return;
      nodes_[self]->membership().peer_up(nodes_[other]->name());
    });
  }
}

void World::break_link(uint32_t a, uint32_t b, bool heals) {
  if (!link(a, b).up) return;
  link(a, b).up = link(b, a).up = false;
  ++link(a, b).generation;
  ++link(b, a).generation;
  const Cause cause = random_.below(2) == 0 ? Cause::kPeerLost : Cause::kPeerSilent;
  for (const auto& [self, other] : {std::pair(a, b), std::pair(b, a)}) {
    after(3 * core::kSecond, [this, self = self, other = other, cause] {
      if (nodes_[self]->alive()) {
        nodes_[self]->membership().peer_lost(nodes_[other]->name(), cause, "the link broke");
      }
    });
  }
  if (!heals) return;
  events_.in(3 * core::kSecond + delay(5 * core::kSecond), [this, a, b] {
    if (nodes_[a]->alive() && nodes_[b]->alive()) connect(a, b);
  });
}

void World::strike(const Fault& fault) {
  switch (fault.kind) {
    case FaultKind::kCrashNode:
      if (!nodes_[fault.a]->alive()) return;
      ++stats_.faults;
      nodes_[fault.a]->crash();
      for (const auto& trainer : trainers_) {
        if (trainer->node() == fault.a) trainer->kill();
      }
      for (uint32_t other = 0; other < scenario_.nodes; ++other) {
        if (other != fault.a) break_link(fault.a, other, false);
      }
      return;
    case FaultKind::kBreakLink:
      ++stats_.faults;
      return break_link(fault.a, fault.b, fault.heals);
    case FaultKind::kKillTrainer:
      ++stats_.faults;
      return trainers_of_job_[fault.a][fault.b]->kill();
  }
}

void World::send_control(uint32_t from, uint32_t to, const core::JobMessage& message) {
  Link& l = link(from, to);
  if (!l.up) return;
  l.control.send(
      &events_, delay(scenario_.latency_max), [this, from, to, generation = l.generation, message] {
        if (link(from, to).generation != generation || !nodes_[to]->alive()) return;
        nodes_[to]->membership().on_message(nodes_[from]->name(), message, events_.now());
      });
}

void World::send_data(uint32_t from, uint32_t to, const Frame& frame,
                      const std::vector<std::byte>& payload) {
  Link& l = link(from, to);
  if (!l.up) return;
  const auto arrive = [this, from, to, generation = l.generation, frame, payload] {
    if (link(from, to).generation != generation || !nodes_[to]->alive()) return;
    nodes_[to]->on_data(from, frame, payload);
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

core::SessionId World::new_session(Trainer* trainer) {
  const core::SessionId session = sessions_.size() + 1;
  sessions_[session] = trainer;
  return session;
}

void World::note_submitted(const core::View& view, const OpKey& key) {
  ++submitted_[{view.incarnation, key}];
}

bool World::all_submitted(const core::View& view, const OpKey& key) const {
  const auto it = submitted_.find({view.incarnation, key});
  return it != submitted_.end() && it->second == view.size;
}

const std::vector<std::byte>& World::expected(const core::View& view, const OpKey& key,
                                              const Signature& s, uint64_t seed) {
  std::vector<std::byte>& result = expected_[{view.incarnation, key}];
  if (!result.empty()) return result;
  std::vector<std::vector<std::byte>> inputs(view.size, std::vector<std::byte>(s.bytes()));
  for (uint32_t rank = 0; rank < view.size; ++rank)
    fill(s.dtype, seed, rank, s.count, inputs[rank].data());
  if (s.collective == Collective::kBroadcast) return result = inputs[s.root];
  result.resize(s.bytes());
  const auto n = static_cast<uint32_t>(view.members.size());
  const uint32_t slice_bytes = core::slice_bytes_for(s, n, scenario_.engine.plan);
  for (uint64_t offset = 0, slice = 0; offset < s.bytes(); offset += slice_bytes, ++slice) {
    const size_t count = std::min<uint64_t>(slice_bytes, s.bytes() - offset) / size_of(s.dtype);
    for (uint32_t hop = 0; hop < n; ++hop) {
      std::vector<const std::byte*> terms;
      for (const core::RankInfo& info : view.members[(slice + hop) % n].ranks) {
        terms.push_back(inputs[info.rank].data() + offset);
      }
      const bool divide = s.op == ReduceOp::kAverage && hop == n - 1;
      fold(s.dtype, s.op, hop == 0, terms, count, divide ? view.size : 0, result.data() + offset);
    }
  }
  return result;
}

void World::job_failed(const Trainer& trainer, const Failure& failure) {
  ++stats_.jobs_failed;
  const auto has = [this](FaultKind kind) {
    return std::any_of(scenario_.faults.begin(), scenario_.faults.end(),
                       [kind](const Fault& fault) { return fault.kind == kind; });
  };
  bool planned = false;
  switch (failure.cause) {
    case Cause::kTrainerDied:
      planned = has(FaultKind::kKillTrainer);
      break;
    case Cause::kPeerLost:
    case Cause::kPeerSilent:
      planned = has(FaultKind::kCrashNode) || has(FaultKind::kBreakLink);
      break;
    case Cause::kTrainerLeft:
      planned = std::any_of(scenario_.jobs.begin(), scenario_.jobs.end(),
                            [](const JobSpec& job) { return job.early_leaver.has_value(); });
      break;
    default:
      break;
  }
  if (!planned) violation(trainer.name() + " failed without a cause: " + describe(failure));
}

void World::job_refused(const Trainer& trainer, const Status& why) {
  ++stats_.refused;
  // In a second life the ranks that had left in good order do not come back, and the others wait in
  // vain.
  if (!faulty() && trainer.life() == 1)
    violation(trainer.name() + " was refused without a fault: " + why.message());
}

void World::violation(const std::string& what) {
  if (violation_.empty()) violation_ = "at " + std::to_string(events_.now()) + " ns: " + what;
}

}  // namespace gradring::sim
