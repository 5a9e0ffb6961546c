#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "client.pb.h"

namespace gradring::tools {

// "sums go by 64K:parts (searched)", and of each size what was compared with what. Ends a line.
std::string describe(const wire::TuningReport& tuning);

nlohmann::ordered_json json_of(const wire::TuningReport& tuning);

}  // namespace gradring::tools
