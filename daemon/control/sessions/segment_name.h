#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "daemon/core/membership.h"

namespace gradring::daemon {

// Under which a segment's memfd is kept while gradringd restarts: "seg.<session>.<segment>", the
// session in hexadecimal. Short, since thousands of them share one variable (daemon/fd_name.h).
struct SegmentName {
  core::SessionId session = 0;
  uint64_t segment = 0;

  bool operator==(const SegmentName&) const = default;
};

std::string to_string(const SegmentName& name);
// Empty for any other name, and for one that to_string() would not have written.
std::optional<SegmentName> parse_segment_name(std::string_view text);

}  // namespace gradring::daemon
