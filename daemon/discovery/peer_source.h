#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <tl/expected.hpp>
#include <vector>

namespace gradring::daemon {

using Addresses = std::vector<std::string>;  // HOST:PORT, or an error for people in its place
using AddressesOr = tl::expected<Addresses, std::string>;

// A value of discover: "file:PATH", "dns:NAME", "dns:NAME:PORT", "slurm" or "slurm:PORT".
struct PeerSource {
  enum class Kind : uint8_t { kFile, kDns, kSlurm };
  Kind kind = Kind::kFile;
  std::string name;  // the path, or the name that is looked up
  uint16_t port = 0;
};
std::optional<PeerSource> parse_peer_source(const std::string& text);

// What stands in a file of peers: HOST or HOST:PORT on each line, and comments behind #. One line
// that is wrong is an error of the whole: half a list would be taken for nodes that are gone.
AddressesOr addresses_in(const std::string& text);

// Of a source with its present answer. The lookup of a name waits for its servers, several seconds
// at worst. `listens` is where this daemon does, as HOST:PORT. Of the file its own host name is
// left out where that is an address of loopback, as in Debian's /etc/hosts: nobody can be met
// there. Of a name with addresses of IPv4 and of IPv6 those count by which daemons listen.
AddressesOr ask_file(const PeerSource& source, const Addresses& listens = {});
AddressesOr ask_dns(const PeerSource& source, const Addresses& listens = {});
// The other nodes of the allocation that this process was started in, by the environment of srun
// (SLURM_JOB_NODELIST, SLURMD_NODENAME).
using Variable = std::function<std::optional<std::string>(const std::string& name)>;
AddressesOr ask_slurm(const PeerSource& source, const Variable& variable);

}  // namespace gradring::daemon
