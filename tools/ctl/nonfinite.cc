#include "tools/ctl/nonfinite.h"

#include <fmt/format.h>

#include <algorithm>

#include "tools/common/text.h"
#include "tools/ctl/command.h"

namespace gradring::tools {

std::string describe(const wire::NonfiniteReport& origin) {
  const std::string op =
      origin.name().empty()
          ? fmt::format("op {}", origin.key().sequence())
          : fmt::format("op '{}' use {}", printable(origin.name()), origin.key().sequence());
  const std::string where =
      fmt::format("{} element {}, {}", op, origin.element(), format_ago(origin.age_us() / 1000));
  if (!origin.has_rank()) {
    return fmt::format(
        "first overflow: node {}, {}; all values were finite, their sum was not (in its type, or "
        "in that of the wire)",
        printable(origin.node()), where);
  }
  return fmt::format("first {}: {}, {}", origin.kind() == "nan" ? "NaN" : printable(origin.kind()),
                     rank_at(origin.rank(), origin.node(), origin.pid()), where);
}

nlohmann::ordered_json json_of(const wire::NonfiniteReport& origin) {
  nlohmann::ordered_json json = {{"kind", origin.kind()}, {"node", origin.node()}};
  if (origin.has_rank()) json.update({{"rank", origin.rank()}, {"pid", origin.pid()}});
  json.update({{"name", origin.name()},
               {"sequence", origin.key().sequence()},
               {"element", origin.element()},
               {"age_seconds", seconds(origin.age_us() / 1000)}});
  return json;
}

bool any_nonfinite(const wire::JobReport& report) {
  return std::ranges::any_of(report.ranks(),
                             [](const wire::RankReport& rank) { return rank.nonfinite() != 0; });
}

}  // namespace gradring::tools
