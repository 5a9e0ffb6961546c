#pragma once

#include <compare>
#include <cstdint>

namespace gradring::core {

// A piece of staging memory: receive slot or start buffer `index`, each `staging_bytes` long, or a
// unit for what goes with READY or straight from where it was summed (JobEngine::unit_bytes).
struct Staging {
  enum class Kind : uint8_t { kSlot, kStart, kUnit };
  Kind kind = Kind::kSlot;
  uint32_t index = 0;

  auto operator<=>(const Staging&) const = default;
};

inline Staging unit_at(uint32_t unit) { return {Staging::Kind::kUnit, unit}; }

}  // namespace gradring::core
