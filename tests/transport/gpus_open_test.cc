#include <gmock/gmock.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <string>

#include "tests/transport/gpus_fixture.h"
#include "transport/cuda/fold_kernels.h"

namespace gradring::transport {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class GpuMemoryOfOthers : public GpusOfTheDaemon {
 protected:
  Status refused(const GpuShare& share) {
    const auto opened = gpus_->open(share);
    EXPECT_FALSE(opened);
    return opened ? Status() : opened.error();
  }
  Bytes read(const Memory& memory, size_t bytes) {
    Bytes out(bytes);
    const std::vector<GpuRange> input = {{memory.get(), 0}};
    EXPECT_TRUE(gpus_->begin({Dtype::kUint8, ReduceOp::kSum, input, out.data(), bytes}, 1).ok());
    ends_well(1);
    return out;
  }
};

TEST_F(GpuMemoryOfOthers, TheDaemonsOwnLiesWhereItIsWanted) {
  ASSERT_TRUE(gpus_->start().ok());
  const auto entered = gpus_->enter();
  ASSERT_TRUE(entered);
  for (size_t gpu = 0; gpu < gpus_->count(); ++gpu) {
    const auto own = gpus_->allocate(gpu, 4096);
    ASSERT_TRUE(own) << own.error().message();
    EXPECT_EQ((*own)->gpu(), gpu);
    EXPECT_EQ((*own)->bytes(), 4096u);
    EXPECT_NE((*own)->address(), nullptr);
    const std::vector<GpuRange> range = {{own->get(), 0}};
    EXPECT_TRUE(gpus_->reaches(gpu, range));
    Gpus::Allreduce copy{Dtype::kUint8, ReduceOp::kMax, range, range, 0, 4096};
    copy.on = gpu;
    ASSERT_TRUE(gpus_->begin(copy, gpu).ok());
    ends_well(gpu);
  }
}

TEST_F(GpuMemoryOfOthers, IsEnteredByTheFirstGpuThatHasStarted) {
  have(2);
  for (const int lost : {0, 1}) twin_.lose(lost, true);
  EXPECT_FALSE(gpus_->start().ok());
  const auto refused = gpus_->enter();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::kUnavailable);
  twin_.lose(1, false);
  EXPECT_FALSE(gpus_->start().ok());
  const auto entered = gpus_->enter();
  EXPECT_TRUE(entered) << entered.error().message();
  EXPECT_TRUE(gpus_->allocate(1, 4096));
  twin_.lose(0, false);
}

TEST_F(GpuMemoryOfOthers, AContextOfTheDaemonsKernelsAloneHasSmallStacks) {
  EXPECT_EQ(twin_.stack_bytes(), 1024u);
  ASSERT_TRUE(gpus_->start().ok());
  EXPECT_EQ(twin_.stack_bytes(), 256u);
  gpus_.reset();
  EXPECT_EQ(twin_.stack_bytes(), 1024u);
  have(2, {GpuSumsBy::kNccl});  // whose kernels have what they have
  ASSERT_TRUE(gpus_->start().ok());
  EXPECT_EQ(twin_.stack_bytes(), 1024u);
}

TEST_F(GpuMemoryOfOthers, RunsBesideOthersKernelsWhereContextsAreShared) {
  EXPECT_FALSE(gpus_->under_mps());
  twin_.share_contexts(true);
  EXPECT_TRUE(gpus_->under_mps());
  twin_.share_contexts(false);
}

TEST_F(GpuMemoryOfOthers, IsLentToCardsByDriversThatSayHow) {
  EXPECT_TRUE(gpus_->lend_dmabufs());
  twin_.answer("cuDeviceGetAttribute", 1);  // before CUDA 11.7
  EXPECT_FALSE(gpus_->lend_dmabufs());
  twin_.answer("cuDeviceGetAttribute", 0);
}

// A process with memory of a GPU.
class Exporter {
 public:
  explicit Exporter(const char* words) {
    std::array<int, 2> in{}, out{};
    EXPECT_EQ(::pipe(in.data()) + ::pipe(out.data()), 0);
    process_ = ::fork();
    if (process_ == 0) {
      ::dup2(in[0], STDIN_FILENO);
      ::dup2(out[1], STDOUT_FILENO);
      for (const int fd : {in[0], in[1], out[0], out[1]}) ::close(fd);
      ::execl(GPUS_EXPORTER, GPUS_EXPORTER, words, nullptr);
      ::_exit(127);
    }
    ::close(in[0]);
    ::close(out[1]);
    EXPECT_EQ(::read(out[0], &share_, sizeof(share_)), static_cast<ssize_t>(sizeof(share_)));
    ::close(out[0]);
    stdin_ = in[1];
  }
  ~Exporter() { kill(); }
  Exporter(const Exporter&) = delete;
  Exporter& operator=(const Exporter&) = delete;

  const GpuShare& share() const { return share_; }
  void kill() {
    if (process_ <= 0) return;
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
    ::close(stdin_);
    process_ = 0;
  }

 private:
  GpuShare share_;
  pid_t process_ = 0;
  int stdin_ = -1;
};

TEST_F(GpuMemoryOfOthers, LivesOnWhenItsProcessIsKilled) {
  Exporter exporter("words of another");
  auto opened = gpus_->open(exporter.share());
  ASSERT_TRUE(opened) << opened.error().message();
  exporter.kill();
  const Bytes found = read(*opened, 16);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(found.data()), 16), "words of another");
}

TEST_F(GpuMemoryOfOthers, OfAProcessThatIsGoneIsRefusedWithARemedy) {
  Exporter exporter("too late");
  exporter.kill();
  const Status status = refused(exporter.share());
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("error 205 of CUDA"), HasSubstr("--pid=host")));
}

TEST_F(GpuMemoryOfOthers, IsOpenOnceHoweverOftenItIsOpened) {
  const Bytes values = random_bytes(100);
  const uint64_t address = allocate(values);
  Memory first = open(address, 0, 50);
  const int held = twin_.held();
  const Memory second = open(address, 50, 50);
  ASSERT_TRUE(first != nullptr && second != nullptr);
  EXPECT_EQ(twin_.held(), held);
  EXPECT_EQ(second->bytes(), 50u);
  first.reset();
  EXPECT_EQ(read(second, 50), Bytes(values.begin() + 50, values.end()));
}

TEST_F(GpuMemoryOfOthers, IsClosedWithItsLastOwnerAndMayBeOpenedAnew) {
  const Bytes values = random_bytes(100);
  const uint64_t address = allocate(values);
  read(lend(Bytes(8)), 8);
  const int held = twin_.held();  // a stream, an event and the like, which are kept
  for (int i = 0; i < 3; ++i) {
    const Memory memory = open(address, 0, 100);
    EXPECT_EQ(twin_.held(), held + 1);
    EXPECT_EQ(read(memory, 100), values);
  }
  EXPECT_EQ(twin_.held(), held);
}

TEST_F(GpuMemoryOfOthers, IsOpenedAndClosedWhileOtherIsSummed) {
  have(2);
  const Bytes values = random_bytes(100);
  const uint64_t address = allocate(values);
  const GpuShare elsewhere = test::share_of(allocate(values, 0, 1), 0, 100, 1);
  const Memory mine = open(address, 0, 100);
  std::thread control([this, share = test::share_of(address, 10, 20), &elsewhere] {
    for (int i = 0; i < 200; ++i) {
      EXPECT_TRUE(gpus_->open(share));
      EXPECT_TRUE(gpus_->open(elsewhere));
    }
  });
  for (int i = 0; i < 20; ++i) EXPECT_EQ(read(mine, 100), values);
  control.join();
}

TEST_F(GpuMemoryOfOthers, MayOutliveTheGpus) {
  const Memory memory = lend(Bytes(8));
  gpus_.reset();
  EXPECT_GT(twin_.held(), 0);
}

TEST_F(GpuMemoryOfOthers, BeyondItsAllocationIsRefused) {
  const uint64_t address = allocate(Bytes(100));
  const auto at = [address](uint64_t offset, uint64_t bytes) {
    return test::share_of(address, offset, bytes);
  };
  for (const GpuShare& share :
       {at(0, 101), at(1, 100), at(101, 0), at(100, 1), at(~uint64_t{0}, 2), at(2, ~uint64_t{0})}) {
    const Status status = refused(share);
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("an allocation of 100 bytes"));
  }
  EXPECT_NE(open(address, 99, 1), nullptr);
}

TEST_F(GpuMemoryOfOthers, OfAGpuThatTheDaemonDoesNotHaveIsRefused) {
  GpuShare share = test::share_of(allocate(Bytes(8)), 0, 8);
  share.gpu.fill(std::byte{0x5a});
  const Status status = refused(share);
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("GPU-5a5a5a5a-5a5a-5a5a-5a5a-5a5a5a5a5a5a"),
                                      HasSubstr("1 GPU, Twin")));
}

TEST_F(GpuMemoryOfOthers, IsRefusedWhereTheGpuGivesNoContextAndMayBeTriedAgain) {
  const GpuShare share = test::share_of(allocate(Bytes(8)), 0, 8);
  for (const char* const function :
       {"cuDevicePrimaryCtxRetain", "cuModuleLoadData", "cuStreamCreate", "cuMemAlloc_v2",
        "cuIpcOpenMemHandle_v2", "cuMemGetAddressRange_v2"}) {
    twin_.answer(function, 2);
    const Status status = refused(share);
    twin_.answer(function, 0);
    EXPECT_EQ(status.code(), Code::kUnavailable) << function;
  }
  EXPECT_TRUE(gpus_->open(share));
}

TEST_F(GpuMemoryOfOthers, IsWhatAGpuIsTakenFor) {
  have(2);
  EXPECT_EQ(twin_.held(), 0) << "nothing is taken of a GPU before it is needed";
  const Memory memory = lend(Bytes(8), 0, 1);
  const int held = twin_.held();
  EXPECT_GT(held, 0);
  Bytes host(8);
  const auto ready = gpus_->make_ready(host, std::nullopt);
  ASSERT_TRUE(ready);
  EXPECT_EQ(twin_.held(), held + 1) << "pinned by the GPU that is in use";
}

TEST_F(GpuMemoryOfOthers, CanBeSummedIntoMemoryThatIsReadyBeforeIt) {
  Bytes host(8);
  auto ready = gpus_->make_ready(host, std::nullopt);
  ASSERT_TRUE(ready) << ready.error().message();
  const auto again = gpus_->make_ready(host, std::nullopt);
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code(), Code::kUnavailable);
  EXPECT_THAT(again.error().message(), HasSubstr("did not pin 8 bytes"));
  gpus_.reset();  // the registration needs it no longer than the driver does
  ready->reset();
  EXPECT_EQ(twin_.held(), 0);
}

TEST_F(GpuMemoryOfOthers, CanBeSummedIntoMemoryThatAnotherGpuPinsWhereTheFirstIsLost) {
  have(2);
  const Memory on_first = lend(Bytes(8), 0, 0), on_second = lend(Bytes(8), 0, 1);
  Bytes host(8);
  for (const int lost : {0, 1}) {
    twin_.lose(lost, true);
    const auto ready = gpus_->make_ready(host, std::nullopt);
    EXPECT_TRUE(ready) << ready.error().message();
    twin_.lose(lost, false);
  }
  for (const int lost : {0, 1}) twin_.lose(lost, true);
  const auto ready = gpus_->make_ready(host, std::nullopt);
  for (const int lost : {0, 1}) twin_.lose(lost, false);
  ASSERT_FALSE(ready);
  EXPECT_THAT(ready.error().message(), HasSubstr("did not pin 8 bytes"));
}

// What takes its time is not done within the driver, where others wait for it.
TEST_F(GpuMemoryOfOthers, IsSummedIntoPagesThatAreThereBeforeTheDriverPinsThem) {
  constexpr size_t kPages = 256;
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  void* const begin =
      ::mmap(nullptr, kPages * page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(begin, MAP_FAILED);
  if (::madvise(begin, page, MADV_POPULATE_WRITE) != 0) GTEST_SKIP() << "older than Linux 5.14";
  auto ready = gpus_->make_ready({static_cast<std::byte*>(begin), kPages * page}, std::nullopt);
  ASSERT_TRUE(ready) << ready.error().message();
  std::array<unsigned char, kPages> there{};
  ASSERT_EQ(::mincore(begin, kPages * page, there.data()), 0);
  EXPECT_THAT(there, ::testing::Each(1));
  ready->reset();
  ::munmap(begin, kPages * page);
}

TEST(OpenGpus, HaveKernelsWhereTheyWereBuilt) {
  EXPECT_EQ(!fold_kernels().empty(), GRADRING_HAS_KERNELS);
}

TEST(OpenGpus, SayWhyThereAreNone) {
  const auto& twin = test::cuda_twin();
  const auto refused = [] {
    const auto opened = open_gpus({});
    EXPECT_FALSE(opened);
    if (opened) return std::string("opened");
    EXPECT_EQ(opened.error().code(), Code::kUnavailable);
    return opened.error().message();
  };
  twin.have(0);
  EXPECT_THAT(refused(), HasSubstr("no GPU for the daemon"));
  twin.have(1);
  twin.answer("cuModuleLoadData", 200);  // as a driver does
  EXPECT_EQ(refused(), "this gradringd was built without GPU kernels (GRADRING_CUDA)");
  const auto opened = open_gpus(std::as_bytes(std::span("an image")));
  twin.answer("cuModuleLoadData", 0);
  ASSERT_FALSE(opened);
  EXPECT_THAT(opened.error().message(),
              AllOf(HasSubstr("does not take the kernels"), HasSubstr("error 200 of CUDA")));
  EXPECT_EQ(twin.held(), 0);
}

}  // namespace
}  // namespace gradring::transport
