// Memory of a GPU that a trainer lets a real daemon open, said in raw messages: with nonsense in
// them, and by trainers that die.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "proto/stream_word.h"
#include "tests/client/cuda_twin.h"
#include "tests/daemon/live_daemon.h"
#include "tests/daemon/raw_rings.h"
#include "tests/daemon/raw_trainer.h"
#include "tests/daemon/ring_entry.h"
#include "tests/transport/gpus_share.h"

namespace gradring::daemon {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::SizeIs;

constexpr uint64_t kFloats = 64 << 10;
constexpr uint64_t kBytes = kFloats * sizeof(float);
constexpr uint64_t kWordAt = kBytes;

std::vector<std::string> flags(bool gpu_sums) {
  if (!test::is_real()) setenv("LD_LIBRARY_PATH", CUDA_TWIN_FOLDER, 1);  // of the daemon
  if (!gpu_sums) return {};
  return {"--gpu-sums", "on"};
}

class LiveGpuShare : public testing::Test {
 protected:
  explicit LiveGpuShare(bool gpu_sums = true) : daemon_(flags(gpu_sums)) {}
  void SetUp() override {
    if (test::is_real()) GTEST_SKIP() << "this is about the tests' own GPU";
  }

  // Of one trainer, with a segment that stands for it.
  struct Shared {
    RawTrainer::Memory segment;
    uint64_t address = 0;
  };
  Shared make(RawTrainer& of) {
    Shared made{of.allocate(kBytes + 4096), test::cuda_twin().gpu.alloc(kBytes, false)};
    made_.push_back(made.address);
    return made;
  }
  ~LiveGpuShare() override {
    for (const uint64_t address : made_) test::cuda_twin().gpu.free(address);
  }
  static wire::ClientMessage share(const Shared& what) {
    const transport::GpuShare share = test::share_of(what.address, 0, kBytes, 0);
    wire::ClientMessage message;
    wire::ShareGpuMemory* const to = message.mutable_share_gpu();
    to->set_segment(what.segment.segment);
    to->set_handle(share.handle.data(), share.handle.size());
    to->set_gpu(share.gpu.data(), share.gpu.size());
    to->set_offset(share.offset);
    to->set_bytes(share.bytes);
    return message;
  }
  static void fill(const Shared& what, float value) {
    std::fill_n(static_cast<float*>(test::cuda_twin().behind(what.address)), kFloats, value);
  }
  static float first(const Shared& what) {
    return *static_cast<float*>(test::cuda_twin().behind(what.address));
  }
  static wire::Operation on_gpu(const Shared& what, uint64_t sequence) {
    wire::Operation operation = RawTrainer::allreduce(what.segment, kFloats, sequence);
    operation.set_on_gpu(true);
    operation.mutable_reached()->set_segment(what.segment.segment);
    operation.mutable_reached()->set_offset(kWordAt);
    operation.mutable_reached()->set_value(7);
    return operation;
  }
  static RingSubmission ring_on_gpu(const Shared& what, uint64_t sequence) {
    RingSubmission entry = ring_allreduce(what.segment.segment, 1000 + sequence);
    entry.key = {0, sequence};
    entry.count = kFloats;
    entry.reached_segment = what.segment.segment;
    entry.reached_offset = kWordAt;
    entry.reached_value = 7;
    entry.on_gpu = kOnGpu | kStaysOnGpu;
    return entry;
  }
  static wire::ClientMessage freed(const Shared& what) {
    wire::ClientMessage free;
    free.mutable_free()->set_segment(what.segment.segment);
    return free;
  }
  static void reach(const Shared& what) {
    StreamWord{reinterpret_cast<uint32_t*>(what.segment.data) + kWordAt / 4, 7}.set();
  }

  // The number of x's segment there.
  uint64_t borrowed_by_y(const Shared& x) {
    wire::AttachRequest borrow;
    borrow.mutable_borrow()->set_request(y_->next_request());
    borrow.mutable_borrow()->set_session(x_->session());
    borrow.mutable_borrow()->set_secret(x_->secret());
    borrow.mutable_borrow()->set_segment(x.segment.segment);
    EXPECT_TRUE(y_->attach().send(borrow));
    const auto borrowed = y_->attach().receive();
    EXPECT_TRUE(borrowed && borrowed->has_segment());
    return borrowed ? borrowed->segment().segment() : 0;
  }

  LiveDaemon daemon_;
  std::vector<uint64_t> made_;
  std::unique_ptr<RawTrainer> x_ = std::make_unique<RawTrainer>(daemon_.runtime_dir());
  std::unique_ptr<RawTrainer> y_ = std::make_unique<RawTrainer>(daemon_.runtime_dir());
};

TEST_F(LiveGpuShare, IsSummedAndBroughtBack) {
  ASSERT_TRUE(form_job("job", {x_.get(), y_.get()}));
  const Shared x = make(*x_), y = make(*y_);
  EXPECT_TRUE(x_->ask(share(x)).has_gpu_shared());
  EXPECT_TRUE(y_->ask(share(y)).has_gpu_shared());
  fill(x, 2);
  fill(y, 3);
  x_->submit(on_gpu(x, 0));
  y_->submit(on_gpu(y, 0));
  reach(x);
  EXPECT_FALSE(x_->receive(30)) << "the other's stream has not come to it";
  reach(y);
  EXPECT_EQ(x_->completion().verdict(), kOk);
  EXPECT_EQ(y_->completion().verdict(), kOk);
  EXPECT_EQ(first(x), 5);
  EXPECT_EQ(first(y), 5);
}

TEST_F(LiveGpuShare, MayBeNamedInARing) {
  ASSERT_TRUE(form_job("job", {x_.get(), y_.get()}));
  const Shared x = make(*x_), y = make(*y_);
  EXPECT_TRUE(x_->ask(share(x)).has_gpu_shared());
  RawRings before(*x_), after(*y_);
  EXPECT_TRUE(y_->ask(share(y)).has_gpu_shared());
  fill(x, 2);
  fill(y, 3);
  before.put(ring_on_gpu(x, 0));
  after.put(ring_on_gpu(y, 0));
  reach(x);
  reach(y);
  EXPECT_EQ(before.end().verdict, kOk);
  EXPECT_EQ(after.end().verdict, kOk);
  EXPECT_EQ(first(x), 5);
  EXPECT_EQ(first(y), 5);
  EXPECT_TRUE(x_->ask(freed(x)).has_freed());
}

TEST_F(LiveGpuShare, WhoBorrowedItsSegmentNamesItNoMoreOnceItIsFreed) {
  ASSERT_TRUE(form_job("job", {y_.get()}));
  const Shared x = make(*x_);
  EXPECT_TRUE(x_->ask(share(x)).has_gpu_shared());
  RawRings rings(*y_);
  RingSubmission entry = ring_on_gpu(x, 0);
  entry.input_segment = entry.output_segment = entry.reached_segment = borrowed_by_y(x);
  reach(x);
  rings.put(entry);
  EXPECT_EQ(rings.end().verdict, kOk);

  EXPECT_TRUE(x_->ask(freed(x)).has_freed());
  entry.ticket += 1;
  entry.key.sequence += 1;
  rings.put(entry);
  EXPECT_THAT(y_->completion().message(), HasSubstr("stands for no GPU's memory"));
}

// Two threads of a process may borrow it at once, and one of them gives it back.
TEST_F(LiveGpuShare, WhoBorrowedItsSegmentMayGiveItBack) {
  ASSERT_TRUE(form_job("job", {x_.get()}));
  const Shared x = make(*x_);
  EXPECT_TRUE(x_->ask(share(x)).has_gpu_shared());
  wire::ClientMessage give_back;
  give_back.mutable_free()->set_segment(borrowed_by_y(x));
  EXPECT_TRUE(y_->ask(give_back).has_freed());
  fill(x, 2);
  reach(x);
  x_->submit(on_gpu(x, 0));
  EXPECT_EQ(x_->completion().verdict(), kOk);
  EXPECT_TRUE(x_->ask(freed(x)).has_freed());
}

TEST_F(LiveGpuShare, NonsenseIsRefusedInWords) {
  const Shared x = make(*x_);
  const auto told = [&](const std::function<void(wire::ShareGpuMemory&)>& spoil) {
    wire::ClientMessage message = share(x);
    spoil(*message.mutable_share_gpu());
    return x_->ask(message).refused().message();
  };
  using Share = wire::ShareGpuMemory;
  EXPECT_THAT(told([](Share& s) { s.set_handle("short"); }), HasSubstr("a handle of 5 bytes"));
  EXPECT_THAT(told([](Share& s) { s.set_gpu(std::string(17, 'x')); }), HasSubstr("named in 17"));
  EXPECT_THAT(told([](Share& s) { s.set_bytes(0); }), HasSubstr("0 bytes"));
  EXPECT_THAT(told([](Share& s) { s.set_bytes(kBytes + 8192); }), HasSubstr("do not fit"));
  EXPECT_THAT(told([](Share& s) { s.set_segment(77); }), HasSubstr("segment 77 does not belong"));
  EXPECT_THAT(told([](Share& s) { s.set_handle(std::string(64, 'x')); }),
              HasSubstr("cannot be opened"));
  EXPECT_THAT(told([](Share& s) { s.set_gpu(std::string(16, 'x')); }),
              HasSubstr("is none of the daemon's"));
  EXPECT_NE(told([](Share& s) { s.set_offset(~uint64_t{0}); }), "");
  EXPECT_THAT(told([](Share& s) { s.set_cannot("it is\nvirtual" + std::string(5000, 'x')); }),
              AllOf(HasSubstr("it is virtual"), SizeIs(300)));
  EXPECT_TRUE(x_->ask(share(x)).has_gpu_shared());
  EXPECT_THAT(told([](Share&) {}), HasSubstr("already"));
  EXPECT_TRUE(daemon_.runs());
}

// The daemon has it open, and its job is told as ever.
TEST_F(LiveGpuShare, OfATrainerThatDiesHarmsNobodyElse) {
  ASSERT_TRUE(form_job("job", {x_.get(), y_.get()}));
  const Shared x = make(*x_), y = make(*y_);
  EXPECT_TRUE(x_->ask(share(x)).has_gpu_shared());
  EXPECT_TRUE(y_->ask(share(y)).has_gpu_shared());
  x_->submit(on_gpu(x, 0));
  y_->submit(on_gpu(y, 0));
  reach(y);
  x_.reset();
  const wire::Completion end = y_->completion();
  EXPECT_EQ(end.verdict(), kFailed);
  EXPECT_EQ(static_cast<Cause>(end.failure().cause()), Cause::kTrainerDied);
  RawTrainer z(daemon_.runtime_dir());
  const Shared again = make(z);
  EXPECT_TRUE(z.ask(share(again)).has_gpu_shared());
}

TEST_F(LiveGpuShare, IsClosedWithItsSegment) {
  const Shared x = make(*x_);
  EXPECT_TRUE(x_->ask(share(x)).has_gpu_shared());
  EXPECT_TRUE(x_->ask(freed(x)).has_freed());
  EXPECT_THAT(x_->ask(share(x)).refused().message(), HasSubstr("does not belong"));
}

TEST_F(LiveGpuShare, MayBeFreedBeforeItIsOpen) {
  const Shared first = make(*x_);
  EXPECT_TRUE(x_->ask(share(first)).has_gpu_shared());
  EXPECT_TRUE(x_->ask(freed(first)).has_freed());
  const size_t open_before = daemon_.open_files();
  for (int i = 0; i < 20; ++i) {
    const Shared x = make(*x_);
    wire::ClientMessage asked = share(x), free = freed(x);
    asked.set_request(x_->next_request());
    x_->send(asked);
    free.set_request(x_->next_request());
    x_->send(free);
    const wire::DaemonMessage answer = x_->answer_to(asked.request());
    EXPECT_TRUE(answer.has_gpu_shared() || answer.has_refused());
    EXPECT_TRUE(x_->answer_to(free.request()).has_freed());
    EXPECT_LE(daemon_.open_files(), open_before) << "its trainer may give it back to the GPU now";
  }
}

class LiveGpuUnshared : public LiveGpuShare {
 protected:
  LiveGpuUnshared() : LiveGpuShare(false) {}
};

TEST_F(LiveGpuUnshared, ADaemonThatSumsOnNoneSaysSo) {
  ASSERT_TRUE(form_job("job", {x_.get(), y_.get()}));
  const Shared x = make(*x_);
  EXPECT_THAT(x_->ask(share(x)).refused().message(), HasSubstr("(gpu-sums)"));
  x_->submit(on_gpu(x, 0));
  EXPECT_THAT(x_->completion().message(), HasSubstr("stands for no GPU's memory"));
}

}  // namespace
}  // namespace gradring::daemon
