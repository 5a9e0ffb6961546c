#include <fcntl.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <string>
#include <utility>

#include "proto/cuda_pages.h"
#include "tests/transport/gpus_fixture.h"

namespace gradring::transport {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uint64_t kPage = uint64_t{2} << 20;

// What a trainer offers: pages with these bytes at their beginning. It keeps nothing of them but
// the descriptor, and may be gone.
class Offer {
 public:
  explicit Offer(const Bytes& bytes, int gpu = 0, uint64_t whole = kPage) {
    test::cuda_twin();
    CudaPagesKind kind;
    kind.at.device = gpu;
    CudaPages pages = 0;
    test::call_driver("cuMemCreate", &pages, whole, &std::as_const(kind), uint64_t{0});
    test::call_driver("cuMemExportToShareableHandle", static_cast<void*>(&share_.descriptor), pages,
                      1, uint64_t{0});
    test::call_driver("cuMemRelease", pages);
    test::call_driver("cuDeviceGetUuid_v2", static_cast<void*>(&share_.gpu), gpu);
    EXPECT_EQ(::pwrite(share_.descriptor, bytes.data(), bytes.size(), 0),
              static_cast<ssize_t>(bytes.size()));
    share_.bytes = bytes.size();
  }
  ~Offer() { withdraw(); }
  Offer(const Offer&) = delete;
  Offer& operator=(const Offer&) = delete;

  GpuShare& share() { return share_; }
  Bytes read() const {
    Bytes bytes(share_.bytes);
    EXPECT_EQ(::pread(share_.descriptor, bytes.data(), bytes.size(), 0),
              static_cast<ssize_t>(bytes.size()));
    return bytes;
  }
  void withdraw() {
    if (share_.descriptor >= 0) ::close(std::exchange(share_.descriptor, -1));
  }

 private:
  GpuShare share_;
};

class GpuMemoryThatIsOffered : public GpusOfTheDaemon {
 protected:
  Memory take(Offer& offer) {
    auto opened = gpus_->open(offer.share());
    if (opened) return *std::move(opened);
    ADD_FAILURE() << opened.error().message();
    return nullptr;
  }
  Status refused(Offer& offer) {
    const auto opened = gpus_->open(offer.share());
    EXPECT_FALSE(opened);
    return opened ? Status() : opened.error();
  }
  Bytes read(const Memory& memory) {
    Bytes out(memory->bytes());
    const std::vector<GpuRange> input = {{memory.get(), 0}};
    EXPECT_TRUE(
        gpus_->begin({Dtype::kUint8, ReduceOp::kSum, input, out.data(), out.size()}, 1).ok());
    ends_well(1);
    return out;
  }
};

TEST_F(GpuMemoryThatIsOffered, LivesOnWithoutItsProcess) {
  const Bytes values = random_bytes(100);
  Offer offer(values);
  const Memory memory = take(offer);
  offer.withdraw();
  EXPECT_EQ(memory->bytes(), 100u);
  EXPECT_EQ(read(memory), values);
}

TEST_F(GpuMemoryThatIsOffered, IsWrittenWhereItsProcessSeesIt) {
  const Bytes values = random_bytes(3000);
  Offer offer{Bytes(values.size())};
  const Memory memory = take(offer);
  const std::vector<GpuRange> output = {{memory.get(), 0}};
  ASSERT_TRUE(gpus_->begin(Gpus::Spread{values.data(), output, values.size()}, 1).ok());
  ends_well(1);
  EXPECT_EQ(offer.read(), values);
}

TEST_F(GpuMemoryThatIsOffered, IsGivenBackWithItsLastOwnerAndMayBeTakenTwice) {
  const Bytes values = random_bytes(100);
  Offer offer(values);
  read(lend(Bytes(8)));
  const int held = twin_.held();
  for (int i = 0; i < 3; ++i) {
    const Memory first = take(offer);
    const Memory second = take(offer);
    EXPECT_EQ(read(first), values);
    EXPECT_EQ(read(second), values);
  }
  EXPECT_EQ(twin_.held(), held);
}

TEST_F(GpuMemoryThatIsOffered, IsReadByAllGpusThatReachItsOwn) {
  have(2);
  const Bytes values = random_bytes(4000);
  Offer near(values), far(values, 1);
  const std::vector<Memory> memory = {take(near), take(far)};
  const std::vector<GpuRange> inputs = {{memory[0].get(), 0}, {memory[1].get(), 0}};
  for (size_t gpu = 0; gpu < 2; ++gpu) {
    EXPECT_EQ(memory[gpu]->gpu(), gpu);
    EXPECT_TRUE(gpus_->reaches(gpu, inputs));
    Gpus::Allreduce larger{Dtype::kUint8, ReduceOp::kMax, inputs, inputs, 0, values.size()};
    larger.on = gpu;
    ASSERT_TRUE(gpus_->begin(larger, gpu).ok());
    ends_well(gpu);
  }
  EXPECT_EQ(far.read(), values);
}

TEST_F(GpuMemoryThatIsOffered, IsNotForGpusThatDoNotReachItsOwn) {
  have(2);
  twin_.answer("cuDeviceCanAccessPeer", 1);
  Offer offer(random_bytes(100), 1);
  const Memory memory = take(offer);
  const std::vector<GpuRange> range = {{memory.get(), 0}};
  EXPECT_FALSE(gpus_->reaches(0, range));
  EXPECT_TRUE(gpus_->reaches(1, range));
  twin_.answer("cuDeviceCanAccessPeer", 0);
}

TEST_F(GpuMemoryThatIsOffered, NorForThoseWhoseWayThereLosesData) {
  have(2);
  twin_.answer("peers lose", 1);
  ASSERT_TRUE(gpus_->start().ok());
  twin_.answer("peers lose", 0);
  Offer offer(random_bytes(100), 1);
  const Memory memory = take(offer);
  const std::vector<GpuRange> range = {{memory.get(), 0}};
  EXPECT_FALSE(gpus_->reaches(0, range));
  EXPECT_TRUE(gpus_->reaches(1, range));
}

TEST_F(GpuMemoryThatIsOffered, MustLieOnTheGpuThatIsNamed) {
  have(2);
  Offer offer(random_bytes(100), 1);
  test::call_driver("cuDeviceGetUuid_v2", static_cast<void*>(&offer.share().gpu), 0);
  const Status status = refused(offer);
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("lies on another GPU"));
}

TEST_F(GpuMemoryThatIsOffered, MustBeAsLongAsIsSaid) {
  Offer offer(random_bytes(100));
  for (const uint64_t bytes : {kPage + 1, uint64_t{1} << 40, ~uint64_t{0}, uint64_t{0}}) {
    offer.share().bytes = bytes;
    EXPECT_EQ(refused(offer).code(), Code::kInvalidArgument) << bytes;
  }
  offer.share().bytes = kPage;
  EXPECT_NE(take(offer), nullptr);
}

TEST_F(GpuMemoryThatIsOffered, MustBeSome) {
  Offer offer(random_bytes(100));
  offer.withdraw();
  offer.share().descriptor = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  const Status status = refused(offer);
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("error 1 of CUDA"), HasSubstr("the same driver")));
}

TEST_F(GpuMemoryThatIsOffered, IsRefusedWhereTheDriverWouldNot) {
  const Bytes values = random_bytes(100);
  Offer offer(values);
  read(lend(Bytes(8)));
  const int held = twin_.held();
  for (const char* const function :
       {"cuMemImportFromShareableHandle", "cuMemAddressReserve", "cuMemMap", "cuMemSetAccess"}) {
    twin_.answer(function, 2);
    EXPECT_EQ(refused(offer).code(), Code::kUnavailable) << function;
    twin_.answer(function, 0);
    EXPECT_EQ(twin_.held(), held) << function;
  }
  EXPECT_EQ(read(take(offer)), values);
}

}  // namespace
}  // namespace gradring::transport
