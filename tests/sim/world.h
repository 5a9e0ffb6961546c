#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "daemon/core/random.h"
#include "tests/sim/events.h"
#include "tests/sim/node.h"
#include "tests/sim/scenario.h"
#include "tests/sim/trainer.h"

namespace gradring::sim {

struct Stats {
  uint64_t events = 0;
  uint64_t completions = 0;
  uint64_t slices = 0;
  uint64_t mismatches = 0;
  uint64_t faults = 0;
  uint64_t jobs_failed = 0;
  uint64_t refused = 0;
  uint64_t trainers_done = 0;
};

// A cluster in one thread. Runs one scenario to its end and watches over what must always hold:
//  - an op that ended well has the bits of the reference fold on every rank,
//  - every submission ends exactly once, and everything ends (bounded virtual time),
//  - no slice moves before all ranks submitted; no slot beyond the credits; no slice of a failed op
//    is half-written,
//  - nothing fails without a cause that was put in, and nothing is left behind.
class World {
 public:
  explicit World(const Scenario& scenario);

  // The first violation, or empty.
  std::string run();
  Stats& stats() { return stats_; }

  const Scenario& scenario() const { return scenario_; }
  Events& events() { return events_; }
  core::Random& random() { return random_; }
  SimNode& node(uint32_t index) { return *nodes_[index]; }
  uint32_t index_of(const std::string& node) const {
    return static_cast<uint32_t>(std::stoul(node.substr(1)));
  }
  Time delay(Time most) {
    return 1 + static_cast<Time>(random_.below(static_cast<uint64_t>(most)));
  }
  void after(Time most, std::function<void()> what) { events_.in(delay(most), std::move(what)); }

  void send_control(uint32_t from, uint32_t to, const core::JobMessage& message);
  void send_data(uint32_t from, uint32_t to, const Frame& frame,
                 const std::vector<std::byte>& payload);

  core::SessionId new_session(Trainer* trainer);
  Trainer* trainer_of(core::SessionId session) { return sessions_.at(session); }

  // Equal on all ranks of one life of a job, and of no other.
  uint64_t seed_of(const JobId& job, uint32_t op, uint32_t step) const {
    uint64_t seed = scenario_.seed;
    for (const uint8_t byte : job) seed = seed * 257 + byte;
    return (seed * 64 + op) * 64 + step;
  }
  // The documented order of summation: a slice's first member folds its ranks ascending in one
  // pass, then each member around the ring folds its own onto that.
  const std::vector<std::byte>& expected(const core::View& view, const OpKey& key,
                                         const Signature& signature, uint64_t seed);
  void note_submitted(const core::View& view, const OpKey& key);
  bool all_submitted(const core::View& view, const OpKey& key) const;
  void note_mismatched(const JobId& job, const OpKey& key) { mismatched_.insert({job, key}); }
  bool was_mismatched(const JobId& job, const OpKey& key) const {
    return mismatched_.count({job, key}) > 0;
  }

  void job_failed(const Trainer& trainer, const Failure& failure);
  void job_refused(const Trainer& trainer, const Status& why);
  void violation(const std::string& what);
  // True where the scenario's sabotage strikes; now and then, not always.
  bool sabotaged(Sabotage kind) { return scenario_.sabotage == kind && random_.below(20) == 0; }

 private:
  struct Link {
    bool up = true;
    uint64_t generation = 0;
    Fifo control;
    Fifo data;
  };
  struct OpId {
    JobId job{};
    OpKey key;
    auto operator<=>(const OpId&) const = default;
  };

  Link& link(uint32_t from, uint32_t to) { return links_[from * scenario_.nodes + to]; }
  void connect(uint32_t a, uint32_t b);
  void break_link(uint32_t a, uint32_t b, bool heals);
  void strike(const Fault& fault);
  void keep_ticking();
  bool all_over() const;
  void check_end();
  std::string jobs_at(uint32_t node) const;
  bool faulty() const { return !scenario_.faults.empty(); }

  const Scenario scenario_;
  core::Random random_;
  Events events_;
  Stats stats_;
  std::vector<std::unique_ptr<SimNode>> nodes_;
  std::vector<Link> links_;
  std::vector<std::unique_ptr<Trainer>> trainers_;
  std::vector<std::vector<Trainer*>> trainers_of_job_;
  std::map<core::SessionId, Trainer*> sessions_;
  std::map<OpId, std::vector<std::byte>> expected_;
  std::map<OpId, uint32_t> submitted_;
  std::set<OpId> mismatched_;
  std::string violation_;
};

}  // namespace gradring::sim
