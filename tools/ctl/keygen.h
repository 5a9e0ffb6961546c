#pragma once

#include <string>
#include <tl/expected.hpp>

#include "proto/status.h"

namespace gradring::tools {

struct KeyFiles {
  std::string secret_file;  // DIR/NODE.key: the secret key, 40 characters of Z85, mode 0600
  std::string public_file;  // DIR/NODE.pub: "NODE PUBLIC-KEY", a line of the allow-list
  std::string public_key;
};

// Makes a CURVE key pair for one node. Never overwrites a file: losing a key that is in use cuts a
// node off. Leaves nothing behind when it fails.
tl::expected<KeyFiles, Status> make_keys(const std::string& directory, const std::string& node);

}  // namespace gradring::tools
