#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "proto/reduction.h"
#include "proto/types.h"
#include "transport/reducer.h"

// What the engines that fold are tested with: every type with every operation, and values that
// hurt.
namespace gradring::transport {

inline std::ostream& operator<<(std::ostream& out, const FoldFindings& findings) {
  return out << findings.nonfinite << " not finite, of them " << findings.overflows
             << " overflows from " << findings.first_overflow << " on";
}

}  // namespace gradring::transport

namespace gradring::fold_kinds {

struct Kind {
  Dtype dtype;
  ReduceOp op;
};

inline std::string describe(const Kind& kind) {
  return std::string(name_of(kind.op)) + " of " + std::string(name_of(kind.dtype));
}

inline std::vector<Kind> all_kinds() {
  std::vector<Kind> kinds;
  for (uint8_t dtype = 1; dtype <= kDtypeLast; ++dtype) {
    for (uint8_t op = 1; op <= kReduceOpLast; ++op) {
      const Kind kind = {static_cast<Dtype>(dtype), static_cast<ReduceOp>(op)};
      if (can_reduce(kind.dtype, kind.op).ok()) kinds.push_back(kind);
    }
  }
  return kinds;
}

// Half of the elements are random bits, so that every NaN, infinity and subnormal comes up. The
// others have zeros or ones but for a first byte out of a few: equal values, zeros of both signs,
// extremes.
inline void fill(std::mt19937_64& random, size_t element, std::byte* at, size_t count) {
  static constexpr std::array<uint8_t, 7> kFirst = {0x00, 0x80, 0x7f, 0xff, 0x3f, 0x01, 0xbf};
  for (size_t i = 0; i < count; ++i, at += element) {
    uint64_t bits = random();
    if (random() % 2 == 0) {
      bits = random() % 4 == 0 ? ~uint64_t{0} : 0;
      std::memcpy(reinterpret_cast<char*>(&bits) + element - 1, &kFirst[random() % 7], 1);
    }
    std::memcpy(at, &bits, element);
  }
}

}  // namespace gradring::fold_kinds
