// What happened on this node, for those who ask.

#include "daemon/control/queries/queries.h"

namespace gradring::daemon {

wire::EventsReport Queries::events_report(uint64_t after) const {
  wire::EventsReport report;
  report.set_node(config_.node);
  report.set_life(static_cast<uint64_t>(facts_.started));
  const EventRing::Part part = parts_.happened->after(after);
  report.set_forgotten(part.forgotten);
  for (const NodeEvent& event : part.events) {
    wire::EventReport* to = report.add_events();
    to->set_number(event.number);
    to->set_at(event.at);
    to->set_wall(event.wall);
    to->set_kind(event.kind);
    to->set_level(event.level);
    to->set_text(event.text);
    for (const auto& [name, value] : event.about) {
      wire::EventField* field = to->add_about();
      field->set_name(name);
      field->set_value(value);
    }
  }
  return report;
}

}  // namespace gradring::daemon
