#pragma once

#include <functional>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "tools/ctl/ask.h"
#include "tools/ctl/command.h"

namespace gradring::tools {

// One file of a support bundle.
struct BundlePart {
  std::string path;  // in the bundle: "nodes/n0/status.json"
  std::string what;  // for people
  // Its content, or a sentence on why it cannot be had.
  std::function<tl::expected<std::string, std::string>()> read;
  bool binary = false;  // nothing is taken out of it
};

// All that there is to ask for: of each node what gradringctl knows, and of this machine what only
// it knows. Errors: those of questions to the daemon; then there are the parts of this machine.
struct BundlePlan {
  std::vector<BundlePart> parts;
  Status daemon;                     // OK, or why none could be asked
  std::vector<std::string> secrets;  // of this node's key file, if it could be read
};
BundlePlan plan_bundle(const Context& context);

// The configuration file that a daemon was started with, of the words of its command line.
std::string config_file_of(const std::vector<std::string>& command_line);
// A file that a process names: a relative path begins at the folder in which that process is.
std::string as_seen_by(int64_t pid, const std::string& path);
// The value of "key = FILE" in such a file's text; empty: it has none.
std::string key_file_in(const std::string& config);

}  // namespace gradring::tools
