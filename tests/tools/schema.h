#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace gradring::tools {

// Judges a document by a JSON Schema, as far as the schemas in tools/schema go: type, const,
// minimum, properties, required, additionalProperties, items. Returns the first offence as a path
// and a sentence, empty if there is none. A keyword it does not know is an offence too, so that no
// schema promises what nobody checks.
std::string offence(const nlohmann::json& schema, const nlohmann::json& document,
                    const std::string& path = "$");

// tools/schema/NAME.json of the source.
nlohmann::json schema_of(const std::string& name);

}  // namespace gradring::tools
