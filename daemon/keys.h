#pragma once

#include <string>
#include <tl/expected.hpp>
#include <vector>

namespace gradring::daemon {

// CURVE keys of the control connections between daemons, in Z85 (40 characters). Two files:
//
// --key FILE, secret, for this node's eyes only (a group or world that can read it is refused):
//
//     public = "..."
//     secret = "..."
//
// --allowed-keys FILE, one line a node, the same file on all nodes; '#' begins a comment at the
// start of a line only, since Z85 uses it too:
//
//     # NODE  HOST:PORT      PUBLIC KEY
//     a       10.0.0.1:7300  ...
//
// The key is bound to the node id: a daemon that holds b's key and says it is c is refused.
// HOST:PORT is where others dial that node, spelled as in --peer.
struct KeyPair {
  std::string public_key;
  std::string secret_key;
};
tl::expected<KeyPair, std::string> read_key_file(const std::string& path);

struct AllowedKey {
  std::string node;
  std::string address;
  std::string public_key;
};
tl::expected<std::vector<AllowedKey>, std::string> read_allowed_keys(const std::string& path);

}  // namespace gradring::daemon
