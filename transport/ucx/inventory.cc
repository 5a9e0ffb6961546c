#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <sys/socket.h>
#include <uct/api/uct.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string_view>

#include "transport/interface_name.h"
#include "transport/ucx/devices.h"

namespace gradring::transport {
namespace {

std::string numeric(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address->sa_family == AF_INET) {
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, text, sizeof text);
  } else {
    inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr, text,
              sizeof text);
  }
  return text;
}

std::vector<Interface> list_interfaces(const ifaddrs* list) {
  std::vector<Interface> interfaces;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    const std::string_view name = interface_named_by(*entry);
    auto it = std::find_if(interfaces.begin(), interfaces.end(),
                           [&](const Interface& i) { return i.name == name; });
    if (it == interfaces.end()) {
      Interface fresh;
      fresh.name = name;
      const bool carrier = (entry->ifa_flags & IFF_RUNNING) != 0;
      fresh.up = (entry->ifa_flags & IFF_UP) != 0 && carrier;
      fresh.without_carrier = (entry->ifa_flags & IFF_UP) != 0 && !carrier;
      fresh.bridge = access(("/sys/class/net/" + fresh.name + "/bridge").c_str(), F_OK) == 0;
      it = interfaces.insert(interfaces.end(), fresh);
    }
    if (entry->ifa_addr != nullptr &&
        (entry->ifa_addr->sa_family == AF_INET || entry->ifa_addr->sa_family == AF_INET6)) {
      it->addresses.push_back(numeric(entry->ifa_addr));
    }
  }
  return interfaces;
}

// The network devices of one memory domain.
void add_devices(uct_component_h component, const char* domain, bool rdma,
                 std::vector<UcxDevice>* devices) {
  uct_md_config_t* config = nullptr;
  if (uct_md_config_read(component, nullptr, nullptr, &config) != UCS_OK) return;
  uct_md_h md = nullptr;
  const ucs_status_t opened = uct_md_open(component, domain, config, &md);
  uct_config_release(config);
  if (opened != UCS_OK) return;  // this card cannot be opened: it is not usable
  uct_md_attr_t attributes{};
  if (uct_md_query(md, &attributes) != UCS_OK) attributes = {};
  constexpr uint64_t kTakesDmabufs = 1 << 10;  // UCT_MD_FLAG_REG_DMABUF, since 1.14
  UcxDevice device{"", rdma};
  device.peer_memory = (attributes.cap.reg_mem_types & (1 << UCS_MEMORY_TYPE_CUDA)) != 0;
  device.dmabufs = (attributes.cap.flags & kTakesDmabufs) != 0;
  uct_tl_resource_desc_t* resources = nullptr;
  unsigned count = 0;
  if (uct_md_query_tl_resources(md, &resources, &count) == UCS_OK) {
    for (unsigned i = 0; i < count; ++i) {
      device.name = resources[i].dev_name;
      const bool known = std::any_of(devices->begin(), devices->end(),
                                     [&](const UcxDevice& d) { return d.name == device.name; });
      if (resources[i].dev_type == UCT_DEVICE_TYPE_NET && !known) devices->push_back(device);
    }
    uct_release_tl_resource_list(resources);
  }
  uct_md_close(md);
}

void add_component(uct_component_h component, std::vector<UcxDevice>* devices) {
  uct_component_attr_t attributes{};
  attributes.field_mask =
      UCT_COMPONENT_ATTR_FIELD_NAME | UCT_COMPONENT_ATTR_FIELD_MD_RESOURCE_COUNT;
  if (uct_component_query(component, &attributes) != UCS_OK) return;
  const std::string name = attributes.name;
  if (name != "tcp" && name != "ib") return;
  std::vector<uct_md_resource_desc_t> domains(attributes.md_resource_count);
  attributes.field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCES;
  attributes.md_resources = domains.data();
  if (domains.empty() || uct_component_query(component, &attributes) != UCS_OK) return;
  for (const uct_md_resource_desc_t& domain : domains) {
    add_devices(component, domain.md_name, name == "ib", devices);
  }
}

}  // namespace

tl::expected<DeviceInventory, Status> take_device_inventory() {
  ifaddrs* raw = nullptr;
  if (getifaddrs(&raw) != 0) {
    return tl::unexpected(Status(
        Code::kInternal, std::string("cannot list network interfaces: ") + std::strerror(errno)));
  }
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> list(raw, freeifaddrs);
  DeviceInventory inventory;
  inventory.interfaces = list_interfaces(list.get());

  uct_component_h* components = nullptr;
  unsigned count = 0;
  const ucs_status_t status = uct_query_components(&components, &count);
  if (status != UCS_OK) {
    return tl::unexpected(Status(Code::kInternal, std::string("UCX cannot list its transports: ") +
                                                      ucs_status_string(status)));
  }
  for (unsigned i = 0; i < count; ++i) add_component(components[i], &inventory.usable);
  uct_release_component_list(components);
  std::sort(inventory.usable.begin(), inventory.usable.end(),
            [](const UcxDevice& a, const UcxDevice& b) { return a.name < b.name; });
  return inventory;
}

}  // namespace gradring::transport
