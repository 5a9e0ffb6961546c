#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "tools/ctl/command.h"

namespace gradring::tools {

struct DrainWanted {
  bool cancel = false;
  std::optional<uint64_t> timeout_ms;
};
// Errors: INVALID_ARGUMENT.
tl::expected<DrainWanted, Status> parse_drain(const Arguments& arguments);

// How a drain ended, as far as was seen.
struct DrainEnd {
  std::string node;
  // kGone: without a word. kUnasked: its daemon may well be there. kForgotten: by the next one.
  enum class How : uint8_t {
    kDrained,
    kCancelled,
    kForgotten,
    kGone,
    kUnasked
  } how = How::kDrained;
  std::vector<std::string> cut_off;  // jobs that had not ended by themselves
  std::string why;                   // it was not seen
  uint64_t took_ms = 0;
};
Answer show(const DrainEnd& end, const Style& style);

// "node n0 drains: 2 jobs left (a, b), 12 s left"
std::string describe(const wire::DrainReport& report);

}  // namespace gradring::tools
