#pragma once

#include <string>
#include <vector>

#include "client.pb.h"

namespace gradring::tools {

// The PCIe tree for a picture: a bridge above one device alone, or above one bridge alone, tells
// nobody anything and is left out.
struct Branch {
  std::string name;  // of the bridge, as in the report
  std::vector<Branch> branches;
  std::vector<int> gpus;
  std::vector<int> nics;

  bool is_root_complex() const { return name.rfind("host ", 0) == 0; }
  bool has_gpu() const;
};

// What hangs on one socket; -1: on none that is known. A machine that makes sense (nonsense_in).
Branch tree_of(const wire::MachineReport& machine, int socket);

// "PCIe switch 0000:16:00.0", "root complex 0000:15"
std::string title_of(const Branch& branch);

}  // namespace gradring::tools
