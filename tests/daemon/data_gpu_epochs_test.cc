// Views that follow one another while GPUs bring what an op takes.

#include <gtest/gtest.h>

#include "tests/daemon/data_gpu.h"

namespace gradring::daemon {
namespace {

// What another node has of an op, and was to hand on, is not fetched from the GPUs. If that node is
// gone before it could, all of it is to be computed here after all.
TEST_F(DataGpu, WhatWasToBeHandedOnIsFetchedWhereItsHolderDies) {
  view_.policy = "elastic min=1 max=3";
  view_.incarnation[0] = 40;
  a_.install(view_);
  b_.install(view_);
  b_.submit(view_, 2, z_);
  b_.post(DescribeJob{1, view_.incarnation});
  b_.next<JobDescription>();
  std::this_thread::sleep_for(20ms);  // that it is ready is all that a hears of it
  transport::LinkFaults silent;
  silent.black_hole = true;
  fabric_.set_faults("b", "a", silent);
  gpus_->let(1);
  submit(0, x_);
  submit(1, y_);
  until_final_on_b(3);
  leave(1);
  next_epoch(1);
  const size_t before = gpus_->sums().size();
  gpus_->let_all();
  while ((gpus_->sums().size() == before || coming_on_a() > 0) && !HasFailure()) {
    std::this_thread::sleep_for(1ms);
  }
  next_epoch_of_a_alone();
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(a_.next<Completed>().outcome.verdict, Verdict::kOkShrunk);
  }
  EXPECT_EQ(x_.gpu, numbers(kFloats, 1));
}

}  // namespace
}  // namespace gradring::daemon
