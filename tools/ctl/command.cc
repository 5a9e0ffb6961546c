#include "tools/ctl/command.h"

#include <fmt/format.h>

#include <algorithm>

#include "tools/common/text.h"

namespace gradring::tools {

std::string Style::paint(std::string_view code, std::string_view text) const {
  return colour ? fmt::format("\x1b[{}m{}\x1b[0m", code, text) : std::string(text);
}

nlohmann::ordered_json document_of(const Answer& answer) {
  nlohmann::ordered_json document = {{"schema_version", kSchemaVersion}};
  document.update(answer.json);
  document["healthy"] = answer.problems.empty();
  document["problems"] = answer.problems;
  return document;
}

Status no_arguments(const Arguments& arguments) {
  if (arguments.empty()) return Status();
  return Status(Code::kInvalidArgument,
                fmt::format("it takes no argument, but \"{}\" was given", printable(arguments[0])));
}

Arguments without_bar(const Arguments& arguments) {
  Arguments words = arguments;
  const auto bar = std::ranges::find(words, "--");
  if (bar != words.end()) words.erase(bar);
  return words;
}

double seconds(uint64_t milliseconds) { return static_cast<double>(milliseconds) / 1000; }

}  // namespace gradring::tools
