#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "client.pb.h"

namespace gradring::tools {

// "first NaN: rank 3 (node b, pid 47), op 'grad.7' use 2 element 12034, 12 s ago"
std::string describe(const wire::NonfiniteReport& origin);

nlohmann::ordered_json json_of(const wire::NonfiniteReport& origin);

// Whether any rank's inputs were not finite: else there is nothing to show of them.
bool any_nonfinite(const wire::JobReport& report);

}  // namespace gradring::tools
