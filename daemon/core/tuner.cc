#include "daemon/core/tuner.h"

#include <algorithm>
#include <cmath>

#include "daemon/core/median.h"

namespace gradring::core {
namespace {

// A class of which so few ops come while the first is measured is not worth a search.
constexpr uint32_t kSeenLeast = 8;

// Slices that are tried, of the largest one so many parts. Below the least they cost more messages
// than they save waiting, and larger ones than 1 MiB have not been seen to gain anything.
constexpr uint32_t kPartsTried[] = {32, 16, 8, 4, 2, 1};
constexpr uint32_t kTriedLeast = 28 << 10;
constexpr uint32_t kTriedMost = 1 << 20;

// After so many ops nobody waits any longer for a class of which hardly any comes.
constexpr uint64_t kRoundMost = 8192;

// Standard deviations by which the ranks of two samples must differ. One comparison in 700 would
// say so by chance, and a search makes some tens.
constexpr double kSure = 3;

// By how many standard deviations more pairs than half have the smaller one in `b` (the test of
// Mann and Whitney): unlike a mean it does not mind a few ops that took a second.
double preference_for(std::vector<Time> a, const std::vector<Time>& b) {
  std::sort(a.begin(), a.end());
  double wins = 0;
  for (const Time time : b) {
    const auto [first, last] = std::equal_range(a.begin(), a.end(), time);
    wins += static_cast<double>(a.end() - last) + static_cast<double>(last - first) / 2;
  }
  const auto n = static_cast<double>(a.size());
  const auto m = static_cast<double>(b.size());
  return (wins - n * m / 2) / std::sqrt(n * m * (n + m + 1) / 12);
}

// What a choice comes to for the largest op of a class.
struct Effect {
  Direct direct = Direct::kNo;
  uint32_t slice_bytes = 0;
  bool operator==(const Effect&) const = default;
};

Effect effect_of(const Choice& choice, uint32_t size_class, const TunerOptions& options) {
  Signature sum;
  sum.collective = Collective::kAllreduce;
  sum.dtype = Dtype::kFloat32;
  sum.op = ReduceOp::kSum;
  sum.count = size_class_end(size_class) / sizeof(float);
  Tuning table;
  table.set({size_class, choice, {}});
  const PlanOptions plan = tuned(options.plan, table, {}, sum, options.members);
  const DirectLayout layout = direct_layout(sum, options.members, plan);
  if (layout.direct != Direct::kNo) return {layout.direct, layout.slice_bytes};
  return {Direct::kNo, slice_bytes_for(sum, options.members, plan)};
}

}  // namespace

Tuner::Tuner(const TunerOptions& options, const Tuning& first, const std::set<uint32_t>& searched)
    : options_(options), table_(first) {
  for (const TunedClass& entry : first.classes) begin_class(entry.size_class);
  for (const uint32_t size_class : searched) {
    begin_class(size_class);
    classes_.at(size_class).left.clear();
  }
}

std::vector<Choice> Tuner::candidates(uint32_t size_class, const TunerOptions& options) {
  std::vector<Choice> all = {
      {}, {Choice::Way::kWhole, 0}, {Choice::Way::kParts, 0}, {Choice::Way::kRing, 0}};
  for (const uint32_t parts : kPartsTried) {
    const uint32_t slice =
        options.plan.slice_bytes_max / parts / kTunedSliceAlign * kTunedSliceAlign;
    const bool fits = uint64_t{slice} * options.members <= size_class_end(size_class);
    if (fits && slice >= kTriedLeast && slice <= kTriedMost) {
      all.push_back({Choice::Way::kRing, slice});
    }
  }
  std::vector<Choice> list;
  std::vector<Effect> effects;
  for (const Choice& choice : all) {
    const Effect effect = effect_of(choice, size_class, options);
    if (std::find(effects.begin(), effects.end(), effect) != effects.end()) continue;
    effects.push_back(effect);
    list.push_back(choice);
  }
  return list;
}

void Tuner::begin_class(uint32_t size_class) {
  Class& c = classes_[size_class];
  c.finding.size_class = size_class;
  c.finding.settled = table_.settled(size_class);
  const Effect settled = effect_of(c.finding.settled, size_class, options_);
  c.left = candidates(size_class, options_);
  std::erase_if(c.left, [&](const Choice& choice) {
    return effect_of(choice, size_class, options_) == settled;
  });
  std::reverse(c.left.begin(), c.left.end());
}

void Tuner::add(const OpTime& time) {
  if (exhausted() || wanted_) return;
  ++ops_;
  const auto it = classes_.find(time.size_class);
  if (it == classes_.end()) {
    ++seen_[time.size_class];
    return;
  }
  std::vector<Time>& times = time.tried ? it->second.tried : it->second.settled;
  if (times.size() < options_.samples_most) times.push_back(time.took);
}

Tuner::Verdict Tuner::compare(Class* c) const {
  const auto fewest = static_cast<uint32_t>(std::min(c->settled.size(), c->tried.size()));
  if (fewest < options_.samples_least) {
    return ops_ < kRoundMost ? Verdict::kUnsure : Verdict::kNotBetter;
  }
  const auto before = static_cast<double>(median_of(c->settled));
  const double gain = 1 - static_cast<double>(median_of(c->tried)) / std::max(before, 1.0);
  const double preference = preference_for(c->settled, c->tried);
  if (gain >= options_.gain_least && preference >= kSure) {
    c->finding.before = c->finding.settled;
    c->finding.settled = *c->finding.tried;
    c->finding.gain = gain;
    c->finding.samples = fewest;
    return Verdict::kBetter;
  }
  const bool may_turn_out = gain >= options_.gain_least && fewest < options_.samples_most;
  return may_turn_out ? Verdict::kUnsure : Verdict::kNotBetter;
}

// One change serves all classes, so it waits for those that are measured; but not for one of which
// an op comes now and then.
bool Tuner::round_is_over() const {
  if (table_.searching() && ops_ >= kRoundMost) return true;
  size_t most = 0;
  for (const auto& [size_class, c] : classes_) {
    if (c.finding.tried) most = std::max(most, std::min(c.settled.size(), c.tried.size()));
  }
  for (const auto& [size_class, c] : classes_) {
    const size_t fewest = std::min(c.settled.size(), c.tried.size());
    const bool measured = fewest >= options_.samples_least || fewest * 8 < most;
    if (c.finding.tried && !measured) return false;
  }
  if (most >= options_.samples_least) return true;
  // Nothing is tried yet: which sizes there are is known when some were seen often.
  if (table_.searching()) return false;
  uint32_t seen = 0;
  for (const auto& [size_class, count] : seen_) seen = std::max(seen, count);
  const bool begun = std::any_of(classes_.begin(), classes_.end(), [&](const auto& entry) {
    return entry.second.settled.size() >= options_.samples_least;
  });
  return seen >= options_.samples_least || begun;
}

std::optional<Tuning> Tuner::wanted() {
  if (wanted_ || exhausted() || !round_is_over()) return wanted_;
  for (const auto& [size_class, count] : seen_) {
    if (count >= kSeenLeast) begin_class(size_class);
  }
  seen_.clear();
  bool unsure = false;
  bool moved = false;
  for (auto& [size_class, c] : classes_) {
    if (c.finding.tried) {
      const Verdict verdict = compare(&c);
      unsure = unsure || verdict == Verdict::kUnsure;
      if (verdict == Verdict::kUnsure) continue;
      c.finding.tried.reset();
    }
    moved = true;
    c.settled.clear();
    c.tried.clear();
    if (c.left.empty()) continue;
    c.finding.tried = c.left.back();
    c.left.pop_back();
  }
  if (!moved && unsure) return std::nullopt;  // they go on as they are
  Tuning next = found();
  const bool last = changes_ + 1 >= options_.changes_most;
  for (auto& [size_class, c] : classes_) {
    if (last && c.finding.tried) {
      c.left.push_back(*c.finding.tried);
      c.finding.tried.reset();
    }
    c.finding.left = static_cast<uint32_t>(c.left.size());
    next.set({size_class, c.finding.settled, c.finding.tried});
  }
  if (next == table_) return std::nullopt;
  wanted_ = next;
  return wanted_;
}

void Tuner::entered(const Tuning& tuning) {
  if (tuning == table_) return;
  if (wanted_ == tuning) {
    ++changes_;
    ops_ = 0;
    table_ = tuning;
    wanted_.reset();
    return;
  }
  // Somebody else's: nothing that was found holds.
  table_ = tuning;
  wanted_.reset();
  ops_ = 0;
  classes_.clear();
  seen_.clear();
}

bool Tuner::over() const {
  if (exhausted()) return true;
  return !classes_.empty() && !wanted_ && searched().size() == classes_.size();
}

std::set<uint32_t> Tuner::searched() const {
  std::set<uint32_t> searched;
  for (const auto& [size_class, c] : classes_) {
    if (c.left.empty() && !c.finding.tried) searched.insert(size_class);
  }
  return searched;
}

Tuning Tuner::found() const {
  Tuning found;
  for (const auto& [size_class, c] : classes_) found.set({size_class, c.finding.settled, {}});
  return found;
}

std::vector<TunedFinding> Tuner::findings() const {
  std::vector<TunedFinding> list;
  for (const auto& [size_class, c] : classes_) list.push_back(c.finding);
  return list;
}

}  // namespace gradring::core
