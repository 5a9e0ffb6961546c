#pragma once

#include <string>

#include "daemon/core/engine_actions.h"
#include "daemon/core/op.h"

namespace gradring::core {

// As people know it where a rank of this node has submitted it; else by its key, which is all that
// other nodes tell.
std::string title_of(const Op& op);

// For those who have submitted the op: whoever found out why it failed may not know its name.
Outcome named(const Op& op, Outcome outcome);

}  // namespace gradring::core
