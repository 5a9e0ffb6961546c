#pragma once

#include <string_view>

namespace gradring::client {

// Whether the text is well-formed UTF-8. Messages carry nothing else: one with other bytes in a
// name would be thrown away whole by the daemon.
bool is_utf8(std::string_view text);

}  // namespace gradring::client
