#include "tests/transport/machine/machine.h"

#include <gtest/gtest.h>
#include <hwloc.h>

#include "transport/machine/affinity.h"
#include "transport/machine/assemble.h"
#include "transport/machine/look.h"

namespace gradring::machine {
namespace {

// hwloc unloads its plugins with the last topology: what their libraries keep for good would look
// like a leak then.
// NOLINTNEXTLINE(bugprone-throwing-static-initialization): C does not throw
[[maybe_unused]] const hwloc_topology_t kKept = [] {
  hwloc_topology_t topology = nullptr;
  return hwloc_topology_init(&topology) == 0 ? topology : nullptr;
}();

}  // namespace

std::string folder_of(const std::string& name) {
  return std::string(GRADRING_MACHINES) + "/" + name;
}

Machine recorded(const std::string& name) {
  LookOptions options;
  options.recording = folder_of(name);
  const auto sight = look(options);
  if (!sight) {
    ADD_FAILURE() << sight.error().message();
    return {};
  }
  return assemble(sight->seen.tree, sight->answers);
}

int nic_named(const Machine& machine, const std::string& name) {
  const int nic = find_nic(machine, name);
  EXPECT_GE(nic, 0) << name;
  return nic;
}

}  // namespace gradring::machine
