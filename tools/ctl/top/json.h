#pragma once

#include <nlohmann/json.hpp>

#include "tools/ctl/top/model.h"

namespace gradring::tools::top {

// The model for scripts, as tools/schema/top.json says; what is not known is left out.
nlohmann::ordered_json json_of(const Model& model);

}  // namespace gradring::tools::top
