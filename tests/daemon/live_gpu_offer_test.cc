// Memory of a GPU that a trainer offers a real daemon by a descriptor, said in raw messages.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "proto/cuda_pages.h"
#include "proto/stream_word.h"
#include "tests/client/cuda_twin.h"
#include "tests/daemon/live_daemon.h"
#include "tests/daemon/raw_trainer.h"
#include "tests/transport/gpus_share.h"

namespace gradring::daemon {
namespace {

using testing::HasSubstr;

constexpr uint64_t kOffered = uint64_t{2} << 20;
constexpr uint64_t kOfferedFloats = kOffered / sizeof(float);

std::vector<std::string> sums_on_gpus(bool on) {
  if (!test::is_real()) setenv("LD_LIBRARY_PATH", CUDA_TWIN_FOLDER, 1);  // of the daemon
  if (!on) return {};
  return {"--gpu-sums", "on"};
}

// Pages of a GPU, of which nothing is left here but the descriptor.
Fd pages_of(float value) {
  test::cuda_twin();
  const CudaPagesKind kind;
  CudaPages pages = 0;
  int descriptor = -1;
  test::call_driver("cuMemCreate", &pages, kOffered, &kind, uint64_t{0});
  test::call_driver("cuMemExportToShareableHandle", static_cast<void*>(&descriptor), pages, 1,
                    uint64_t{0});
  test::call_driver("cuMemRelease", pages);
  const std::vector<float> values(kOfferedFloats, value);
  EXPECT_EQ(::pwrite(descriptor, values.data(), kOffered, 0), static_cast<ssize_t>(kOffered));
  return Fd(descriptor);
}

float first_of(const Fd& pages) {
  float value = 0;
  EXPECT_EQ(::pread(pages.get(), &value, sizeof value, 0), static_cast<ssize_t>(sizeof value));
  return value;
}

class LiveGpuOffer : public testing::Test {
 protected:
  explicit LiveGpuOffer(bool gpu_sums = true) : daemon_(sums_on_gpus(gpu_sums)) {}
  void SetUp() override {
    if (test::is_real()) GTEST_SKIP() << "this is about the tests' own GPU";
  }

  static std::optional<wire::AttachReply> offer(RawTrainer& by, uint64_t request,
                                                const std::vector<int>& descriptors) {
    wire::AttachRequest offer;
    offer.mutable_offer()->set_request(request);
    EXPECT_TRUE(by.attach().send(offer, descriptors));
    return by.attach().receive();
  }
  static wire::ClientMessage share(const RawTrainer::Memory& segment, uint64_t offered) {
    std::string gpu(16, '\0');
    test::call_driver("cuDeviceGetUuid_v2", static_cast<void*>(gpu.data()), 0);
    wire::ClientMessage message;
    wire::ShareGpuMemory* const to = message.mutable_share_gpu();
    to->set_segment(segment.segment);
    to->set_gpu(gpu);
    to->set_bytes(kOffered);
    to->set_offered(offered);
    return message;
  }
  static RawTrainer::Memory shadow(RawTrainer& of) { return of.allocate(kOffered + 4096); }
  static void submit(RawTrainer& by, const RawTrainer::Memory& segment) {
    wire::Operation operation = RawTrainer::allreduce(segment, kOfferedFloats, 0);
    operation.set_on_gpu(true);
    operation.mutable_reached()->set_segment(segment.segment);
    operation.mutable_reached()->set_offset(kOffered);
    operation.mutable_reached()->set_value(7);
    by.submit(operation);
    StreamWord{reinterpret_cast<uint32_t*>(segment.data) + kOfferedFloats, 7}.set();
  }
  // Whether it comes to have no more than that open.
  bool has_open(size_t most) const {
    constexpr int kLooks = 1000;
    for (int i = 0; i < kLooks && daemon_.open_files() > most; ++i) ::usleep(10'000);
    return daemon_.open_files() <= most;
  }

  LiveDaemon daemon_;
  std::unique_ptr<RawTrainer> x_ = std::make_unique<RawTrainer>(daemon_.runtime_dir());
  std::unique_ptr<RawTrainer> y_ = std::make_unique<RawTrainer>(daemon_.runtime_dir());
};

TEST_F(LiveGpuOffer, IsSummedAndBroughtBack) {
  ASSERT_TRUE(form_job("job", {x_.get(), y_.get()}));
  const Fd of_x = pages_of(2), of_y = pages_of(3);
  const RawTrainer::Memory x = shadow(*x_), y = shadow(*y_);
  EXPECT_EQ(offer(*x_, 31, {of_x.get()})->offered().request(), 31u);
  EXPECT_EQ(offer(*y_, 31, {of_y.get()})->offered().request(), 31u) << "of each its own";
  EXPECT_TRUE(x_->ask(share(x, 31)).has_gpu_shared());
  EXPECT_TRUE(y_->ask(share(y, 31)).has_gpu_shared());
  submit(*x_, x);
  submit(*y_, y);
  EXPECT_EQ(x_->completion().verdict(), kOk);
  EXPECT_EQ(y_->completion().verdict(), kOk);
  EXPECT_EQ(first_of(of_x), 5);
  EXPECT_EQ(first_of(of_y), 5);
}

TEST_F(LiveGpuOffer, IsGivenBackByTheDaemonWithItsTrainer) {
  const auto turn = [this] {
    RawTrainer one(daemon_.runtime_dir());
    const Fd pages = pages_of(1);
    for (uint64_t i = 1; i <= 3; ++i) offer(one, i, {pages.get()});
    EXPECT_TRUE(one.ask(share(shadow(one), 2)).has_gpu_shared());
  };
  turn();  // the GPU is started
  ::usleep(200'000);
  const size_t before = daemon_.open_files();
  for (int i = 0; i < 10; ++i) turn();
  EXPECT_TRUE(has_open(before));
}

TEST_F(LiveGpuOffer, NonsenseIsRefusedInWords) {
  const Fd pages = pages_of(1);
  const auto told = [&](uint64_t request, const std::vector<int>& descriptors) {
    return offer(*x_, request, descriptors)->refused().message();
  };
  EXPECT_THAT(told(1, {}), HasSubstr("by one descriptor"));
  EXPECT_THAT(told(1, {pages.get(), pages.get()}), HasSubstr("by one descriptor"));
  EXPECT_THAT(told(0, {pages.get()}), HasSubstr("which is not 0"));
  const auto shared = [&](uint64_t offered) {
    return x_->ask(share(shadow(*x_), offered)).refused().message();
  };
  EXPECT_THAT(shared(1), HasSubstr("no memory of a GPU was offered by request 1"));
  const Fd none(::open("/dev/null", O_RDWR | O_CLOEXEC));
  offer(*x_, 2, {none.get()});
  EXPECT_THAT(shared(2), HasSubstr("did not take memory that its trainer has offered"));
  EXPECT_THAT(shared(2), HasSubstr("was offered by request 2"))
      << "it is gone, whatever came of it";
  for (uint64_t i = 1; i <= 16; ++i) EXPECT_TRUE(offer(*x_, i, {pages.get()})->has_offered());
  EXPECT_THAT(told(17, {pages.get()}), HasSubstr("that nobody shares"));
  EXPECT_TRUE(x_->ask(share(shadow(*x_), 16)).has_gpu_shared());
  EXPECT_TRUE(offer(*x_, 17, {pages.get()})->has_offered());
}

TEST_F(LiveGpuOffer, MoreDescriptorsThanAnybodySendsEndTheSession) {
  const Fd pages = pages_of(1);
  offer(*x_, 1, std::vector<int>(100, pages.get()));
  EXPECT_TRUE(x_->attach().closed_by_daemon());
  EXPECT_TRUE(offer(*y_, 1, {pages.get()})->has_offered()) << "and harm nobody else";
}

class LiveGpuUnoffered : public LiveGpuOffer {
 protected:
  LiveGpuUnoffered() : LiveGpuOffer(false) {}
};

TEST_F(LiveGpuUnoffered, ADaemonThatSumsOnNoneTakesNone) {
  EXPECT_THAT(offer(*x_, 1, {})->refused().message(), HasSubstr("(gpu-sums)"));
}

}  // namespace
}  // namespace gradring::daemon
