#include "daemon/control/nonfinite_report.h"

#include <fmt/format.h>

#include <algorithm>

namespace gradring::daemon {
namespace {

using Kind = NonfiniteOrigin::Kind;

const char* wire_name_of(Kind kind) {
  switch (kind) {
    case Kind::kNan:
      return "nan";
    case Kind::kInfinity:
      return "infinity";
    case Kind::kOverflow:
      return "overflow";
  }
  return "";
}

}  // namespace

std::string describe(const NonfiniteOrigin& origin) {
  const std::string op = origin.name.empty()
                             ? gradring::describe(origin.key)
                             : fmt::format("op {:?} use {}", origin.name, origin.key.sequence);
  if (origin.kind == Kind::kOverflow) {
    return fmt::format(
        "first overflow in a sum of this node: {} element {}; its inputs were finite", op,
        origin.element);
  }
  return fmt::format("first {} of this node's ranks: rank {}{}, {} element {}",
                     origin.kind == Kind::kNan ? "NaN" : "infinity", origin.rank,
                     origin.pid != 0 ? fmt::format(" (pid {})", origin.pid) : "", op,
                     origin.element);
}

wire::NonfiniteReport report_of(const NonfiniteOrigin& origin, const std::string& node,
                                core::Time now) {
  wire::NonfiniteReport report;
  report.set_kind(wire_name_of(origin.kind));
  report.set_node(node);
  if (origin.rank != kNoRank) {
    report.set_has_rank(true);
    report.set_rank(origin.rank);
    report.set_pid(origin.pid);
  }
  to_wire(origin.key, report.mutable_key());
  report.set_name(origin.name);
  report.set_element(origin.element);
  constexpr core::Time kMicrosecond = core::kMillisecond / 1000;
  report.set_age_us(static_cast<uint64_t>(std::max<core::Time>(now - origin.at, 0) / kMicrosecond));
  return report;
}

}  // namespace gradring::daemon
