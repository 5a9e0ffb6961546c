#include "daemon/core/tuning.h"

#include <algorithm>
#include <bit>

namespace gradring::core {
namespace {

constexpr uint64_t kFirstEnd = 1 << 10;

}  // namespace

uint32_t size_class_of(uint64_t bytes) {
  if (bytes <= kFirstEnd) return 0;
  const auto doublings = static_cast<uint32_t>(std::bit_width((bytes - 1) / kFirstEnd));
  return std::min(doublings, kSizeClasses - 1);
}

uint64_t size_class_end(uint32_t size_class) { return kFirstEnd << size_class; }

const TunedClass* Tuning::find(uint32_t size_class) const {
  const auto it = std::find_if(classes.begin(), classes.end(), [size_class](const TunedClass& c) {
    return c.size_class == size_class;
  });
  return it == classes.end() ? nullptr : &*it;
}

Choice Tuning::settled(uint32_t size_class) const {
  const TunedClass* const known = find(size_class);
  return known == nullptr ? Choice{} : known->settled;
}

Choice Tuning::choice(const OpKey& key, uint32_t size_class) const {
  const TunedClass* const known = find(size_class);
  if (known == nullptr) return {};
  return known->tried && tries(key) ? *known->tried : known->settled;
}

bool Tuning::searching() const {
  return std::any_of(classes.begin(), classes.end(),
                     [](const TunedClass& c) { return c.tried.has_value(); });
}

void Tuning::set(const TunedClass& entry) {
  std::erase_if(classes, [&](const TunedClass& c) { return c.size_class == entry.size_class; });
  if (entry.settled == Choice{} && !entry.tried) return;
  const auto behind = std::find_if(classes.begin(), classes.end(), [&](const TunedClass& c) {
    return c.size_class > entry.size_class;
  });
  classes.insert(behind, entry);
}

// Neighbouring numbers must not alternate: what trainers submit does so as well.
bool tries(const OpKey& key) {
  uint64_t x = key.space ^ (key.sequence * 0x9e3779b97f4a7c15u);
  x = (x ^ (x >> 31)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return ((x >> 33) & 1) != 0;
}

std::string fault_of(const Tuning& tuning) {
  const TunedClass* before = nullptr;
  for (const TunedClass& entry : tuning.classes) {
    if (entry.size_class >= kSizeClasses) return "the table has a size that does not exist";
    if (before != nullptr && before->size_class >= entry.size_class) {
      return "the sizes of the table do not ascend";
    }
    before = &entry;
    for (const Choice& choice : {entry.settled, entry.tried.value_or(Choice{})}) {
      if (static_cast<uint8_t>(choice.way) > kChoiceWayLast) return "a way that does not exist";
      if (choice.slice_bytes == 0) continue;
      const bool sound = choice.way == Choice::Way::kRing && choice.slice_bytes <= kTunedSliceMax &&
                         choice.slice_bytes >= kTunedSliceAlign &&
                         choice.slice_bytes % kTunedSliceAlign == 0;
      if (!sound) return "the table has slices of " + std::to_string(choice.slice_bytes) + " bytes";
    }
  }
  return "";
}

PlanOptions tuned(PlanOptions options, const Tuning& tuning, const OpKey& key,
                  const Signature& signature, uint32_t members) {
  if (signature.collective != Collective::kAllreduce || members < 2) return options;
  const Choice choice = tuning.choice(key, size_class_of(signature.bytes()));
  const uint32_t unit = std::max(options.direct_whole_max, options.direct_part_max);
  switch (choice.way) {
    case Choice::Way::kDefault:
      break;
    case Choice::Way::kRing:
      options.direct_members_max = 0;
      options.tree_max = 0;
      options.slice_bytes_tuned = std::min(choice.slice_bytes, options.slice_bytes_max);
      break;
    case Choice::Way::kWhole:
      options.direct_whole_max = unit;
      options.tree_max_per_member = options.tree_max;
      break;
    case Choice::Way::kParts:
      options.direct_whole_max = options.tree_max = 0;
      options.direct_part_max = unit;
      break;
  }
  return options;
}

}  // namespace gradring::core
