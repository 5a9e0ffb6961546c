#include <gmock/gmock.h>

#include <chrono>
#include <gradring/gradring.hpp>
#include <numeric>
#include <thread>

#include "tests/client/trainer.h"

// A 16-bit type of the program's own.
struct Half {
  uint16_t bits;
};
template <>
// NOLINTNEXTLINE(readability-identifier-naming): the interface named it
inline constexpr gradring_dtype gradring::dtype_of<Half> = GRADRING_FLOAT16;

namespace gradring::test {
namespace {

using ::testing::HasSubstr;

static_assert(dtype_of<float> == GRADRING_FLOAT32);
static_assert(dtype_of<double> == GRADRING_FLOAT64);
static_assert(dtype_of<signed char> == GRADRING_INT8);
static_assert(dtype_of<short> == GRADRING_INT16);
static_assert(dtype_of<int> == GRADRING_INT32);
static_assert(dtype_of<long> == GRADRING_INT64);
static_assert(dtype_of<long long> == GRADRING_INT64);
static_assert(dtype_of<unsigned char> == GRADRING_UINT8);
static_assert(dtype_of<unsigned short> == GRADRING_UINT16);
static_assert(dtype_of<unsigned> == GRADRING_UINT32);
static_assert(dtype_of<unsigned long> == GRADRING_UINT64);
static_assert(dtype_of<bool> == GRADRING_BOOL);
static_assert(dtype_of<Half> == GRADRING_FLOAT16);

class Cpp : public ::testing::Test {
 protected:
  FakeDaemon daemon_;
  Communicator job_{options_for(daemon_.runtime_dir(), 1, 3)};
};

TEST_F(Cpp, ReducesABuffer) {
  EXPECT_EQ(job_.rank(), 1);
  EXPECT_EQ(job_.size(), 3);
  EXPECT_EQ(job_.local_rank(), 0);
  EXPECT_EQ(job_.local_size(), 2);
  EXPECT_EQ(job_.node(), "fake");
  EXPECT_EQ(job_.epoch(), 1u);
  auto buffer = job_.allocate<float>(10);
  std::iota(buffer.begin(), buffer.end(), 0.0f);
  const gradring_result result = job_.allreduce(buffer);
  EXPECT_EQ(result.ranks_min, 3u);
  EXPECT_EQ(buffer[9], 27);
  EXPECT_EQ(buffer.size(), 10u);
}

TEST_F(Cpp, LeavesWithARequestOpen) {
  daemon_.set([](Script& script) { script.complete = false; });
  Request request = job_.start_barrier();
  job_.leave();
  try {
    request.wait();
    FAIL() << "nobody else has come";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), GRADRING_ERR_FAILED);
    EXPECT_EQ(error.result().blamed_rank, 1);
  }
}

TEST_F(Cpp, SubmitsWhatItSays) {
  auto floats = job_.allocate<double>(4);
  auto halves = job_.allocate<Half>(4);
  auto output = job_.allocate<double>(4);
  job_.allreduce(floats, GRADRING_AVERAGE, "named");
  job_.allreduce(floats.data(), output.data(), 3, GRADRING_MAX);
  job_.broadcast(halves, 2u);
  job_.barrier();
  const auto operations = daemon_.wait_for_operations(4);
  std::vector<std::string> described;
  for (const auto& operation : operations) {
    Signature signature;
    ASSERT_TRUE(from_wire(operation.signature(), &signature));
    described.push_back(describe(signature));
  }
  EXPECT_THAT(described,
              ::testing::ElementsAre("allreduce average of 4 float64", "allreduce max of 3 float64",
                                     "broadcast of 4 float16 from rank 2", "barrier"));
  EXPECT_EQ(operations[0].name(), "named");
}

TEST_F(Cpp, AFactorOf0IsNotTakenFor1) {
  auto floats = job_.allocate<float>(4);
  for (const Scale scale : {Scale{0, 1}, Scale{1, 0}}) {
    try {
      job_.allreduce(floats, GRADRING_SUM, nullptr, GRADRING_WIRE_DEFAULT, scale);
      FAIL() << "it would be the sum of what is not scaled";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), GRADRING_ERR_INVALID);
    }
  }
}

TEST_F(Cpp, TakesOneLengthOfBlocksOrAllOfThem) {
  const int ranks = job_.size();
  auto mine = job_.allocate<int>(8);
  auto all = job_.allocate<int>(8 * static_cast<size_t>(ranks));
  std::vector<uint64_t> counts(static_cast<size_t>(ranks), 2);
  job_.start_allgather(mine.data(), all.data(), 8);
  counts.back() = 7;
  job_.start_allgather(mine.data(), all.data(), counts, "named");
  const auto operations = daemon_.wait_for_operations(2);
  EXPECT_EQ(operations.at(0).signature().count(), 8u);
  EXPECT_TRUE(operations.at(0).counts().empty());
  EXPECT_EQ(
      std::vector<uint64_t>(operations.at(1).counts().begin(), operations.at(1).counts().end()),
      counts);
  EXPECT_EQ(operations.at(1).name(), "named");
  try {
    job_.start_allgather(mine.data(), all.data(), std::vector<uint64_t>());
    FAIL() << "no lengths are not one of 0";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), GRADRING_ERR_INVALID);
    EXPECT_STREQ(error.what(), "0 counts for allgather of 3 ranks, which has 3");
  }
}

TEST_F(Cpp, WaitsForAsLongAsATimeSaysHoweverLongThatIs) {
  using namespace std::chrono;
  for (int i = 0; i < 4; ++i) {
    daemon_.set([](Script& script) { script.complete = false; });
    Request request = job_.start_barrier();
    EXPECT_FALSE(request.wait_for(duration<double>(-1)));
    EXPECT_FALSE(request.wait_for(nanoseconds(1))) << "rounded up";
    const auto operation = daemon_.wait_for_operations(static_cast<size_t>(i) + 1).back();
    std::thread later([&] {
      std::this_thread::sleep_for(milliseconds(50));
      daemon_.complete(operation);
    });
    switch (i) {
      case 0:
        EXPECT_TRUE(request.wait_for(hours::max()));
        break;
      case 1:
        EXPECT_TRUE(request.wait_for(seconds::max()));
        break;
      case 2:
        EXPECT_TRUE(request.wait_for(duration<double>::max()));
        break;
      default:
        EXPECT_TRUE(request.wait_for(nanoseconds::max()));
    }
    later.join();
  }
}

TEST_F(Cpp, WaitsInSteps) {
  daemon_.set([](Script& script) { script.complete = false; });
  Request request = job_.start_barrier();
  EXPECT_TRUE(request.pending());
  EXPECT_FALSE(request.test());
  EXPECT_FALSE(request.wait_for(std::chrono::milliseconds(20)));
  daemon_.complete(daemon_.wait_for_operations(1).at(0));
  gradring_result result{};
  EXPECT_TRUE(request.wait_for(std::chrono::seconds(5), &result));
  EXPECT_EQ(result.verdict, 1u);
  EXPECT_FALSE(request.pending());
  EXPECT_THROW(request.wait(), Error);
  try {
    Request().progress();
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), GRADRING_ERR_NOT_FOUND) << error.what();
  }
}

TEST_F(Cpp, ThrowsWithTheBlame) {
  daemon_.set([](Script& script) {
    script.refuse_submit = refusal(Code::kInvalidArgument, "no such thing");
  });
  try {
    job_.barrier();
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), GRADRING_ERR_FAILED);
    EXPECT_STREQ(error.what(), "no such thing");
    EXPECT_EQ(error.result().cause, static_cast<uint32_t>(Cause::kRefused));
    EXPECT_EQ(error.result().blamed_rank, 1);
  }
}

TEST_F(Cpp, ThrowsWhenThereIsNoDaemon) {
  try {
    const Communicator nowhere(options_for("/tmp/gradring-nobody-is-here"));
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), GRADRING_ERR_UNAVAILABLE);
    EXPECT_THAT(error.what(), HasSubstr("gradringd --runtime-dir"));
  }
}

TEST_F(Cpp, WaitsForARequestThatIsDropped) {
  auto buffer = job_.allocate<float>(4);
  buffer[0] = 1;
  job_.start_allreduce(buffer);
  EXPECT_EQ(buffer[0], 3) << "the buffer was lent until the request was done";
}

TEST_F(Cpp, MovesAndFrees) {
  {
    auto first = job_.allocate<int>(8);
    first[0] = 7;
    Buffer<int> second = std::move(first);
    EXPECT_EQ(second[0], 7);
    EXPECT_EQ(daemon_.segments(), 1u);
    Buffer<int> third;
    third = std::move(second);
    EXPECT_EQ(third[0], 7);
  }
  EXPECT_EQ(daemon_.segments(), 0u);
}

TEST_F(Cpp, StaysOpenAsLongAsAnythingOfItLives) {
  Buffer<float> buffer;
  {
    const Communicator other(options_for(daemon_.runtime_dir(), 2, 3));
    buffer = other.allocate<float>(4);
  }
  EXPECT_TRUE(daemon_.wait_for_messages(wire::ClientMessage::kLeave, 0).empty());
  buffer[0] = 1;
  buffer = Buffer<float>();
  EXPECT_EQ(daemon_.wait_for_messages(wire::ClientMessage::kLeave, 1).size(), 1u);
}

}  // namespace
}  // namespace gradring::test
