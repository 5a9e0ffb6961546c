#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <limits>
#include <stdexcept>

#include "transport/machine/recording.h"

namespace gradring::machine {
namespace {

constexpr uint32_t kFormat = 1;  // counts incompatible changes
constexpr const char* kFormatKey = "gradring-machine";

constexpr size_t kItemsMax = 4096;      // of one list
constexpr size_t kTextMax = 1024;       // of one value
constexpr unsigned kNvLinksMax = 1024;  // to one neighbour
constexpr unsigned kNestingMax = 64;  // the format's own is 6; a parser that recurses needs a bound

// Leaves the parser with it; goes no further than parse_answers().
struct Fault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

[[noreturn]] void fail(const YAML::Node& node, const std::string& what) {
  const YAML::Mark mark = node.Mark();
  throw Fault(mark.is_null() ? what : fmt::format("line {}: {}", mark.line + 1, what));
}

// yaml-cpp recurses into what is nested, and so would overflow the stack.
bool is_deep(const std::string& text) {
  unsigned depth = 0, indent = 0, steps = 0;
  bool at_start = true;
  for (const char c : text) {
    if (c == '[' || c == '{') ++depth;
    if ((c == ']' || c == '}') && depth > 0) --depth;
    if (c == '\n') {
      at_start = true;
      indent = steps = 0;
    } else if (at_start && (c == ' ' || c == '-' || c == '?' || c == ':')) {
      ++indent;
      steps += c == ' ' ? 0 : 1;
    } else {
      at_start = false;
    }
    if (depth > kNestingMax || steps > kNestingMax || indent > 2 * kNestingMax) return true;
  }
  return false;
}

// What is beyond ASCII is written as an escape: bytes that are no characters would become others.
bool is_plain(char c) { return (c >= ' ' && c <= '~') || c == '\n' || c == '\r' || c == '\t'; }

YAML::Node child(const YAML::Node& node, const char* key) {
  if (!node.IsMap()) fail(node, fmt::format("a map with \"{}\" is expected here", key));
  return node[key];
}

std::string text_at(const YAML::Node& node, const char* key) {
  const YAML::Node value = child(node, key);
  if (!value || value.IsNull()) return "";
  if (!value.IsScalar() || value.Scalar().size() > kTextMax) {
    fail(value, fmt::format("\"{}\" is not a text of up to {} characters", key, kTextMax));
  }
  return value.Scalar();
}

uint64_t number_at(const YAML::Node& node, const char* key,
                   uint64_t most = std::numeric_limits<uint64_t>::max()) {
  const YAML::Node value = child(node, key);
  if (!value || value.IsNull()) return 0;
  uint64_t number = 0;
  const bool good = value.IsScalar() && !value.Scalar().empty() && value.Scalar()[0] != '-' &&
                    YAML::convert<uint64_t>::decode(value, number) && number <= most;
  if (!good) fail(value, fmt::format("\"{}\" is not a number from 0 to {}", key, most));
  return number;
}

bool flag_at(const YAML::Node& node, const char* key) {
  const YAML::Node value = child(node, key);
  bool flag = false;
  if (value && !value.IsNull() && !YAML::convert<bool>::decode(value, flag)) {
    fail(value, fmt::format("\"{}\" is neither true nor false", key));
  }
  return flag;
}

std::optional<PciAddress> pci_at(const YAML::Node& node, const char* key) {
  const std::string text = text_at(node, key);
  if (text.empty()) return std::nullopt;
  const auto pci = parse_pci(text);
  if (!pci) fail(node[key], fmt::format("\"{}\" is not a PCI address such as 0000:17:00.0", key));
  return pci;
}

template <typename Take>
void each(const YAML::Node& node, const char* key, Take take) {
  const YAML::Node list = child(node, key);
  if (!list || list.IsNull()) return;
  if (!list.IsSequence() || list.size() > kItemsMax) {
    fail(list, fmt::format("\"{}\" is not a list of up to {} things", key, kItemsMax));
  }
  for (const YAML::Node& item : list) take(item);
}

void add_links(const YAML::Node& node, NvmlGpu* gpu) {
  NvLinkEnd end;
  end.to_switch = text_at(node, "to") == "switch";
  if (!end.to_switch) {
    const auto pci = pci_at(node, "to");
    if (!pci) fail(node, "an NVLink leads \"to\" a PCI address, or to \"switch\"");
    end.gpu = *pci;
  }
  const uint64_t count = number_at(node, "count", kNvLinksMax);
  gpu->nvlinks.insert(gpu->nvlinks.end(), count, end);
  if (gpu->nvlinks.size() > kNvLinksMax) fail(node, "these are more NVLinks than there can be");
}

NvmlGpu gpu_of(const YAML::Node& node) {
  NvmlGpu gpu;
  const auto pci = pci_at(node, "pci");
  if (!pci) fail(node, "a GPU needs its \"pci\" address");
  gpu.pci = *pci;
  gpu.name = text_at(node, "name");
  gpu.uuid = text_at(node, "uuid");
  gpu.memory_bytes = number_at(node, "memory_bytes");
  each(node, "nvlinks", [&](const YAML::Node& item) { add_links(item, &gpu); });
  return gpu;
}

RdmaPort port_of(const YAML::Node& node) {
  RdmaPort port;
  port.number = static_cast<uint32_t>(number_at(node, "number", 255));
  port.state = text_at(node, "state");
  port.link_layer = text_at(node, "link_layer");
  port.rate_bps = number_at(node, "rate_bps");
  port.mtu = static_cast<uint32_t>(number_at(node, "mtu", 1 << 20));
  each(node, "gids", [&](const YAML::Node& item) {
    port.gids.push_back({static_cast<uint32_t>(number_at(item, "index", 65535)),
                         text_at(item, "type"), text_at(item, "address"),
                         text_at(item, "interface")});
  });
  if (const YAML::Node counters = child(node, "counters"); counters && !counters.IsNull()) {
    for (size_t i = 0; i < kPortCounters; ++i) {
      const char* name = name_of(static_cast<PortCounter>(i));
      if (child(counters, name)) port.counters.values[i] = number_at(counters, name);
    }
  }
  return port;
}

RdmaDevice rdma_of(const YAML::Node& node) {
  RdmaDevice device;
  device.name = text_at(node, "name");
  if (device.name.empty()) fail(node, "an RDMA device needs a \"name\"");
  device.pci = pci_at(node, "pci");
  each(node, "ports", [&](const YAML::Node& item) { device.ports.push_back(port_of(item)); });
  return device;
}

NetDevice net_of(const YAML::Node& node) {
  NetDevice device;
  device.name = text_at(node, "name");
  if (device.name.empty()) fail(node, "a network interface needs a \"name\"");
  device.pci = pci_at(node, "pci");
  device.up = flag_at(node, "up");
  device.rate_bps = number_at(node, "rate_bps");
  device.mtu = static_cast<uint32_t>(number_at(node, "mtu", 1 << 20));
  device.bond = text_at(node, "bond");
  each(node, "addresses", [&](const YAML::Node& item) {
    if (!item.IsScalar() || item.Scalar().size() > kTextMax) fail(item, "this is not an address");
    device.addresses.push_back(item.Scalar());
  });
  return device;
}

Answers answers_of(const YAML::Node& root) {
  Answers answers;
  if (!root.IsMap() || !root[kFormatKey]) {
    throw Fault(
        fmt::format("this is no recorded machine: \"{}: {}\" is missing", kFormatKey, kFormat));
  }
  if (number_at(root, kFormatKey) != kFormat) {
    fail(root[kFormatKey], "the recording is of another version of gradring");
  }
  answers.host = text_at(root, "host");
  if (const YAML::Node nvml = root["nvml"]; nvml && !nvml.IsNull()) {
    answers.nvml.absent = text_at(nvml, "absent");
    answers.nvml.driver = text_at(nvml, "driver");
    each(nvml, "gpus", [&](const YAML::Node& item) { answers.nvml.gpus.push_back(gpu_of(item)); });
  }
  each(root, "rdma", [&](const YAML::Node& item) { answers.rdma.push_back(rdma_of(item)); });
  each(root, "net", [&](const YAML::Node& item) { answers.net.push_back(net_of(item)); });
  return answers;
}

tl::unexpected<Status> refuse(const std::string& what) {
  return tl::unexpected(Status(Code::kInvalidArgument, what));
}

}  // namespace

tl::expected<Answers, Status> parse_answers(const std::string& yaml) {
  const auto odd = std::find_if_not(yaml.begin(), yaml.end(), is_plain);
  if (odd != yaml.end()) {
    return refuse(fmt::format("line {}: the byte 0x{:02x} is not of printable ASCII",
                              1 + std::count(yaml.begin(), odd, '\n'),
                              static_cast<unsigned char>(*odd)));
  }
  if (is_deep(yaml)) return refuse("it is nested deeper than a recorded machine is");
  try {
    return answers_of(YAML::Load(yaml));
  } catch (const Fault& fault) {
    return refuse(fault.what());
  } catch (const YAML::Exception& error) {
    return refuse(error.mark.is_null()
                      ? fmt::format("it is not YAML: {}", error.msg)
                      : fmt::format("line {}: it is not YAML: {}", error.mark.line + 1, error.msg));
  }
}

}  // namespace gradring::machine
