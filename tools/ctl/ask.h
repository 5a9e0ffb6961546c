#pragma once

#include <string>
#include <tl/expected.hpp>

#include "client.pb.h"
#include "proto/status.h"

namespace gradring::tools {

// Puts one question to the daemon of `runtime_dir` and waits for the answer, three seconds at most.
// Errors: UNAVAILABLE at once when nobody listens there, PERMISSION_DENIED at once when the socket
// may not be used, DEADLINE_EXCEEDED when the daemon does not answer, INCOMPATIBLE when the answer
// makes no sense, and whatever the daemon itself refuses with. Every message says what to do.
tl::expected<wire::QueryReply, Status> ask(const std::string& runtime_dir,
                                           const wire::Query& query);

}  // namespace gradring::tools
