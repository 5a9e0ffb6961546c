#include "tests/tools/schema.h"

#include <fstream>
#include <set>

namespace gradring::tools {
namespace {

using nlohmann::json;

bool has_type(const json& document, const std::string& type) {
  if (type == "object") return document.is_object();
  if (type == "array") return document.is_array();
  if (type == "string") return document.is_string();
  if (type == "boolean") return document.is_boolean();
  if (type == "integer") return document.is_number_integer();
  return type == "number" && document.is_number();
}

std::string offence_of_members(const json& schema, const json& document, const std::string& path) {
  const json properties = schema.value("properties", json::object());
  for (const auto& [name, value] : document.items()) {
    const json rest = schema.value("additionalProperties", json(true));
    const json& rule = properties.contains(name) ? properties[name] : rest;
    if (rule == json(false)) return path + "." + name + " is not in the schema";
    if (rule == json(true)) continue;
    if (auto bad = offence(rule, value, path + "." + name); !bad.empty()) return bad;
  }
  for (const auto& name : schema.value("required", json::array())) {
    if (!document.contains(name)) return path + "." + name.get<std::string>() + " is missing";
  }
  return "";
}

}  // namespace

std::string offence(const json& schema, const json& document, const std::string& path) {
  static const std::set<std::string> kKnown = {
      "$schema",    "title",    "description",          "type", "const", "minimum",
      "properties", "required", "additionalProperties", "items"};
  for (const auto& [keyword, value] : schema.items()) {
    if (!kKnown.contains(keyword)) return path + ": the schema uses " + keyword;
  }
  if (schema.contains("const") && document != schema["const"]) return path + " has another value";
  if (schema.contains("type") && !has_type(document, schema["type"])) {
    return path + " is not of type " + schema["type"].get<std::string>();
  }
  if (schema.contains("minimum") && document < schema["minimum"]) return path + " is too small";
  if (document.is_object()) return offence_of_members(schema, document, path);
  for (size_t i = 0; document.is_array() && i < document.size(); ++i) {
    auto bad = offence(schema["items"], document[i], path + "[" + std::to_string(i) + "]");
    if (!bad.empty()) return bad;
  }
  return "";
}

json schema_of(const std::string& name) {
  std::ifstream file(std::string(GRADRING_SCHEMA_DIR) + "/" + name + ".json");
  return json::parse(file);
}

}  // namespace gradring::tools
