#pragma once

#include <string_view>

namespace gradring::tools {

// Writes all of it to stdout, at once. False if that cannot be, as on a disk that is full: what
// fmt::print throws then would end the program by a signal.
[[nodiscard]] bool put_out(std::string_view text);

}  // namespace gradring::tools
