#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <vector>

#include "tools/ctl/ask.h"
#include "tools/ctl/command.h"

namespace gradring::tools {

struct EventsWanted {
  bool follow = false;
  bool all = false;  // of all nodes
  std::optional<uint64_t> since_ms;
};
// Errors: INVALID_ARGUMENT.
tl::expected<EventsWanted, Status> parse_events(const Arguments& arguments);

// "90", "90s", "10m", "2h" and "3d", as milliseconds.
std::optional<uint64_t> parse_age(std::string_view text);

struct Happened {
  std::string node;
  uint64_t age_ms = 0;  // when it was asked about
  wire::EventReport event;
};

// Remembers up to where each node's events are known.
class EventReader {
 public:
  // What to ask a node next.
  wire::Query query_for(const std::string& node) const;
  // What is new in the answers, oldest first. Sentences about what is missing go to `problems`.
  std::vector<Happened> take(const std::vector<NodeReply>& replies,
                             std::vector<std::string>* problems);

 private:
  struct Known {
    uint64_t life = 0;
    uint64_t number = 0;
  };
  std::map<std::string, Known> known_;
};

nlohmann::ordered_json to_json(const Happened& happened);
// With the node of each if there are several.
Answer show(const std::vector<Happened>& events, bool all, const Style& style);
// One line, as --follow prints them.
std::string line_of(const Happened& happened, bool all, const Style& style);

}  // namespace gradring::tools
