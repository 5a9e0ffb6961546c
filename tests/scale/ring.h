#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "tests/scale/machine.h"
#include "tests/scale/member.h"
#include "tests/scale/mirror.h"
#include "tests/scale/step.h"
#include "tests/sim/events.h"

namespace gradring::scale {

struct Setup {
  Machine machine;
  uint32_t nodes = 2;
  bool hierarchy = true;  // else each rank is a member of the ring, and sums for itself alone
  WireType wire = WireType::kNative;
  bool mirrored = false;  // one node is run, and stands for all
  bool direct = true;     // small sums may go straight to who sums them
};

struct Outcome {
  double step_ms = 0;
  double busy_part = 0;  // of the time, the first member's thread worked
  double frames = 0;     // sent by that member in a step
  double bytes = 0;      // likewise, of payload
  // What its engine really took to decide all that, on the computer that runs this.
  double thinking_ms = 0;
};

// Whether a sum of so many bytes goes along the ring. What goes straight or along a tree cannot be
// mirrored.
bool goes_along_the_ring(const Setup& setup, uint64_t bytes);

// Members of one job under virtual time. All trainers do the same steps at the same moments.
class Ring final : private World {
 public:
  Ring(const Setup& setup, const Step& step);

  // What a step takes on average, after one to warm up.
  Outcome run(uint32_t steps);

 private:
  // One rank of the window.
  struct Trainer {
    Member* member = nullptr;
    uint32_t steps = 0;  // done
    uint32_t open = 0;   // buckets that have not come back
    Time began = 0;      // the step
    Time to_host = 0;    // copies this way are under way until then
    Time to_device = 0;
    uint64_t submitted = 0;
  };

  void post(Member* from, Time at, uint32_t to, const Frame& frame, double ahead,
            std::optional<core::Staging> lent) override;
  void completed(Member* member, Time at, uint32_t rank, uint64_t ticket) override;
  bool is_local(const Member& from, uint32_t to) const override;
  void schedule_turn(Member* member, Time at) override;

  void begin(uint32_t rank);
  void submit(uint32_t rank);
  void come_back(uint32_t rank);
  void leave(Member* from, uint32_t to, const Frame& frame, double ahead,
             std::optional<core::Staging> lent);
  void arrive(uint32_t from, uint32_t to, const Frame& frame, bool local);
  Time word_takes() const;
  Outcome so_far() const;

  const Setup setup_;
  const uint32_t ranks_of_member_;
  const uint32_t members_of_node_;
  const Mirror mirror_;
  Step step_;
  sim::Events events_;
  std::vector<std::unique_ptr<Host>> hosts_;
  std::vector<std::unique_ptr<Member>> members_;
  std::vector<Trainer> trainers_;  // of the window, by rank
  uint32_t steps_ = 0;             // to be done
  // Who has sent READY up the tree, and to whom, until all of the window have.
  std::map<OpKey, std::vector<std::pair<uint32_t, uint32_t>>> ready_;
};

}  // namespace gradring::scale
