#pragma once

#include <cstdint>
#include <cstdio>
#include <gradring/gradring.hpp>
#include <memory>
#include <string>
#include <vector>

#include "tests/daemon/live_daemon.h"

// Where gradring-gpu-check's ranks are, and the daemons that they are on.
namespace gradring::device {

struct Layout {
  const char* words;
  std::vector<size_t> node_of;  // by rank
  bool sums;                    // gpu-sums
  bool nccl = false;            // gpu-engine
  bool apart = false;           // ranks are another user's, and each sees no process but its own
};

struct Orders {
  bool quick = false;
  bool one_user = false;
  uint64_t seed = 0;
  uint64_t max_mib = 1024;
};

// Of a process that is one rank, and what it is to do.
struct RankOrders {
  size_t layout = 0;
  size_t part = 0;
  int rank = -1;  // this process is none
  std::string runtime_dir;
};

inline constexpr const char* kOps = "ops ";        // so a rank says how many it did,
inline constexpr const char* kGaveUp = "gave up";  // and that it did not come to the end;
                                                   // all else that it says is a fault
Communicator join(const char* job, const std::string& runtime_dir, size_t rank, size_t size);

// One layout, and its daemons. Throws what keeps these from starting.
class Check {
 public:
  Check(const Layout& layout, size_t number);

  // What was asked for may not be there; that is told.
  bool can_run() const;
  enum class Result : uint8_t { kRight, kWrong, kStuck };
  // A line, and if it was not right what ranks and daemons said.
  Result run(const char* words, size_t part, const Orders& orders) const;
  // A line; true: the daemon says whose a NaN was that went into a sum on the GPU.
  bool tell_origin() const;
  // That what was to be summed by GPUs was: else it would be right, and not what is to be shown.
  bool tell_traffic() const;

 private:
  std::FILE* start_rank(const RankOrders& rank, const Orders& orders) const;
  void sum_with_nan(size_t rank, bool has_it) const;
  void tell_logs() const;

  const Layout& layout_;
  const size_t number_;
  std::vector<std::unique_ptr<daemon::LiveDaemon>> nodes_;
};

}  // namespace gradring::device
