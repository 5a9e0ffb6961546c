#include <yaml-cpp/yaml.h>

#include <algorithm>

#include "transport/machine/recording.h"

namespace gradring::machine {
namespace {

// Left to itself the emitter writes some control characters as they are, which are read as spaces.
void put_text(YAML::Emitter* out, const std::string& text) {
  const bool controls = std::any_of(text.begin(), text.end(), [](char c) { return c < ' '; });
  if (controls) *out << YAML::DoubleQuoted;
  *out << text;
}

void put(YAML::Emitter* out, const char* key, const std::string& value) {
  if (value.empty()) return;
  *out << YAML::Key << key << YAML::Value;
  put_text(out, value);
}

void put(YAML::Emitter* out, const char* key, uint64_t value) {
  if (value != 0) *out << YAML::Key << key << YAML::Value << value;
}

void put(YAML::Emitter* out, const char* key, const std::optional<PciAddress>& pci) {
  if (pci) put(out, key, text_of(*pci));
}

template <typename List, typename Item>
void put_list(YAML::Emitter* out, const char* key, const List& list, Item item) {
  if (list.empty()) return;
  *out << YAML::Key << key << YAML::Value << YAML::BeginSeq;
  for (const auto& one : list) item(one);
  *out << YAML::EndSeq;
}

void put_gpu(YAML::Emitter* out, const NvmlGpu& gpu) {
  *out << YAML::BeginMap;
  put(out, "pci", text_of(gpu.pci));
  put(out, "name", gpu.name);
  put(out, "uuid", gpu.uuid);
  put(out, "memory_bytes", gpu.memory_bytes);
  // Equal ones that follow one another are one line.
  std::vector<std::pair<NvLinkEnd, uint64_t>> runs;
  for (const NvLinkEnd& end : gpu.nvlinks) {
    if (runs.empty() || !(runs.back().first == end)) runs.emplace_back(end, 0);
    ++runs.back().second;
  }
  put_list(out, "nvlinks", runs, [&](const auto& run) {
    *out << YAML::Flow << YAML::BeginMap;
    put(out, "to", run.first.to_switch ? std::string("switch") : text_of(run.first.gpu));
    put(out, "count", run.second);
    *out << YAML::EndMap;
  });
  *out << YAML::EndMap;
}

void put_port(YAML::Emitter* out, const RdmaPort& port) {
  *out << YAML::BeginMap;
  put(out, "number", port.number);
  put(out, "state", port.state);
  put(out, "link_layer", port.link_layer);
  put(out, "rate_bps", port.rate_bps);
  put(out, "mtu", port.mtu);
  put_list(out, "gids", port.gids, [&](const Gid& gid) {
    *out << YAML::Flow << YAML::BeginMap;
    put(out, "index", gid.index);
    put(out, "type", gid.type);
    put(out, "address", gid.address);
    put(out, "interface", gid.interface);
    *out << YAML::EndMap;
  });
  if (port.counters.any()) {
    *out << YAML::Key << "counters" << YAML::Value << YAML::Flow << YAML::BeginMap;
    for (size_t i = 0; i < kPortCounters; ++i) {
      const auto& value = port.counters.values[i];  // 0 as well: that it is counted says something
      if (value) *out << YAML::Key << name_of(static_cast<PortCounter>(i)) << YAML::Value << *value;
    }
    *out << YAML::EndMap;
  }
  *out << YAML::EndMap;
}

void put_net(YAML::Emitter* out, const NetDevice& device) {
  *out << YAML::BeginMap;
  put(out, "name", device.name);
  put(out, "pci", device.pci);
  *out << YAML::Key << "up" << YAML::Value << device.up;
  put(out, "rate_bps", device.rate_bps);
  put(out, "mtu", device.mtu);
  put(out, "bond", device.bond);
  put_list(out, "addresses", device.addresses, [&](const std::string& one) { put_text(out, one); });
  *out << YAML::EndMap;
}

}  // namespace

std::string yaml_of(const Answers& answers) {
  YAML::Emitter out;
  out.SetOutputCharset(YAML::EscapeNonAscii);
  out << YAML::BeginMap << YAML::Key << "gradring-machine" << YAML::Value << 1;
  put(&out, "host", answers.host);
  out << YAML::Key << "nvml" << YAML::Value << YAML::BeginMap;
  put(&out, "absent", answers.nvml.absent);
  put(&out, "driver", answers.nvml.driver);
  put_list(&out, "gpus", answers.nvml.gpus, [&](const NvmlGpu& gpu) { put_gpu(&out, gpu); });
  out << YAML::EndMap;
  put_list(&out, "rdma", answers.rdma, [&](const RdmaDevice& device) {
    out << YAML::BeginMap;
    put(&out, "name", device.name);
    put(&out, "pci", device.pci);
    put_list(&out, "ports", device.ports, [&](const RdmaPort& port) { put_port(&out, port); });
    out << YAML::EndMap;
  });
  put_list(&out, "net", answers.net, [&](const NetDevice& device) { put_net(&out, device); });
  out << YAML::EndMap;
  return std::string(out.c_str()) + "\n";
}

}  // namespace gradring::machine
