#include "proto/policy.h"

#include <charconv>
#include <sstream>

namespace gradring {
namespace {

bool read_number(const std::string& word, const std::string& name, uint32_t* number) {
  if (word.compare(0, name.size(), name) != 0) return false;
  const char* begin = word.data() + name.size();
  const char* end = word.data() + word.size();
  const auto [stop, error] = std::from_chars(begin, end, *number);
  return error == std::errc() && stop == end && *number > 0;
}

}  // namespace

std::optional<Policy> parse_policy(const std::string& text) {
  std::istringstream words(text);
  std::string word;
  Policy policy;
  if (!(words >> word)) return policy;
  if (word != "fail" && word != "elastic") return std::nullopt;
  policy.elastic = word == "elastic";
  while (words >> word) {
    if (!policy.elastic) return std::nullopt;
    if (!read_number(word, "min=", &policy.min) && !read_number(word, "max=", &policy.max)) {
      return std::nullopt;
    }
  }
  if (policy.max != 0 && policy.max < policy.min) return std::nullopt;
  return policy;
}

std::string describe(const Policy& policy) {
  if (!policy.elastic) return "fail";
  std::string text = "elastic min=" + std::to_string(policy.min);
  if (policy.max != 0) text += " max=" + std::to_string(policy.max);
  return text;
}

}  // namespace gradring
