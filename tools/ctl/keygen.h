#pragma once

#include <string>
#include <tl/expected.hpp>

#include "proto/status.h"

namespace gradring::tools {

struct KeyFiles {
  // Names of files have a - for each colon of the node's: scp would take it for another host's.
  std::string secret_file;  // DIR/NODE.key, mode 0600: what gradringd --key reads
  std::string public_file;  // DIR/NODE.pub: "NODE ADDRESS KEY", a line for gradringd --allowed-keys
  std::string public_key;   // Z85
};

// Makes a CURVE key pair for one node. `address` is HOST:PORT where its peers reach it. Never
// overwrites a file: losing a key that is in use cuts a node off. Leaves nothing behind when it
// fails.
tl::expected<KeyFiles, Status> make_keys(const std::string& directory, const std::string& node,
                                         const std::string& address);

}  // namespace gradring::tools
