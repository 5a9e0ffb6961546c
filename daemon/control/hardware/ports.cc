#include "daemon/control/hardware/ports.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "daemon/notice.h"

namespace gradring::daemon {
namespace {

using machine::PortChange;
using machine::PortCounter;
using machine::PortId;

bool is_state(PortChange change) {
  return change == PortChange::kDown || change == PortChange::kActive ||
         change == PortChange::kGone;
}

PortId port_named(const std::string& name, bool rdma) {
  const size_t colon = name.rfind(':');
  uint32_t number = 0;
  if (rdma && colon != std::string::npos) {
    std::from_chars(name.data() + colon + 1, name.data() + name.size(), number);
  }
  return number == 0 ? PortId{name, 0} : PortId{name.substr(0, colon), number};
}

// What it is, and what to do; of an interface, or of a port of an RDMA device.
std::string words_of(PortChange change, bool rdma) {
  switch (change) {
    case PortChange::kDown:
      return rdma ? "is down: look at cable, switch port and `rdma link`"
                  : "is down: look at cable, switch port and `ip link`";
    case PortChange::kActive:
      return "is active again";
    case PortChange::kGone:
      return "is gone: its driver gave it up, or somebody took it away; see dmesg";
    case PortChange::kAddresses:
      return "has other addresses (GIDs) now: what is connected by one that went is lost, and "
             "gradringd may have to be restarted";
    case PortChange::kLid:
      return "has another address (LID) in the subnet now";
    case PortChange::kPartitions:
      return "is in other partitions (P_Keys) now";
    case PortChange::kSubnetManager:
      return "has another subnet manager now";
    case PortChange::kReregistration:
      return "was told by its subnet manager to register again";
  }
  return "has changed";
}

void add_counters(const machine::PortReading& reading,
                  google::protobuf::RepeatedPtrField<wire::PortCounterReport>* to) {
  for (size_t i = 0; i < machine::kPortCounters; ++i) {
    const auto counter = static_cast<PortCounter>(i);
    const auto& value = reading.last[counter];
    if (!value) continue;
    const uint64_t first = reading.first[counter].value_or(0);
    wire::PortCounterReport* one = to->Add();
    one->set_name(name_of(counter));
    one->set_value(*value);
    one->set_of_daemon(*value >= first ? *value - first : *value);
    one->set_per_second(rate_of(reading, counter));
  }
}

uint64_t milliseconds_between(core::Time from, core::Time to) {
  return static_cast<uint64_t>(std::max<core::Time>(to - from, 0) / core::kMillisecond);
}

}  // namespace

std::vector<PortId> ports_of_lane(const std::string& device) {
  const size_t kind = device.rfind(" (");
  const bool rdma = kind != std::string::npos && device.substr(kind) == " (RDMA)";
  std::vector<PortId> ports;
  std::string rest = device.substr(0, kind);
  while (!rest.empty()) {
    const size_t comma = rest.find(", ");
    ports.push_back(port_named(rest.substr(0, comma), rdma));
    rest = comma == std::string::npos ? "" : rest.substr(comma + 2);
  }
  return ports;
}

std::vector<PortId> ports_of_lanes(const std::vector<std::string>& lanes) {
  std::vector<PortId> all;
  for (const std::string& lane : lanes) {
    for (PortId& port : ports_of_lane(lane)) all.push_back(std::move(port));
  }
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

std::string name_of(const PortId& port) {
  return port.number == 0 ? port.device : fmt::format("{}:{}", port.device, port.number);
}

Ports::Ports(const std::vector<std::string>& lanes, machine::PortWatch* watch) : watch_(watch) {
  for (PortId& port : ports_of_lanes(lanes)) ports_.push_back({.id = std::move(port)});
  for (const std::string& device : lanes) {
    Lane& lane = lanes_.emplace_back();
    lane.device = device;
    for (const PortId& port : ports_of_lane(device)) {
      const auto it = std::find_if(ports_.begin(), ports_.end(),
                                   [&](const Port& one) { return one.id == port; });
      lane.ports.push_back(static_cast<size_t>(it - ports_.begin()));
    }
  }
}

std::vector<Ports::LaneChange> Ports::take() {
  std::vector<LaneChange> changes;
  if (watch_ == nullptr) return changes;
  for (const machine::PortNews& news : watch_->take()) {
    for (LaneChange& change : heard(news)) changes.push_back(std::move(change));
  }
  return changes;
}

std::vector<Ports::LaneChange> Ports::heard(const machine::PortNews& news) {
  std::vector<LaneChange> changes;
  const auto it = std::find_if(ports_.begin(), ports_.end(),
                               [&](const Port& one) { return one.id == news.port; });
  if (it == ports_.end()) return changes;
  ++it->changes[static_cast<size_t>(news.change)];
  it->last = news.change;
  it->last_at = news.at;
  if (is_state(news.change)) {
    it->state = news.change;
    it->since = news.at;
  }
  say(*it, news.change);
  for (size_t i = 0; i < lanes_.size(); ++i) {
    Lane& lane = lanes_[i];
    const bool down = std::all_of(lane.ports.begin(), lane.ports.end(), [&](size_t port) {
      return ports_[port].state != PortChange::kActive;
    });
    if (std::exchange(lane.down, down) == down) continue;
    const char* state = news.change == PortChange::kGone ? "gone" : "down";
    changes.push_back({static_cast<uint8_t>(i), down,
                       down ? fmt::format("its port {} is {}", name_of(it->id), state) : ""});
  }
  return changes;
}

std::string Ports::lanes_of(size_t port) const {
  std::string text;
  for (size_t i = 0; i < lanes_.size(); ++i) {
    const auto& ports = lanes_[i].ports;
    if (std::find(ports.begin(), ports.end(), port) == ports.end()) continue;
    text += fmt::format("{}{}", text.empty() ? "" : ", ", i);
  }
  return text;
}

void Ports::say(const Port& port, PortChange change) const {
  const bool bad = change == PortChange::kDown || change == PortChange::kGone;
  const Notice notice = bad                             ? Notice::kPortDown
                        : change == PortChange::kActive ? Notice::kPortActive
                                                        : Notice::kPortChanged;
  const std::string name = name_of(port.id);
  const std::string lanes = lanes_of(static_cast<size_t>(&port - ports_.data()));
  tell(notice, bad ? spdlog::level::warn : spdlog::level::info,
       {{"GRADRING_PORT", name}, {"GRADRING_LANE", lanes}, {"GRADRING_CHANGE", name_of(change)}},
       fmt::format("port {} of lane {} {}", name, lanes, words_of(change, port.id.number != 0)));
}

void Ports::add_to(wire::TopologyReport* report, core::Time now) const {
  const auto readings = watch_ == nullptr ? decltype(watch_->readings())() : watch_->readings();
  // Those of the look at the machine are as old as the daemon.
  for (wire::NicReport& nic : *report->mutable_machine()->mutable_nics()) {
    for (int i = 0; i < nic.rdma().ports_size(); ++i) {
      wire::RdmaPortReport* port = nic.mutable_rdma()->mutable_ports(i);
      const auto it = readings.find({nic.rdma().name(), port->number()});
      if (it == readings.end() || !report->machine().recording().empty()) continue;
      port->clear_counters();
      add_counters(it->second, port->mutable_counters());
    }
  }
  for (size_t i = 0; i < lanes_.size() && i < static_cast<size_t>(report->lanes_size()); ++i) {
    for (const size_t number : lanes_[i].ports) {
      const Port& port = ports_[number];
      wire::PortReport* to = report->mutable_lanes(static_cast<int>(i))->add_ports();
      to->set_port(name_of(port.id));
      to->set_state(name_of(port.state));
      if (port.since != 0) to->set_state_ms(milliseconds_between(port.since, now));
      for (const uint64_t count : port.changes) to->set_changes(to->changes() + count);
      if (port.last_at != 0) {
        to->set_last_change(name_of(port.last));
        to->set_last_change_ms(milliseconds_between(port.last_at, now));
      }
      const auto it = readings.find(port.id);
      if (it != readings.end()) add_counters(it->second, to->mutable_counters());
    }
  }
}

void Ports::add_to(wire::PeersReport* report) const {
  const auto readings = watch_ == nullptr ? decltype(watch_->readings())() : watch_->readings();
  for (wire::PeerReport& peer : *report->mutable_peers()) {
    for (size_t i = 0; i < lanes_.size() && i < static_cast<size_t>(peer.lanes_size()); ++i) {
      wire::LaneReport* lane = peer.mutable_lanes(static_cast<int>(i));
      lane->set_port_state(name_of(lanes_[i].down ? PortChange::kDown : PortChange::kActive));
      for (const size_t port : lanes_[i].ports) {
        const auto it = readings.find(ports_[port].id);
        if (it == readings.end()) continue;
        const machine::PortReading& reading = it->second;
        lane->set_port_counted(lane->port_counted() || reading.last.any());
        lane->set_retransmits_per_second(lane->retransmits_per_second() +
                                         rate_of(reading, PortCounter::kRetransmits));
        lane->set_pauses_per_second(lane->pauses_per_second() +
                                    rate_of(reading, PortCounter::kPausesReceived));
      }
    }
  }
}

std::vector<metrics::PortSeries> Ports::series() const {
  const auto readings = watch_ == nullptr ? decltype(watch_->readings())() : watch_->readings();
  std::vector<metrics::PortSeries> all;
  for (const Port& port : ports_) {
    metrics::PortSeries& one = all.emplace_back();
    one.device = port.id.device;
    one.port = port.id.number;
    one.active = port.state == PortChange::kActive;
    for (size_t i = 0; i < machine::kPortChanges; ++i) {
      one.changes.emplace_back(name_of(static_cast<PortChange>(i)), port.changes[i]);
    }
    const auto it = readings.find(port.id);
    for (size_t i = 0; it != readings.end() && i < machine::kPortCounters; ++i) {
      const auto counter = static_cast<PortCounter>(i);
      const auto& value = it->second.last[counter];
      if (value) one.counters.emplace_back(name_of(counter), *value);
    }
  }
  return all;
}

}  // namespace gradring::daemon
