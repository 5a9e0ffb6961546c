#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "daemon/core/job_engine.h"
#include "daemon/core/planted.h"
#include "daemon/core/time.h"
#include "proto/types.h"

namespace gradring::sim {

using core::Time;

struct OpSpec {
  Signature signature;
  bool named = false;
  bool prescaled = false;         // by each rank's own factor
  bool uneven = false;            // in blocks of up to signature.count elements
  bool comes = false;             // its inputs come in pieces, after the submission
  int32_t priority = 0;           // of the first rank; each other one has its own
  std::optional<uint32_t> after;  // every trainer waits for that op before it submits this one
};

// The blocks of an uneven op among so many ranks: equal for all who ask.
Blocks draw_blocks(const OpSpec& op, uint32_t ranks);

// Of a job within another one: which of that one's ranks, in the order of its own.
struct GroupSpec {
  uint32_t outer = 0;  // job
  std::vector<uint32_t> ranks;
  Time begins = 0;   // so long at most after they have come in there, each
  Time timeout = 0;  // of forming; 0: the daemons'
  uint32_t times =
      1;  // that it is made in one growth of that job, as pairs are when one has failed
};

// This op of this step a rank submits so much later, in its first life.
struct Dawdle {
  uint32_t rank = 0;
  uint32_t step = 0;
  uint32_t op = 0;
  Time lasts = 0;
};

// Instead of submitting this op of this step, or its join point, a rank goes back to an earlier
// one, in its first life.
struct GoBack {
  uint32_t rank = 0;
  uint32_t step = 0;
  uint32_t op = 0;  // or Trainer::kJoinPoint
};

// What a trainer does: `steps` times all ops in an order of its own, then wait for all of them.
struct JobSpec {
  std::string name;
  std::string policy = "fail";
  std::vector<uint32_t> node_of_rank;
  uint32_t steps = 1;
  std::vector<uint32_t> own_steps = {};  // by rank, where some have fewer; then they join
  std::vector<OpSpec> ops;
  bool join_points = false;  // each step begins with one ...
  bool joins_last = false;   // ... and another follows the last
  uint32_t lives = 1;        // of a trainer, which starts over when it lost its job, or its life
  std::optional<uint32_t> mismatch_rank;  // submits another count ...
  uint32_t mismatch_step = 0;             // ... for op 0 of this step
  bool mismatch_lasts = false;            // and of all later ones
  std::set<uint32_t> early_leavers;       // in their first life they leave ...
  uint32_t leave_after = 0;               // ... after so many steps
  std::set<uint32_t> visitors = {};       // in later lives they often leave as soon as they are in
  std::optional<Time> op_deadline = {};   // else that of all
  std::vector<Dawdle> dawdles = {};
  std::vector<GoBack> goes_back = {};    // then all others do, once an op of theirs has failed
  std::optional<GroupSpec> within = {};  // made by processes that are in the other job
};

enum class FaultKind : uint8_t {
  kCrashNode,  // with all of its trainers; a new one may come in its place
  kBreakLink,  // both ways
  kOneWay,     // a hears nothing of b any more, but b of a
  kPartition,  // the nodes of `mask` from all others
  kSuspect,    // a takes b for lost although nothing is wrong
  kPauseNode,  // nothing happens there for a while
  kKillTrainer,
  kDieSpeaking,      // as kCrashNode, in the midst of telling others of a view change
  kRestart,          // of the daemon alone: it comes back with its records, within the grace or not
  kRestartSpeaking,  // likewise, in the midst of telling others of a view change
  kLoseLane,         // one of those between a and b, at both ends or one way
  kStall,            // what a sends to b comes late, in its order; nobody notices
  kStop,             // of the daemon, in good order: it says so, and ends; another may come
  kDamage,           // some of the slices from a to b come with a flipped bit
};
struct Fault {
  FaultKind kind = FaultKind::kKillTrainer;
  Time at = 0;
  uint32_t a = 0;          // node, or job
  uint32_t b = 0;          // other node, or rank
  uint64_t mask = 0;       // of nodes
  uint32_t words = 0;      // sent before it dies
  uint32_t percent = 0;    // of the slices
  Time detected = 0;       // until the nodes know, at most
  Time lasts = 0;          // 0: for ever
  bool remembers = false;  // a crashed node's next daemon knows what the last one promised
};

// A node asks for another table for all of its jobs.
struct Retune {
  Time at = 0;
  uint32_t node = 0;
  core::Tuning tuning;
};

// Deliberate damage beside the core, to show that the checks see it.
enum class Sabotage : uint8_t {
  kNone,
  kLoseReady,
  kLoseCredit,
  kCorruptPayload,
  kForgetDelivery,
  kLoseStandIn,
  kReuseLentBuffer
};

// One run, drawn from a seed: everything in it follows from the seed alone.
struct Scenario {
  uint64_t seed = 0;
  uint32_t nodes = 2;
  core::EngineOptions engine;
  uint32_t kept_max = 0;  // slices that a job can keep on a node
  Time latency_max = 2 * core::kMillisecond;
  bool reorder_data = false;
  uint32_t duplicate_percent = 0;
  uint32_t stale_percent = 0;  // messages of a view change that come once more, much later
  // Of the words of one daemon to another: they, and what it says to it later, may take so long.
  uint32_t late_percent = 0;
  Time late_max = 0;
  // Engines that go on for so long at most before they report, as where a GPU is to come to rest.
  uint32_t slow_reports_percent = 0;
  Time slow_report_max = core::kMillisecond;
  std::optional<uint32_t> slow_node;  // they are on this one alone
  std::vector<JobSpec> jobs;
  std::vector<Fault> faults;
  // Control connections of each node; with more nodes than that, others pass on what is said to the
  // rest. 0: everybody is connected with everybody.
  uint32_t links_max = 0;
  Time begins = 0;                    // trainers and faults, by when the nodes have mostly met
  std::vector<uint32_t> places;       // of the nodes, in the circle of all
  uint32_t parcels_lost_percent = 0;  // of what is passed on, as by links that are full
  core::Tuning first_tuning;          // of each job's first view
  std::vector<Retune> retunes;
  Sabotage sabotage = Sabotage::kNone;
  core::Bug bug = core::Bug::kNone;

  // Where no daemon comes back, none writes down what it does.
  bool keeps_records() const;
  // Whether a daemon's end may be a restart of it.
  bool restarts(uint32_t node) const;
};

// Slices that come with a flipped bit; lanes that are lost.
void draw_damage(Scenario* scenario);
void draw_stops(Scenario* scenario);
void draw_lanes(Scenario* scenario);
// Partitions in turn, each about as long as it takes until the next one begins.
void draw_partitions(Scenario* scenario);
// Reports that are slow, often slower than others wait for; and daemons that restart while they
// speak of a view.
void draw_slow_reports(Scenario* scenario);

// In some runs there are more nodes than links, and so on.
void draw_relays(Scenario* scenario);

// Tables for slices as small as these, from a generator of their own. `often`: where they are the
// only trouble.
void draw_tunings(Scenario* scenario, bool often);

// Nothing but tables goes wrong, and in half of the runs nodes do nothing for a while, which nobody
// takes for their death.
Scenario draw_retuned(uint64_t seed);

// `nodes` fixes the number of nodes; 0 draws 3 to 64, small ones more often. Each scenario has 20
// ops or more and at least one fault.
Scenario draw_scenario(uint64_t seed, uint32_t nodes);

// Likewise; `crowded`: of several jobs, which are on some of the nodes each.
Scenario draw(uint64_t seed, uint32_t nodes, bool crowded);
// Adds what draw_rough() promises.
Scenario roughen(Scenario scenario);

// Likewise; and one rank of each job differs from the others in one op of every step.
Scenario draw_mismatched(uint64_t seed);

// Likewise; and that is only the beginning: faults go on for as long as there is work, trainers
// start over again and again, and several leave early; some have one partition after another.
Scenario draw_rough(uint64_t seed);

// Likewise; and each node is in several jobs, on some of the nodes each and some of them short, and
// every other fault is a daemon that restarts. Trainers come when the others end, or leave at once;
// some make jobs within theirs; words between two daemons are often late; and some jobs give up ops
// that take long, which some ranks are late for.
Scenario draw_crowded(uint64_t seed);

}  // namespace gradring::sim
