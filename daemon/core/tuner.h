#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "daemon/core/plan.h"
#include "daemon/core/time.h"
#include "daemon/core/tuning.h"

namespace gradring::core {

struct TunerOptions {
  PlanOptions plan;
  uint32_t members = 2;
  // Ops of a class that must have gone either way before they are compared, and after how many it
  // is given up that they differ for sure. A training step has tens of ops, so that a comparison
  // takes some steps; 32 show a difference as large as their spread.
  uint32_t samples_least = 32;
  uint32_t samples_most = 256;
  double gain_least = 0.03;    // what is gained by less is not worth a table that nobody expects
  uint32_t changes_most = 12;  // of the table, each of which is a pause
};

// A sum that ended well on this node: from its last submission here until its end.
struct OpTime {
  uint32_t size_class = 0;
  bool tried = false;
  Time took = 0;
};

// What is known of one class, for people.
struct TunedFinding {
  uint32_t size_class = 0;
  Choice settled;
  std::optional<Choice> before;  // that it was better than
  double gain = 0;               // by so much of its time
  uint32_t samples = 0;          // of each, in that comparison
  std::optional<Choice> tried;
  uint32_t left = 0;  // candidates after that one
};

// Looks for the best table of a job, at the member that hosts its lowest rank. One candidate for
// each class of sizes goes side by side with what is settled, since the load of a network changes
// by the minute. Its candidates begin with the defaults, and only what is better by more than
// chance takes their place. Pure; one thread.
class Tuner {
 public:
  // `first`: the table that the job has, of which nothing is tried. `searched`: classes of which it
  // is known to be the best.
  Tuner(const TunerOptions& options, const Tuning& first, const std::set<uint32_t>& searched = {});

  void add(const OpTime& time);
  // The table that should be the view's, where it is another one than it is. The same until
  // entered() says that it came about.
  std::optional<Tuning> wanted();
  // The view has this table from now on, whoever asked for it.
  void entered(const Tuning& tuning);

  // Everything is tried for the sizes that were seen, or the table was changed too often.
  bool over() const;
  // What is found: nothing in it is tried.
  Tuning found() const;
  // The classes of which nothing is left to try.
  std::set<uint32_t> searched() const;
  std::vector<TunedFinding> findings() const;

  // All that may go one way or another, each once by what it comes to.
  static std::vector<Choice> candidates(uint32_t size_class, const TunerOptions& options);

 private:
  struct Class {
    TunedFinding finding;
    std::vector<Choice> left;  // to be tried, the next one last
    std::vector<Time> settled;
    std::vector<Time> tried;
  };
  enum class Verdict : uint8_t { kUnsure, kBetter, kNotBetter };

  Verdict compare(Class* c) const;
  void begin_class(uint32_t size_class);
  bool round_is_over() const;
  // To try something takes two changes: there, and back again.
  bool exhausted() const { return changes_ + (table_.searching() ? 1 : 2) > options_.changes_most; }

  const TunerOptions options_;
  Tuning table_;  // the view's
  std::optional<Tuning> wanted_;
  std::map<uint32_t, Class> classes_;
  std::map<uint32_t, uint32_t> seen_;  // ops of classes that are not among these yet
  uint64_t ops_ = 0;                   // since the table is as it is
  uint32_t changes_ = 0;
};

}  // namespace gradring::core
