#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/ctl/steps.h"
#include "tools/ctl/top/sample.h"
#include "tools/ctl/waits.h"

namespace gradring::tools::top {

struct Limit {
  std::string name;
  uint64_t used = 0;
  uint64_t cap = 0;  // 0: none
  std::string unit;
};

struct Node {
  std::string node;
  std::string state;
  std::string version;
  uint64_t uptime_ms = 0;
  std::vector<Limit> limits;
};

struct Rank {
  uint32_t rank = 0;
  std::string node{};
  int64_t pid = 0;  // 0: unknown
  std::string state{};
  std::string process_state{};  // letter
  uint64_t ops_submitted = 0;
  uint64_t quiet_ms = 0;
  // Of its last steps; nothing if it has made none.
  struct Step {
    double seconds = 0;  // the mean one
    double exposed = 0;  // parts of it, 0 to 1
    double straggler = 0;
    double late = 0;  // of those steps: part in which others had to wait for it
    double late_seconds = 0;
  };
  std::optional<Step> step{};
};

struct Job {
  std::string name{};
  std::string incarnation{};  // empty while it forms
  std::string state{};
  std::string policy{};
  std::string explanation{};
  uint64_t epoch = 0;
  uint32_t size = 0;  // ranks
  uint32_t nodes = 0;
  bool over = false;
  // Nothing where it was not seen twice.
  std::optional<double> ops_per_second{};
  std::optional<double> bytes_per_second{};      // as a rank counts them: algbw of nccl-tests
  std::optional<double> bus_bytes_per_second{};  // tools/common/bus_factor.h
  std::optional<double> exposed{};  // part of all ranks' steps, 0 to 1; nothing without steps
  std::optional<Straggler> straggler{};
  std::optional<OpenOp> oldest{};
  std::vector<Rank> ranks{};

  // Tells apart two jobs of one name.
  std::string key() const { return incarnation.empty() ? name : incarnation; }
};

struct Link {
  std::string from{};
  std::string to{};      // its node, or the address at which nobody has answered
  std::string device{};  // of `from`; empty: none, the peer is not up
  std::string state{};
  std::string reason{};                     // why it is not up
  std::optional<double> sent_per_second{};  // bytes
  std::optional<double> received_per_second{};
  std::optional<double> rtt_seconds{};
};

// All that the screen shows.
struct Model {
  std::string here{};
  std::vector<std::string> peers{};  // that can be chosen
  std::vector<Node> nodes{};         // that answer
  size_t silent = 0;                 // nodes that should and do not, as `problems` say
  std::vector<Job> jobs{};
  std::vector<Link> links{};
  std::vector<std::string> problems{};
  std::vector<std::string> left_out{};  // no problem: there is more than is shown
  // Nothing as long as the daemon answers.
  struct Silence {
    uint64_t ms = 0;
    std::string why{};
  };
  std::optional<Silence> silence{};
};

// From two samples of the same choice. Rates go by the clocks of those who counted; `before` may be
// the same as `after`, and there are none then.
Model model_of(const Sample& before, const Sample& after);

}  // namespace gradring::tools::top
