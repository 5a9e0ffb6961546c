#include "tests/scale/machine.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace gradring::scale {
namespace {

using nlohmann::json;

const std::map<std::string, double Machine::*>& fields() {
  static const std::map<std::string, double Machine::*> kAll = {
      {"ranks", &Machine::ranks},
      {"processors", &Machine::processors},
      {"helpers", &Machine::helpers},
      {"thread_gbs", &Machine::thread_gbs},
      {"memory_gbs", &Machine::memory_gbs},
      {"bf16_pack_gbs", &Machine::bf16_pack_gbs},
      {"bf16_unpack_gbs", &Machine::bf16_unpack_gbs},
      {"int8_pack_gbs", &Machine::int8_pack_gbs},
      {"int8_unpack_gbs", &Machine::int8_unpack_gbs},
      {"lanes", &Machine::lanes},
      {"lane_gbit", &Machine::lane_gbit},
      {"payload_part", &Machine::payload_part},
      {"burst_bytes", &Machine::burst_bytes},
      {"latency_us", &Machine::latency_us},
      {"send_us", &Machine::send_us},
      {"receive_us", &Machine::receive_us},
      {"send_copy_gbs", &Machine::send_copy_gbs},
      {"receive_copy_gbs", &Machine::receive_copy_gbs},
      {"socket_bytes", &Machine::socket_bytes},
      {"slice_us", &Machine::slice_us},
      {"submit_us", &Machine::submit_us},
      {"complete_us", &Machine::complete_us},
      {"wake_us", &Machine::wake_us},
      {"look_on_us", &Machine::look_on_us},
      {"device_gbs", &Machine::device_gbs},
      {"local_us", &Machine::local_us},
      {"slice_bytes", &Machine::slice_bytes},
      {"slots", &Machine::slots},
  };
  return kAll;
}

// An entry "FIELD": [NUMBER, "where it comes from"].
void take_field(Machine* machine, const std::string& name, const json& entry) {
  if (!set_field(machine, name, entry.at(0).get<double>())) {
    throw std::runtime_error("machine " + machine->name + " has an unknown field " + name);
  }
  machine->because[name] = entry.at(1).get<std::string>();
}

Machine read_machine(const json& entry, const Machines& known) {
  Machine machine;
  const auto like = entry.find("like");
  if (like != entry.end()) {
    const auto model = known.find(like->get<std::string>());
    if (model == known.end()) {
      throw std::runtime_error("there is no machine " + like->get<std::string>() + " before " +
                               entry.at("name").get<std::string>());
    }
    machine = model->second;
  }
  machine.name = entry.at("name").get<std::string>();
  machine.what = entry.at("what").get<std::string>();
  machine.shared = entry.value("shared", machine.shared);
  for (const auto& [name, field] : entry.at("costs").items()) take_field(&machine, name, field);
  for (const auto& [name, member] : fields()) {
    if (machine.because.count(name) == 0) {
      throw std::runtime_error("machine " + machine.name + " does not say " + name);
    }
  }
  return machine;
}

}  // namespace

bool set_field(Machine* machine, const std::string& field, double value) {
  const auto it = fields().find(field);
  if (it == fields().end()) return false;
  machine->*(it->second) = value;
  return true;
}

double Machine::pack_rate(WireType wire) const {
  if (wire == WireType::kNative) return 0;
  return wire == WireType::kInt8 ? int8_pack_gbs : bf16_pack_gbs;
}

double Machine::unpack_rate(WireType wire) const {
  if (wire == WireType::kNative) return 0;
  return wire == WireType::kInt8 ? int8_unpack_gbs : bf16_unpack_gbs;
}

core::EngineOptions Machine::engine() const {
  core::EngineOptions options;
  options.plan.slice_bytes_max = static_cast<uint32_t>(slice_bytes);
  options.plan.slice_bytes_alone = 1 << 20;  // this and the next two: as gradringd has them
  options.plan.direct_members_max = core::kReadyTreeAbove;
  options.plan.tree_max = 64 << 10;
  options.slots = static_cast<uint32_t>(slots);
  return options;
}

Machines read_machines(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error(path + " cannot be read");
  Machines machines;
  try {
    const json all = json::parse(file);
    for (const json& entry : all.at("machines")) {
      Machine machine = read_machine(entry, machines);
      const std::string name = machine.name;
      machines.emplace(name, std::move(machine));
    }
  } catch (const std::exception& error) {
    throw std::runtime_error(path + ": " + error.what());
  }
  return machines;
}

}  // namespace gradring::scale
