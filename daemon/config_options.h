#pragma once

#include <functional>
#include <string>
#include <vector>

#include "daemon/config.h"

namespace gradring::daemon {

// One row of the configuration: everything there is to know about a setting.
struct Option {
  std::string name;
  std::string argument;  // "DIR" in the help; empty for a switch
  std::string fallback;  // as if it had been written by the operator; empty: left alone
  std::string help;
  bool repeatable = false;
  // Empty, or what a good value looks like.
  std::function<std::string(Config&, const std::string& value)> set;
  bool reread = false;  // on SIGHUP; others wait for a restart
};

const std::vector<Option>& all_options();

}  // namespace gradring::daemon
