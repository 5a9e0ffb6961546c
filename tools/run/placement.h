#pragma once

#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <vector>

namespace gradring::tools {

// The consecutive ranks that one host runs.
struct Share {
  std::string host;  // empty: this host
  int first_rank = 0;
  int count = 0;

  bool operator==(const Share&) const = default;
};

struct Slots {
  std::string host;
  int count = 0;

  bool operator==(const Slots&) const = default;
};

inline constexpr int kSlotsMax = 4096;  // a host with more is a slip of the pen

// "a:2,b,[fe80::1]:4": hosts with the number of ranks each may run, `slots` if it is not given. A
// host that is named twice has the sum, as has this one by several of its names. The error is a
// sentence.
tl::expected<std::vector<Slots>, std::string> parse_hosts(std::string_view text, int slots = 1);

// The same from the lines of a file, as mpirun reads them: "a slots=2", or "a:2"; # begins a
// comment. The error names the line.
tl::expected<std::vector<Slots>, std::string> parse_hostfile(std::string_view text, int slots = 1);

// Fills the hosts in their order. Without hosts everything runs here.
tl::expected<std::vector<Share>, std::string> place(int ranks, const std::vector<Slots>& hosts);

// "ranks 2-3", "rank 2"
std::string describe_ranks(const Share& share);

}  // namespace gradring::tools
