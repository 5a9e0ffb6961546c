#include "tools/ctl/top/json.h"

#include <optional>

#include "tools/ctl/command.h"

namespace gradring::tools::top {
namespace {

using Json = nlohmann::ordered_json;

// What is not known is left out.
void add(const char* name, const std::optional<double>& value, Json* to) {
  if (value) (*to)[name] = *value;
}

Json json_of(const Node& node) {
  auto limits = Json::array();
  for (const Limit& limit : node.limits) {
    limits.push_back(
        {{"name", limit.name}, {"used", limit.used}, {"cap", limit.cap}, {"unit", limit.unit}});
  }
  return {{"node", node.node},
          {"state", node.state},
          {"version", node.version},
          {"uptime_seconds", seconds(node.uptime_ms)},
          {"limits", limits}};
}

Json json_of(const Rank& rank) {
  Json json = {{"rank", rank.rank},
               {"node", rank.node},
               {"pid", rank.pid},
               {"state", rank.state},
               {"process_state", rank.process_state},
               {"ops_submitted", rank.ops_submitted},
               {"quiet_seconds", seconds(rank.quiet_ms)}};
  if (rank.step) {
    json["step"] = {{"seconds", rank.step->seconds},
                    {"exposed", rank.step->exposed},
                    {"straggler", rank.step->straggler},
                    {"late", rank.step->late},
                    {"late_seconds", rank.step->late_seconds}};
  }
  return json;
}

Json json_of(const OpenOp& op) {
  auto ranks = Json::array();
  auto nodes = Json::array();
  for (const Awaited& who : op.waiting_for) {
    if (who.is_rank) {
      ranks.push_back(who.rank);
    } else {
      nodes.push_back(who.node);
    }
  }
  return {{"name", op.name},
          {"sequence", op.sequence},
          {"signature", op.signature},
          {"age_seconds", seconds(op.age_ms)},
          {"waits_for", name_of(op.waits_for)},
          {"ranks", ranks},
          {"nodes", nodes}};
}

Json json_of(const Job& job) {
  auto ranks = Json::array();
  for (const Rank& rank : job.ranks) ranks.push_back(json_of(rank));
  Json json = {{"name", job.name},     {"incarnation", job.incarnation},
               {"state", job.state},   {"epoch", job.epoch},
               {"policy", job.policy}, {"explanation", job.explanation},
               {"size", job.size},     {"nodes", job.nodes}};
  add("ops_per_second", job.ops_per_second, &json);
  add("bytes_per_second", job.bytes_per_second, &json);
  add("bus_bytes_per_second", job.bus_bytes_per_second, &json);
  add("exposed", job.exposed, &json);
  if (job.straggler) json["straggler"] = tools::json_of(*job.straggler);
  if (job.oldest) json["oldest_op"] = json_of(*job.oldest);
  json["ranks"] = ranks;
  return json;
}

Json json_of(const Link& link) {
  Json json = {{"from", link.from},
               {"to", link.to},
               {"device", link.device},
               {"state", link.state},
               {"reason", link.reason}};
  add("sent_bytes_per_second", link.sent_per_second, &json);
  add("received_bytes_per_second", link.received_per_second, &json);
  add("rtt_seconds", link.rtt_seconds, &json);
  return json;
}

template <typename Items>
Json list_of(const Items& items) {
  auto list = Json::array();
  for (const auto& item : items) list.push_back(json_of(item));
  return list;
}

}  // namespace

nlohmann::ordered_json json_of(const Model& model) {
  return {{"node", model.here},
          {"nodes", list_of(model.nodes)},
          {"jobs", list_of(model.jobs)},
          {"links", list_of(model.links)},
          {"left_out", model.left_out}};
}

}  // namespace gradring::tools::top
