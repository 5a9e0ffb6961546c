// What a slice costs the data thread besides its bytes: nothing is allocated for it, and no lock is
// taken. Counted as the difference between a long op and one of twice its length, in what this
// program's own code asks of the C++ runtime and of pthreads; what UCX does inside is UCX's.

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/daemon/counted.h"
#include "tests/daemon/data_node.h"
#include "transport/tcp/tcp_transport.h"

namespace gradring::daemon {
namespace {

constexpr uint64_t kSlices = 400;
// Of the runtime and of vectors that find their size once.
constexpr uint64_t kNoise = kSlices / 4;

class SteadyStateTest : public DataThreadTest {
 protected:
  SteadyStateTest() { counted::leave_out_this_thread(); }

  static std::unique_ptr<DataNode> node(const std::string& name) {
    auto made = transport::make_tcp_transport({{"lo"}, "for tests"});
    if (!made) throw std::runtime_error(made.error().message());
    Lanes lane;
    lane.push_back(std::move(*made));
    // On a busy machine an op takes many pulses of the usual length, and each allocates.
    return std::make_unique<DataNode>(name, std::move(lane), false, 1 << 20, false, 0, NodeGpus{},
                                      core::kSecond);
  }
  // All but every pool's finding of its size, before.
  void expect_nothing_for_a_slice() {
    for (int i = 0; i < 3; ++i) cost_of_op(2 * kSlices);
    const counted::Counts once = cost_of_op(kSlices), twice = cost_of_op(2 * kSlices);
    EXPECT_LE(twice.allocations, once.allocations + kNoise) << "of " << kSlices << " slices more";
    EXPECT_LE(twice.locks, once.locks + kNoise) << "of " << kSlices << " slices more";
    std::printf("%zu slices: %zu allocations, %zu locks; twice as many: %zu and %zu\n",
                size_t{kSlices}, size_t{once.allocations}, size_t{once.locks},
                size_t{twice.allocations}, size_t{twice.locks});
  }
  counted::Counts cost_of_op(uint64_t slices) {
    std::vector<float> x = numbers(slices * kSliceBytes / sizeof(float), 1), y = x;
    const counted::Counts before = counted::so_far();
    a_->submit(view_, 0, x, sequence_);
    b_->submit(view_, 1, y, sequence_++);
    EXPECT_EQ(a_->next<Completed>().outcome.verdict, Verdict::kOk);
    EXPECT_EQ(b_->next<Completed>().outcome.verdict, Verdict::kOk);
    const counted::Counts after = counted::so_far();
    return {after.allocations - before.allocations, after.locks - before.locks};
  }

  const core::View view_ = view_of({{"a", 1}, {"b", 1}}, 1);
  std::unique_ptr<DataNode> a_ = node("a"), b_ = node("b");
  uint64_t sequence_ = 0;
};

TEST_F(SteadyStateTest, ASliceAllocatesNothingAndTakesNoLock) {
  connect(*a_, *b_);
  a_->install(view_);
  b_->install(view_);
  expect_nothing_for_a_slice();
}

// These are small enough to be gathered.
TEST_F(SteadyStateTest, NorDoesOneThatSharesAMessage) {
  connect(*a_, *b_, kBundleBytesMax);
  a_->install(view_);
  b_->install(view_);
  expect_nothing_for_a_slice();
  EXPECT_GT(a_->next<Pulse>([](const Pulse& p) { return p.bundles_sent > 0; }).bundles_sent, 0u);
}

}  // namespace
}  // namespace gradring::daemon
