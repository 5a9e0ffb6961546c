// What a job's ops are called in a ring: trainers tell it with the first use alone.

#include "daemon/flight/job_flight.h"

#include <gtest/gtest.h>

#include <array>

#include "tests/core/no_actions.h"

namespace gradring::daemon {
namespace {

class Silent : public core::NoActions {
 public:
  void send(uint32_t, const Frame&) override {}
  void send_slice(uint32_t, const Frame&, core::Staging) override {}
  void send_direct(uint32_t, const Frame&, core::Staging) override {}
  void complete(uint32_t, uint64_t, const core::Outcome&) override {}
  void fail_job(const Failure&) override {}
  void absent(const core::Absence&) override {}
  void condemned(const Failure&) override {}
};

core::View view_of_two() {
  core::View view;
  view.job = "named";
  view.epoch = 1;
  view.size = 2;
  view.policy = "fail";
  view.members = {{"a", {{0, 0, 1, 0}}}, {"b", {{1, 0, 1, 1}}}};
  return view;
}

class JobFlightTest : public testing::Test {
 protected:
  // As a trainer of rank 0 does it.
  void use(const std::string& name) {
    core::Submission submission;
    submission.key = {11, uses_++};
    submission.name = name;
    submission.signature.collective = Collective::kAllreduce;
    submission.signature.dtype = Dtype::kFloat32;
    submission.signature.op = ReduceOp::kSum;
    submission.signature.count = 4;
    flight_.submitted(submission, monotonic_now());
    ASSERT_TRUE(engine_.submit(submission, monotonic_now()).ok());
  }
  template <typename Slots>
  static int named(const Slots& slots) {
    int found = 0;
    for (const FlightEvent& event : slots) {
      found += event.kind == FlightKind::kMore && text_of(event) == "layer";
    }
    return found;
  }

  std::array<FlightEvent, 64> always_{}, more_{};
  FlightRing ring_{FlightSlots(always_.data(), always_.size())};
  Silent actions_;
  core::JobEngine engine_{view_of_two(), 0, core::EngineOptions(), &actions_};
  JobFlight flight_{&ring_, engine_};
  uint64_t uses_ = 0;
};

TEST_F(JobFlightTest, ANameIsTheirsWhereverARingHasGoneRound) {
  use("layer");
  for (int i = 0; i < 1000; ++i) use("");
  EXPECT_GE(named(always_), 3) << "once a lap";
  EXPECT_LE(named(always_), 5) << "and not with each use";
}

TEST_F(JobFlightTest, ATraceThatIsBegunLaterHasIt) {
  use("layer");
  use("");
  FlightSlots trace(more_.data(), more_.size());
  ring_.trace(&trace);
  use("");
  use("");
  EXPECT_EQ(named(more_), 1);
}

}  // namespace
}  // namespace gradring::daemon
