#include "tools/ctl/tuning.h"

#include <fmt/format.h>

#include "tools/common/size.h"
#include "tools/common/table.h"
#include "tools/common/text.h"

namespace gradring::tools {
namespace {

std::string name_of_size(const wire::TunedSize& size) {
  if (size.up_to_bytes() == 0) return "above that";
  return "up to " + format_bytes(size.up_to_bytes());
}

std::string result_of(const wire::TunedSize& size) {
  if (size.before().empty()) return "nothing better was found";
  return fmt::format("{:.0f} % less time than {} (medians of {} each)", 100 * size.gain(),
                     printable(size.before()), size.samples());
}

std::string trial_of(const wire::TunedSize& size) {
  if (size.tried().empty()) return size.left() == 0 ? "-" : fmt::format("{} left", size.left());
  return fmt::format("{}, then {} more", printable(size.tried()), size.left());
}

}  // namespace

std::string describe(const wire::TuningReport& tuning) {
  std::string text =
      fmt::format("sums go by {} ({})\n", printable(tuning.table()), printable(tuning.state()));
  Table table({{"sums"}, {"go by"}, {"because"}, {"on trial"}});
  for (const wire::TunedSize& size : tuning.sizes()) {
    const bool open = size.before().empty() && (!size.tried().empty() || size.left() > 0);
    table.add(
        {name_of_size(size), printable(size.way()), open ? "-" : result_of(size), trial_of(size)});
  }
  return table.empty() ? text : text + table.str();
}

nlohmann::ordered_json json_of(const wire::TuningReport& tuning) {
  auto sizes = nlohmann::ordered_json::array();
  for (const wire::TunedSize& size : tuning.sizes()) {
    nlohmann::ordered_json one = {{"up_to_bytes", size.up_to_bytes()}, {"way", size.way()}};
    if (!size.before().empty()) {
      one.update({{"before", size.before()}, {"gain", size.gain()}, {"samples", size.samples()}});
    }
    if (!size.tried().empty()) one["tried"] = size.tried();
    one["left"] = size.left();
    sizes.push_back(one);
  }
  return {{"state", tuning.state()}, {"table", tuning.table()}, {"sizes", sizes}};
}

}  // namespace gradring::tools
