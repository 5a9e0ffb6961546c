#include "transport/machine/look.h"

#include <unistd.h>

#include <array>

#include "transport/machine/assemble.h"
#include "transport/machine/netdev.h"
#include "transport/machine/recording.h"
#include "transport/machine/verbs.h"

namespace gradring::machine {
namespace {

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

void add_counters(std::vector<RdmaDevice>* devices) {
  for (RdmaDevice& device : *devices) {
    for (RdmaPort& port : device.ports) port.counters = ask_port({device.name, port.number});
  }
}

}  // namespace

tl::expected<Sight, Status> look(const LookOptions& options) {
  Sight sight;
  const bool recorded = !options.recording.empty();
  if (recorded) {
    auto answers = read_recorded_answers(options.recording);
    if (!answers) return tl::unexpected(answers.error());
    sight.answers = std::move(*answers);
  }
  auto seen = read_tree(recorded ? options.recording + "/" + kTreeFile : std::string());
  if (!seen) return tl::unexpected(seen.error());
  sight.seen = std::move(*seen);
  if (recorded) return sight;
  sight.answers.host = host_name();
  sight.answers.nvml = ask_nvml(options.nvml_library);
  sight.answers.rdma = ask_verbs();
  add_counters(&sight.answers.rdma);
  sight.answers.net = ask_netdevs();
  return sight;
}

wire::MachineReport look_and_report(const LookOptions& options) {
  wire::MachineReport report;
  if (const auto sight = look(options)) {
    report = report_of(assemble(sight->seen.tree, sight->answers), options.wishes);
  } else {
    report.set_fault(sight.error().message());
  }
  report.set_recording(options.recording);
  return report;
}

}  // namespace gradring::machine
