#pragma once

#include <string>
#include <tl/expected.hpp>

#include "proto/status.h"
#include "topology.pb.h"
#include "transport/machine/affinity.h"
#include "transport/machine/answers.h"
#include "transport/machine/nvml.h"
#include "transport/machine/tree.h"

namespace gradring::machine {

struct LookOptions {
  std::string recording;  // a folder that is shown instead of this machine
  std::string nvml_library = kNvmlLibrary;
  Wishes wishes;
};

struct Sight {
  TreeAndXml seen;
  Answers answers;
};
// Looks at this machine, or reads the recording of one. It may take seconds and loads drivers'
// libraries into this process, which can hang and crash: whoever must not do either uses
// look_apart.h.
tl::expected<Sight, Status> look(const LookOptions& options);

// Pure: all that people are shown of it, with what gradring chooses there.
wire::MachineReport report_of(const Machine& machine, const Wishes& wishes);

// Both; a failure is the report's `fault`.
wire::MachineReport look_and_report(const LookOptions& options);

}  // namespace gradring::machine
