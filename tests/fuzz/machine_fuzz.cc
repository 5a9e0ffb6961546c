// The recording of a machine: people mend such files, and send them to one another.
#include "tests/fuzz/fuzz.h"
#include "transport/machine/affinity.h"
#include "transport/machine/assemble.h"
#include "transport/machine/look.h"
#include "transport/machine/recording.h"

namespace {

using namespace gradring;
using fuzz::require;

const std::vector<std::string>& samples() {
  static const std::vector<std::string> kSamples = {
      "gradring-machine: 1\nhost: a\nnvml:\n  driver: 1\n  gpus:\n    - pci: 0000:1b:00.0\n"
      "      name: x\n      uuid: GPU-1\n      memory_bytes: 85899345920\n      nvlinks:\n"
      "        - {to: switch, count: 18}\n        - {to: 0000:1c:00.0, count: 4}\n"
      "    - pci: 0000:1c:00.0\n",
      "gradring-machine: 1\nrdma:\n  - name: mlx5_0\n    pci: 0000:17:00.0\n    ports:\n"
      "      - number: 1\n        state: active\n        link_layer: Ethernet\n"
      "        rate_bps: 400000000000\n        mtu: 4096\n        gids:\n"
      "          - {index: 3, type: RoCE v2, address: \"::1\", interface: e}\n",
      "gradring-machine: 1\nnet:\n  - name: e\n    pci: 0000:17:00.0\n    up: true\n"
      "    rate_bps: 1\n    mtu: 1500\n    bond: bond0\n    addresses:\n      - 10.0.0.1\n"
      "  - name: f\n    pci: 0000:17:00.1\n    bond: bond0\n",
  };
  return kSamples;
}

}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t size_max,
                                          unsigned seed) {
  return fuzz::mutate(samples(), data, size, size_max, seed);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  const auto answers = machine::parse_answers(bytes);
  if (!answers) {
    require(!answers.error().message().empty(), "a refusal says why");
    return 0;
  }
  const auto again = machine::parse_answers(machine::yaml_of(*answers));
  require(again.has_value() && *again == *answers, "what is written is read again");
  const machine::Machine machine = machine::assemble({}, *answers);
  const wire::MachineReport report = machine::report_of(machine, {{}, {"0=" + bytes, bytes}});
  const int devices = report.gpus_size() + report.nics_size();
  require(report.distances_size() == devices * devices, "every pair has its distance");
  require(report.affinity_size() == report.gpus_size(), "every GPU has its line");
  return 0;
}
