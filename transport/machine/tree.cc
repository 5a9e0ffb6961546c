#include "transport/machine/tree.h"

#include <fmt/format.h>
#include <hwloc.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>

namespace gradring::machine {
namespace {

using Topology =
    std::unique_ptr<std::remove_pointer_t<hwloc_topology_t>, decltype(&hwloc_topology_destroy)>;

using PciAttributes = hwloc_obj_attr_u::hwloc_pcidev_attr_s;
using BridgeAttributes = hwloc_obj_attr_u::hwloc_bridge_attr_s;

std::string list_of(hwloc_const_bitmap_t set) {
  if (set == nullptr) return "";
  char* text = nullptr;
  if (hwloc_bitmap_list_asprintf(&text, set) < 0) return "";
  std::string list = text;
  std::free(text);
  return list;
}

std::string info_of(hwloc_obj_t object, const char* name) {
  const char* value = hwloc_obj_get_info_by_name(object, name);
  return value == nullptr ? "" : value;
}

std::string text_of(const PciAttributes& pci) {
  return machine::text_of(PciAddress{pci.domain, pci.bus, pci.dev, pci.func});
}

std::vector<std::string> bridges_above(hwloc_obj_t object) {
  std::vector<std::string> bridges;
  for (hwloc_obj_t above = object->parent; above != nullptr; above = above->parent) {
    if (above->type != HWLOC_OBJ_BRIDGE) continue;
    const BridgeAttributes& bridge = above->attr->bridge;
    bridges.push_back(bridge.upstream_type == HWLOC_OBJ_BRIDGE_HOST
                          ? fmt::format("host {:04x}:{:02x}", bridge.downstream.pci.domain,
                                        bridge.downstream.pci.secondary_bus)
                          : text_of(bridge.upstream.pci));
  }
  std::reverse(bridges.begin(), bridges.end());
  return bridges;
}

int socket_at(hwloc_topology_t topology, hwloc_const_cpuset_t cpus) {
  if (cpus == nullptr || hwloc_bitmap_iszero(cpus)) return -1;
  const int count = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_PACKAGE);
  for (int i = 0; i < count; ++i) {
    const hwloc_obj_t package =
        hwloc_get_obj_by_type(topology, HWLOC_OBJ_PACKAGE, static_cast<unsigned>(i));
    if (hwloc_bitmap_isincluded(cpus, package->cpuset) != 0) return i;
  }
  return -1;
}

// A device that hangs on several NUMA nodes hangs on the whole machine: nobody told where it is.
Place place_of(hwloc_topology_t topology, hwloc_obj_t object) {
  Place place;
  const PciAttributes& pci = object->attr->pcidev;
  place.pci = PciAddress{pci.domain, pci.bus, pci.dev, pci.func};
  place.bridges = bridges_above(object);
  const hwloc_obj_t near = hwloc_get_non_io_ancestor_obj(topology, object);
  if (near == nullptr) return place;
  place.cpus = list_of(near->cpuset);
  place.socket = socket_at(topology, near->cpuset);
  if (near->nodeset != nullptr && hwloc_bitmap_weight(near->nodeset) == 1) {
    place.numa = hwloc_bitmap_first(near->nodeset);
  }
  return place;
}

void add_os_names(hwloc_obj_t object, std::vector<std::string>* names) {
  for (hwloc_obj_t child = object->io_first_child; child != nullptr; child = child->next_sibling) {
    if (child->type == HWLOC_OBJ_OS_DEVICE && child->name != nullptr)
      names->emplace_back(child->name);
  }
}

Tree tree_of(hwloc_topology_t topology) {
  Tree tree;
  hwloc_obj_t object = nullptr;
  while ((object = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_PACKAGE, object)) != nullptr) {
    tree.sockets.push_back(
        {object->os_index == HWLOC_UNKNOWN_INDEX ? object->logical_index : object->os_index,
         info_of(object, "CPUModel"), list_of(object->cpuset)});
  }
  while ((object = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, object)) != nullptr) {
    tree.numa.push_back({object->os_index, socket_at(topology, object->cpuset),
                         list_of(object->cpuset), object->attr->numanode.local_memory});
  }
  while ((object = hwloc_get_next_pcidev(topology, object)) != nullptr) {
    PciDevice device;
    device.place = place_of(topology, object);
    device.kind = object->attr->pcidev.class_id;
    device.vendor = object->attr->pcidev.vendor_id;
    device.name = object->name != nullptr ? object->name : info_of(object, "PCIDevice");
    add_os_names(object, &device.os_names);
    tree.devices.push_back(std::move(device));
  }
  return tree;
}

tl::unexpected<Status> no_tree(const std::string& what) {
  return tl::unexpected(Status(Code::kInternal, what));
}

}  // namespace

tl::expected<TreeAndXml, Status> read_tree(const std::string& xml_file) {
  // Its plugins for GPUs load whole drivers, and what they would tell, NVML tells.
  setenv("HWLOC_COMPONENTS", "-gl,-opencl,-cuda,-nvml,-rsmi,-levelzero", 0);
  setenv("HWLOC_HIDE_ERRORS", "2", 0);
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return no_tree("hwloc does not start");
  const Topology topology(raw, hwloc_topology_destroy);
  if (!xml_file.empty() && hwloc_topology_set_xml(raw, xml_file.c_str()) != 0) {
    return tl::unexpected(Status(
        Code::kInvalidArgument,
        fmt::format("{} cannot be read as hwloc's XML: {}", xml_file, std::strerror(errno))));
  }
  hwloc_topology_set_cache_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_NONE);
  // Without all of the bridges nobody could say what is near to what.
  hwloc_topology_set_io_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_ALL);
  if (hwloc_topology_load(raw) != 0) {
    if (xml_file.empty()) return no_tree("hwloc cannot read this machine from sysfs");
    return tl::unexpected(Status(
        Code::kInvalidArgument, fmt::format("{} is not a topology that hwloc exported", xml_file)));
  }
  TreeAndXml result;
  result.tree = tree_of(raw);
  char* xml = nullptr;
  int length = 0;
  if (hwloc_topology_export_xmlbuffer(raw, &xml, &length, 0) == 0) {
    result.xml = xml;
    hwloc_free_xmlbuffer(raw, xml);
  }
  return result;
}

}  // namespace gradring::machine
