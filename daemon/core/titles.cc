#include "daemon/core/titles.h"

#include <utility>

namespace gradring::core {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

std::string title_of(const Op& op) {
  if (op.name.empty()) return describe(op.key);
  return "op '" + shown_name(op.name) + "' use " + std::to_string(op.key.sequence);
}

Outcome named(const Op& op, Outcome outcome) {
  if (op.name.empty()) return outcome;
  std::string& evidence = outcome.failure.blame.evidence;
  const std::string by_key = describe(op.key);
  const size_t at = evidence.find(by_key);
  if (at == std::string::npos) return outcome;
  const size_t end = at + by_key.size();
  const bool of_another = end < evidence.size() && is_digit(evidence[end]);  // use 1, of use 12
  if (!of_another) evidence.replace(at, by_key.size(), title_of(op));
  return outcome;
}

}  // namespace gradring::core
