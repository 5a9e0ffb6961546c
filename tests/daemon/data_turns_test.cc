// How much of one job the data thread sums before it looks at the others again.

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "tests/daemon/data_node.h"
#include "tests/daemon/flipping_transport.h"

namespace gradring::daemon {
namespace {

// Calls a function in each turn of the data thread.
class Turning final : public FlippingTransport {
 public:
  Turning(std::unique_ptr<transport::Transport> under, Flips* flips, std::function<void()> look)
      : FlippingTransport(std::move(under), flips), look_(std::move(look)) {}
  int progress(transport::Events& events) override {
    look_();
    return FlippingTransport::progress(events);
  }

 private:
  const std::function<void()> look_;
};

// Longer slices, as those of a job that no other node is in, are no longer turns.
TEST_F(DataThreadTest, AJobThatIsAloneSumsNoMoreInATurnThanAnother) {
  constexpr uint32_t kAlone = 4 * kSliceBytes;
  constexpr ptrdiff_t kOfATurn = 8 * kSliceBytes / sizeof(float);
  std::vector<float> x(64 * kAlone / sizeof(float), 1), y = x;
  ptrdiff_t summed = 0, most = 0;
  Flips none;
  {
    Lanes lanes;
    lanes.push_back(std::make_unique<Turning>(fabric_.join("a"), &none, [&] {
      const ptrdiff_t now = std::count(x.begin(), x.end(), 2.0f);
      most = std::max(most, now - summed);
      summed = now;
    }));
    NodeGpus sizes;
    sizes.slice_bytes_alone = kAlone;
    DataNode a("a", std::move(lanes), false, 1 << 20, false, 0, sizes);
    const core::View view = view_of({{"a", 2}}, 1);
    a.install(view);
    a.submit(view, 0, x);
    a.submit(view, 1, y);
    for (int i = 0; i < 2; ++i) EXPECT_EQ(a.next<Completed>().outcome.verdict, Verdict::kOk);
  }
  EXPECT_EQ(x, std::vector<float>(x.size(), 2));
  EXPECT_EQ(y, x);
  EXPECT_EQ(most, kOfATurn);
}

}  // namespace
}  // namespace gradring::daemon
