#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "daemon/core/plan.h"
#include "proto/types.h"

namespace gradring::core {

// How allreduces of one size go between the nodes of a job.
struct Choice {
  enum class Way : uint8_t {
    kDefault,  // as PlanOptions say
    kRing,     // along the ring
    kWhole,    // with READY, the whole to everybody; in large jobs along the tree
    kParts,    // with READY, a part to each
  };
  Way way = Way::kDefault;
  uint32_t slice_bytes = 0;  // of kRing; 0: as PlanOptions say

  bool operator==(const Choice&) const = default;
};
inline constexpr uint8_t kChoiceWayLast = static_cast<uint8_t>(Choice::Way::kParts);

// Sizes of ops, of which those in one class go alike: class c ends at 1 KiB << c, and the last one
// has no end. In bytes of each rank's own input, as the trainer's type says.
inline constexpr uint32_t kSizeClasses = 18;
uint32_t size_class_of(uint64_t bytes);
// The largest size in the class; of the last one what the one before would lead to.
uint64_t size_class_end(uint32_t size_class);

// Slices of a choice have a boundary that suits every element and vector load, as those of a plan
// have. Whoever sends larger ones than that means something else.
inline constexpr uint32_t kTunedSliceAlign = 64;
inline constexpr uint32_t kTunedSliceMax = 1 << 30;

// What is settled for one class, and what is being compared with it.
struct TunedClass {
  uint32_t size_class = 0;
  Choice settled;
  std::optional<Choice> tried;

  bool operator==(const TunedClass&) const = default;
};

// The table of a job, part of its view: all members plan an op alike, from the view, its key and
// its size alone. An empty one changes nothing.
struct Tuning {
  std::vector<TunedClass> classes;  // ascending; those that are missing go by default
  bool fixed = false;               // nobody searches for a better one

  bool operator==(const Tuning&) const = default;

  const TunedClass* find(uint32_t size_class) const;
  Choice settled(uint32_t size_class) const;
  // Half of all keys, which all nodes know without asking, go as is tried, where something is.
  Choice choice(const OpKey& key, uint32_t size_class) const;
  bool searching() const;
  // Keeps the order; a class that goes by default is not listed.
  void set(const TunedClass& entry);
};

// Whether ops of this key are those that go as is tried.
bool tries(const OpKey& key);

// Empty, or a sentence that names what is wrong with a table that somebody sent.
std::string fault_of(const Tuning& tuning);

// `options` as the table changes them for one op. What cannot go as it says (a part that is too
// large to be sent directly, a type that must not) goes as it would without it.
PlanOptions tuned(PlanOptions options, const Tuning& tuning, const OpKey& key,
                  const Signature& signature, uint32_t members);

}  // namespace gradring::core
