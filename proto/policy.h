#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace gradring {

// What a job does when a part of it is lost. `fail`: it ends, on every rank. `elastic`: it goes on
// with those who are left as long as they are at least `min` ranks, and takes in new ones, up to
// `max`, where all of its trainers have reached a join point.
struct Policy {
  bool elastic = false;
  uint32_t min = 1;
  uint32_t max = 0;  // ranks have numbers below this; 0: below the size they say themselves

  bool operator==(const Policy&) const = default;
};

// "fail", "elastic", "elastic min=2 max=8"; nothing when it is none of these. The empty text is
// "fail".
std::optional<Policy> parse_policy(const std::string& text);
std::string describe(const Policy& policy);

}  // namespace gradring
