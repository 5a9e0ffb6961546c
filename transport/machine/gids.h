#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "proto/status.h"
#include "transport/machine/answers.h"

namespace gradring::machine {

// The addresses of one RDMA port.
struct GidTable {
  std::string port;       // "mlx5_0:1"
  bool ethernet = false;  // RoCE, and not InfiniBand
  std::vector<Gid> gids;  // those that are set, by index
};

// By the kernel's files: no driver is asked, so nothing hangs. `device`: "mlx5_0:1", or "mlx5_0" if
// it has one port. Nothing: there is no such RDMA port.
std::optional<GidTable> read_gid_table(const std::string& device,
                                       const std::string& sysfs = "/sys");

// An address of this machine, and how much of it is that of its network.
struct OwnAddress {
  std::string address;
  unsigned prefix_bits = 0;
};
std::vector<OwnAddress> own_addresses();

struct GidWish {
  std::optional<uint32_t> index;  // the operator's
  // Numeric addresses whose network is the right one, the best first, and what they are.
  struct Near {
    std::string address;
    std::string what;  // "listen", "peer"
  };
  std::vector<Near> near;
};

struct GidChoice {
  std::optional<Gid> gid;  // that is used; nothing: none is known
  bool ours = false;       // UCX would take another: it must be told
  std::string reason;      // for people; empty: there is nothing to tell
};

// Pure. Which address of its port a lane uses: the one with the wished index; else of RoCE v2 the
// one in the network of `near`, else one of the same family as that which others can route to; else
// what UCX takes. Refused: an index that is not in the table, with those that are.
tl::expected<GidChoice, Status> choose_gid(const GidTable& table, const GidWish& wish,
                                           const std::vector<OwnAddress>& own);

}  // namespace gradring::machine
