#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "daemon/core/overlay.h"
#include "daemon/core/random.h"
#include "tests/sim/events.h"
#include "tests/sim/node.h"
#include "tests/sim/oracle.h"
#include "tests/sim/scenario.h"
#include "tests/sim/trace.h"
#include "tests/sim/trainer.h"

namespace gradring::sim {

struct Stats {
  uint64_t events = 0;
  uint64_t completions = 0;
  uint64_t slices = 0;
  uint64_t mismatches = 0;
  uint64_t faults = 0;
  uint64_t views = 0;  // entered, after the first
  uint64_t shrunk = 0;
  uint64_t grown = 0;
  uint64_t jobs_failed = 0;
  uint64_t refused = 0;
  uint64_t trainers_done = 0;
  uint64_t stops = 0;     // of daemons that were told to
  uint64_t restarts = 0;  // of daemons that came back with their records
  uint64_t restarts_while_forming = 0;
  uint64_t witnesses = 0;  // daemons that came back with what the last had promised, and no more
  uint64_t lanes_lost = 0;
  uint64_t damaged = 0;    // slices with a flipped bit
  uint64_t condemned = 0;  // ops, after the third time
  uint64_t stood_in = 0;   // for by ranks without more data
  uint64_t slow_reports = 0;
  uint64_t pieces = 0;  // of inputs that came when their op was submitted already
  uint64_t retunes_asked = 0;
  uint64_t retuned = 0;    // views with another table, entered by a node
  uint64_t in_groups = 0;  // ranks that came into one
  uint64_t expired = 0;    // ops, by engines that said so
  uint64_t expired_names_rank = 0;
  uint64_t gone_back = 0;  // ranks, each time
  uint64_t relayed = 0;    // words, by nodes between
};

// A use of a key, which mean others where a job has grown.
struct KeyUse {
  JobId job{};
  uint64_t grown = 0;
  OpKey key;
  auto operator<=>(const KeyUse&) const = default;
};

// Between every two nodes.
inline constexpr uint32_t kLanes = 2;

// How long daemons wait for one that restarts, and it for them.
inline constexpr Time kRestartGrace = 10 * core::kSecond;

// A cluster in one thread. Runs one scenario to its end and watches over what must always hold:
// what the Oracle says; every submission ends exactly once, and everything ends (bounded virtual
// time); nothing fails without a cause that was put in, and nothing is left behind.
class World {
 public:
  explicit World(const Scenario& scenario);
  ~World();

  // The first violation, or empty.
  std::string run();
  Stats& stats() { return stats_; }

  const Scenario& scenario() const { return scenario_; }
  Events& events() { return events_; }
  core::Random& random() { return random_; }
  Oracle& oracle() { return oracle_; }
  // Everything that happens from now on is written there.
  void trace_to(std::FILE* file) { trace_.write_to(file); }
  template <typename Text>
  void trace(Text text) const {
    trace_.line(events_.now(), text);
  }
  SimNode& node(uint32_t index) { return *nodes_[index]; }
  uint32_t index_of(const std::string& node) const {
    return static_cast<uint32_t>(std::stoul(node.substr(1)));
  }
  Time delay(Time most) {
    return 1 + static_cast<Time>(random_.below(static_cast<uint64_t>(most)));
  }
  void after(Time most, std::function<void()> what) { events_.in(delay(most), std::move(what)); }

  // ---- where others pass on what is said: relays.cc ----
  bool has_overlay() const { return overlay_.has_value(); }
  bool is_relayed(uint32_t a, uint32_t b) const;
  std::string address_of(uint32_t node) const;
  uint32_t at_address(const std::string& address) const;
  bool has_grace(uint32_t node) const { return scenario_.restarts(node); }
  // What an overlay would go on with for ever matters no more.
  bool is_quiet() const { return quiet_since_ != 0 && events_.now() > quiet_since_ + kQuietAfter; }
  uint64_t new_connection() { return ++connections_; }
  std::string write_down(Said said);
  auto read(const std::string& body, uint32_t from, uint32_t to) -> decltype(Said::what);
  // To a link.
  void carry(uint32_t from, uint32_t to, const core::Parcel& parcel);
  void carry(uint32_t from, uint32_t to, const std::vector<core::Notice>& notices);
  // One has met the other over others, and takes it for lost.
  void met(uint32_t self, uint32_t peer);
  void part(uint32_t self, uint32_t peer);
  bool data_passes(uint32_t a, uint32_t b) const;
  void connect_data(uint32_t self, uint32_t peer);
  void deliver_control(uint32_t from, uint32_t to, const core::JobMessage& message);

  void send_control(uint32_t from, uint32_t to, const core::JobMessage& message);
  void send_data(uint32_t from, uint32_t to, const Frame& frame, Payload payload);
  // Flips a bit, if that is what the way between the two does now.
  void damage(uint32_t from, uint32_t to, std::vector<std::byte>* bytes);

  core::SessionId new_session(Trainer* trainer);
  Trainer* trainer_of(core::SessionId session) { return sessions_.at(session); }
  // At which the job is for those who come in: that of whoever is there longest and alive.
  uint32_t step_of(const core::View& view);
  void note_step(const JobId& job, uint32_t step);
  // Of all who went back and have met at their join point `number`, as it was counted since
  // `grown`; and of all where the job has grown there.
  uint32_t step_after(const core::View& view, uint64_t grown, uint32_t number);

  // Equal on all ranks of one life of a job, and of no other.
  uint64_t seed_of(const JobId& job, uint32_t op, uint32_t step) const {
    uint64_t seed = scenario_.seed;
    for (const uint8_t byte : job) seed = seed * 257 + byte;
    return (seed * 64 + op) * 64 + step;
  }
  const std::vector<std::byte>& input_of(const OpId& id, const Signature& signature, uint32_t rank);

  void note_mismatched(const OpId& id, uint32_t rank) {
    mismatched_.insert(id);
    oracle_.note_odd_one(id, rank);
  }
  bool was_mismatched(const OpId& id) const { return mismatched_.count(id) > 0; }
  // This node takes part in this life of the job no more.
  void note_left(const JobId& job, uint32_t node) { left_.insert({job, node}); }
  bool has_left(const JobId& job, uint32_t node) const { return left_.count({job, node}) > 0; }
  // This node has entered this epoch, or knows that it is no member of it.
  void note_known(const JobId& job, uint32_t node, uint64_t epoch) {
    known_[{job, node}] = std::max(known_[{job, node}], epoch);
  }
  uint64_t known(const JobId& job, uint32_t node) { return known_[{job, node}]; }
  // What a trainer was told to be good is what the reference says, in every byte.
  void check_written(const Trainer& trainer, const OpId& id, const Signature& signature,
                     const std::vector<uint32_t>& ranks, const std::byte* output);

  core::EngineOptions options_of(const std::string& job) const;
  void note_submitted(const KeyUse& use, uint32_t rank) {
    submitted_[use].try_emplace(rank, events_.now());
  }
  void note_arrived(const JobId& job) { arrived_[job] = events_.now(); }
  std::optional<Time> submitted(const KeyUse& use, uint32_t rank) const;
  // An engine wants its job to end for an op past its deadline.
  void op_expired(const SimNode& node, const SimJob& job, const Failure& failure);
  void note_failed(const SimNode& node, const JobId& job, const Failure& failure);
  void op_corrupted(const Trainer& trainer, const Failure& failure);
  void op_mismatched(const Trainer& trainer, const OpId& id, const Signature& signature);
  void op_failed(const Trainer& trainer, const Signature& signature, const Failure& failure);
  void job_failed(const Trainer& trainer, const Failure& failure);
  void job_refused(const Trainer& trainer, const Status& why);
  void violation(const std::string& what);
  // True where the scenario's sabotage strikes; now and then, not always.
  bool sabotaged(Sabotage kind) { return scenario_.sabotage == kind && random_.below(20) == 0; }

 private:
  // One way between two nodes, and whether its sender believes in the connection.
  struct Link {
    bool up = true;
    bool open = true;
    uint64_t generation = 0;  // of what is under way
    uint64_t connection = 0;
    bool data_cut = false;  // where there is no control connection beside it
    Time held_until = 0;  // of the way between these two, at the lower one: nothing mends it before
    Time disturbed = 0;   // last; what was before that may have been late, or lost
    Fifo control;
    Fifo data;
    uint32_t damage_percent = 0;
    Time damage_until = 0;
    std::optional<uint32_t> broken;  // the lane that swallows what is on it ...
    bool avoids = false;             // ... and whether the sender knows
    std::array<uint64_t, kLanes> lane_generation{};
  };

  static constexpr Time kQuietAfter = 60 * core::kSecond;

  // network.cc
  Link& link(uint32_t from, uint32_t to) { return links_[from * scenario_.nodes + to]; }
  const Link& link(uint32_t from, uint32_t to) const { return links_[from * scenario_.nodes + to]; }
  void connect(uint32_t a, uint32_t b);
  void cut(uint32_t from, uint32_t to);
  void lose(uint32_t self, uint32_t peer, Cause cause, Time within);
  void heal(uint32_t a, uint32_t b, Time when);
  void break_link(uint32_t a, uint32_t b, const Fault& fault);
  void carry(uint32_t from, uint32_t to, std::function<void()> deliver);
  void strike(const Fault& fault);

  // daemons.cc
  void crash(const Fault& fault);
  void stop(const Fault& fault);
  void bear_again(const Fault& fault, Time when);
  void restart(const Fault& fault);
  void come_back(uint32_t index);
  void miss(uint32_t self, uint32_t peer, Time within);
  void expect_others(uint32_t index);
  void forget_ended(uint32_t index);
  SimNode& next_life(uint32_t index);
  void pause(const Fault& fault);

  // lanes.cc
  static uint32_t lane_for(const Link& link, const Frame& frame);
  void break_lane(uint32_t from, uint32_t to, uint32_t lane);
  void lose_lane(const Fault& fault);
  void notice_lane(uint32_t self, uint32_t peer, uint32_t lane, Time within);

  // relays.cc
  void break_data(uint32_t a, uint32_t b, const Fault& fault);
  // Whether what one says to the other can get there.
  bool are_connected(uint32_t a, uint32_t b) const;
  bool reaches(uint32_t from, uint32_t to) const;
  bool relays_calm(Time since) const;
  void check_all_met();

  void keep_ticking();
  bool all_over() const;
  void check_end();
  bool ranks_missing() const;
  bool struck() const {
    return stats_.faults > 0 || stats_.slow_reports > 0 || scenario_.late_percent > 0;
  }

  // deadlines.cc
  bool calm(uint32_t a, uint32_t b, const JobId& job) const;
  void judge_expired(const Trainer& trainer, const Failure& failure);
  void check_in_time();

  // judge.cc
  void group_refused(const Trainer& trainer, const Status& why);
  bool has_fault(FaultKind kind) const;
  bool had_quorum(const Trainer& trainer) const;

  const Scenario scenario_;
  core::Random random_;
  Events events_;
  Trace trace_;
  Stats stats_;
  Oracle oracle_;
  std::vector<std::unique_ptr<SimNode>> nodes_;
  std::vector<std::unique_ptr<SimNode>> graves_;  // their events may still be due
  std::vector<Link> links_;
  std::map<uint32_t, Fault> doomed_;
  std::vector<std::unique_ptr<Trainer>> trainers_;
  std::vector<std::vector<Trainer*>> trainers_of_job_;
  std::map<core::SessionId, Trainer*> sessions_;
  std::map<std::pair<OpId, uint32_t>, std::vector<std::byte>> inputs_;  // once computed; by rank
  std::set<OpId> mismatched_;
  // By its words; whether only nodes that were left out say so.
  std::map<std::pair<JobId, std::string>, bool> expired_;
  std::map<KeyUse, std::map<uint32_t, Time>> submitted_;  // first, by each rank
  std::map<JobId, Time> arrived_;                         // a slice, last
  std::set<std::pair<JobId, uint32_t>> left_;
  std::map<std::pair<JobId, uint32_t>, uint64_t> known_;
  std::map<std::pair<JobId, uint64_t>, uint32_t> first_steps_;  // by the epoch that grew
  std::map<JobId, uint32_t> last_steps_;
  std::map<std::tuple<JobId, uint64_t, uint32_t>, uint32_t> met_steps_;
  std::optional<core::Overlay> overlay_;
  std::vector<Said> said_;
  std::map<std::pair<uint32_t, uint32_t>, uint64_t> last_read_;
  uint64_t connections_ = 0;
  Time quiet_since_ = 0;
  bool all_met_ = false;  // that was looked at
  std::string violation_;
};

}  // namespace gradring::sim
