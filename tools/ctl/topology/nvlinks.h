#pragma once

#include <map>

#include "client.pb.h"
#include "tools/ctl/topology/picture.h"

namespace gradring::tools {

struct Box {
  Point at;
  double width = 0;
  double height = 0;
};

// The height of what draw_nvlinks() draws above the machine.
double nvlink_height(const wire::MachineReport& machine);
// A bar for the NVSwitches, and brackets from GPU to GPU, the lowest at `floor`. `gpus` by index.
void draw_nvlinks(const wire::MachineReport& machine, const std::map<int, Box>& gpus, double floor,
                  Picture* picture);

}  // namespace gradring::tools
