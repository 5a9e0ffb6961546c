#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace gradring::tools {

// A number of bytes as people write it: digits and at most one of K, M, G, T (powers of 1024; "KiB"
// and the like are good as well). Nothing is returned for anything else, or for more than 2^63.
std::optional<uint64_t> parse_size(std::string_view text);

// "64.0 MiB", "512 B".
std::string format_bytes(uint64_t bytes);

}  // namespace gradring::tools
