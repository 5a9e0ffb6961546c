#pragma once

#include "client.pb.h"
#include "tools/ctl/topology/picture.h"

namespace gradring::tools {

// What the colours of a machine's picture mean, as far as they are in it. Returns how far right it
// goes.
double draw_legend(const wire::MachineReport& machine, bool any_switch, Point at, Picture* picture);

}  // namespace gradring::tools
