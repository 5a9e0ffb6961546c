#pragma once

#include <cstdint>
#include <string>
#include <tl/expected.hpp>

#include "daemon/core/tuning.h"

namespace gradring::daemon {

// How people write a table: "64K:parts,1M:128K,rest:ring" is for ops up to each size, and above the
// one before; "rest" are all others. A way is default, ring, whole, parts, or the size of slices on
// the ring. "default" alone is the empty table. Nothing of what is tried, and not whether it is
// fixed. An error says in one line what would be right.
tl::expected<core::Tuning, std::string> parse_tuning(const std::string& text);
std::string to_text(const core::Tuning& tuning);
std::string to_text(const core::Choice& choice);
// "64K", or "rest" of the last one.
std::string name_of_size(uint32_t size_class);

}  // namespace gradring::daemon
