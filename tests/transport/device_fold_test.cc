#include "transport/cuda/device_fold.h"

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <ostream>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "tests/transport/fold_kinds.h"
#include "transport/cuda/fold_share.h"
#include "transport/reducer.h"

namespace gradring::transport {
namespace {

using fold_kinds::all_kinds;
using fold_kinds::describe;
using fold_kinds::Kind;

// Why there is no GPU to test with; empty if there is one.
std::string missing_gpu() {
  int devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&devices);
  if (error == cudaSuccess && devices > 0) return "";
  return "no GPU here: cudaGetDeviceCount found " + std::to_string(devices) + " and said " +
         cudaGetErrorName(error) + ", " + cudaGetErrorString(error);
}

// Memory that begins at a boundary of 16 bytes, as that of cudaMalloc does.
struct alignas(16) Block {
  std::array<std::byte, 16> bytes;
  bool operator==(const Block&) const = default;
};
using Memory = std::vector<Block>;

// A fold of arrays that all lie in one memory, so that the whole memory can be compared afterwards:
// the result, the inputs, and what lies between.
struct Fold {
  Kind kind;
  size_t count;
  uint32_t divisor;
  double factor;                // of the result
  std::vector<double> factors;  // of inputs
  std::vector<size_t> inputs;   // where they begin, in bytes
  size_t out;

  std::vector<const void*> inputs_in(const void* memory) const {
    std::vector<const void*> pointers;
    for (const size_t at : inputs) pointers.push_back(static_cast<const std::byte*>(memory) + at);
    return pointers;
  }
  Scale scale() const { return {factors, factor}; }
  void* out_in(void* memory) const { return static_cast<std::byte*>(memory) + out; }
};

// The kernel's own code on the host, one thread after another.
void fold_by_shares(const Fold& f, Memory& memory) {
  using Share = void (*)(const cuda::FoldArguments&, size_t, size_t);
  const Share share =
      cuda::with_kind(f.kind.dtype, f.kind.op, [&f](auto format, auto operation) -> Share {
        using Format = decltype(format);
        using Op = decltype(operation);
        if constexpr (std::is_floating_point_v<typename Format::Value>) {
          if (cuda::scales(f.scale())) return &cuda::fold_share<Format, Op, true>;
        }
        return &cuda::fold_share<Format, Op>;
      });
  const auto inputs = f.inputs_in(memory.data());
  void* const out = f.out_in(memory.data());
  const auto arguments =
      cuda::fold_arguments(f.kind.dtype, inputs, {&out, 1}, f.count, f.divisor, f.scale());
  constexpr size_t kThreads = 7;
  for (size_t thread = 0; thread < kThreads; ++thread) share(arguments, thread, kThreads);
}

// Memory of the GPU and a stream, which all cases have after one another: to make them takes longer
// than to fold.
class OnGpu {
 public:
  OnGpu() = default;
  ~OnGpu() {
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
    if (memory_ != nullptr) cudaFree(memory_);
  }
  OnGpu(const OnGpu&) = delete;
  OnGpu& operator=(const OnGpu&) = delete;

  cudaStream_t stream() {
    if (stream_ == nullptr) {
      EXPECT_EQ(cudaStreamCreate(&stream_), cudaSuccess);
    }
    return stream_;
  }
  void* room_for(size_t bytes) {
    if (bytes > bytes_) {
      if (memory_ != nullptr) cudaFree(memory_);
      EXPECT_EQ(cudaMalloc(&memory_, bytes), cudaSuccess);
      bytes_ = bytes;
    }
    return memory_;
  }

 private:
  cudaStream_t stream_ = nullptr;
  void* memory_ = nullptr;
  size_t bytes_ = 0;
};

void fold_by_gpu(OnGpu& gpu, const Fold& f, Memory& memory) {
  const size_t bytes = memory.size() * sizeof(Block);
  void* const device = gpu.room_for(bytes);
  const cudaStream_t stream = gpu.stream();
  ASSERT_EQ(cudaMemcpyAsync(device, memory.data(), bytes, cudaMemcpyDefault, stream), cudaSuccess);
  const Status status = device_fold(f.kind.dtype, f.kind.op, f.inputs_in(device), f.out_in(device),
                                    f.count, f.divisor, stream, f.scale());
  ASSERT_TRUE(status.ok()) << status.message();
  ASSERT_EQ(cudaMemcpyAsync(memory.data(), device, bytes, cudaMemcpyDefault, stream), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
}

enum class Body { kShares, kGpu };
std::string name_of(Body body) { return body == Body::kGpu ? "OnTheGpu" : "OnTheHost"; }
void PrintTo(Body body, std::ostream* out) { *out << name_of(body); }

// Where the arrays begin, seen from 16-byte boundaries.
enum class Placing { kAligned, kInStep, kScattered };
constexpr std::array<Placing, 3> kPlacings = {Placing::kAligned, Placing::kInStep,
                                              Placing::kScattered};
constexpr size_t kNoAlias = SIZE_MAX;

// One suite for both, since without a GPU the first still shows that the second would be right but
// for the GPU's own instructions.
class DeviceFold : public ::testing::TestWithParam<Body> {
 protected:
  void SetUp() override {
    const std::string missing = GetParam() == Body::kGpu ? missing_gpu() : "";
    const char* const wanted = std::getenv("GRADRING_TEST_GPU");
    if (!missing.empty() && wanted != nullptr && std::string(wanted) == "real") FAIL() << missing;
    if (!missing.empty()) GTEST_SKIP() << missing;
  }

  // Folds in `memory`, and the reducer in a copy: both must be the same then.
  void check(const Fold& f, Memory& memory) {
    Memory expected = memory;
    fold(f.kind.dtype, f.kind.op, f.inputs_in(expected.data()), f.out_in(expected.data()), f.count,
         f.divisor, f.scale());
    GetParam() == Body::kGpu ? fold_by_gpu(gpu_, f, memory) : fold_by_shares(f, memory);
    EXPECT_TRUE(memory == expected)
        << describe(f.kind) << ", " << f.inputs.size() << " inputs of " << f.count << ", out at "
        << f.out << ", / " << f.divisor << ", * " << f.factor;
  }

  void check(const Kind& kind, size_t num_inputs, size_t count, Placing placing,
             size_t alias = kNoAlias) {
    const size_t element = size_of(kind.dtype);
    const size_t step = element * (random_() % (16 / element));
    Fold f = {kind, count, 0, 1, {}, {}, 0};
    if (scaled_ && is_float(kind.dtype)) scale(f, num_inputs);
    if (kind.op == ReduceOp::kAverage) f.divisor = static_cast<uint32_t>(random_() % 9);
    size_t end = 0;
    for (size_t r = 0; r <= num_inputs; ++r) {
      f.out = (end + 31) / 16 * 16;
      if (placing == Placing::kInStep) f.out += step;
      if (placing == Placing::kScattered) f.out += element * (random_() % (16 / element));
      end = f.out + count * element;
      f.inputs.push_back(f.out);
    }
    f.inputs.pop_back();
    if (alias != kNoAlias) f.out = f.inputs[alias];
    Memory memory(end / sizeof(Block) + 2);
    fold_kinds::fill(random_, element, memory[0].bytes.data(),
                     memory.size() * sizeof(Block) / element);
    check(f, memory);
  }

  // Folds arrays that are given.
  template <typename T>
  void check_values(const Kind& kind, const std::vector<std::vector<T>>& arrays, uint32_t divisor) {
    const size_t count = arrays[0].size();
    const size_t stride = (count * sizeof(T) + 15) / 16 * 16;
    Memory memory((arrays.size() + 1) * stride / sizeof(Block));
    Fold f = {kind, count, divisor, 1, {}, {}, arrays.size() * stride};
    if (scaled_) scale(f, arrays.size());
    for (size_t r = 0; r < arrays.size(); ++r) {
      f.inputs.push_back(r * stride);
      std::memcpy(memory[r * stride / sizeof(Block)].bytes.data(), arrays[r].data(),
                  count * sizeof(T));
    }
    check(f, memory);
  }

  // Not all inputs need have one.
  void scale(Fold& f, size_t num_inputs) {
    static constexpr std::array<double, 7> kFactors = {1, 0.5, -3, 0.1, 1.0 / 3, 1e30, 0};
    f.factor = kFactors[random_() % kFactors.size()];
    for (size_t r = random_() % 2; r < num_inputs; ++r) {
      f.factors.push_back(kFactors[random_() % kFactors.size()]);
    }
  }

  bool scaled_ = false;
  OnGpu gpu_;
  std::mt19937_64 random_{20240611};
  const std::vector<Kind> kinds_ = all_kinds();
};

INSTANTIATE_TEST_SUITE_P(Bodies, DeviceFold, ::testing::Values(Body::kShares, Body::kGpu),
                         [](const auto& body) { return name_of(body.param); });

TEST_P(DeviceFold, MatchesTheReducerForAnyNumberOfInputs) {
  for (const Kind& kind : kinds_) {
    for (const size_t num_inputs : {1, 2, 3, 4, 5, 6, 7, 8, 9, 64}) {
      for (const size_t count : {1, 5, 64, 257}) {
        for (const Placing placing : kPlacings) check(kind, num_inputs, count, placing);
      }
    }
  }
}

TEST_P(DeviceFold, MatchesTheReducerWhereItScales) {
  scaled_ = true;
  for (const Kind& kind : kinds_) {
    for (const size_t num_inputs : {1, 2, 3, 8, 64}) {
      for (const size_t count : {1, 5, 64, 257}) {
        for (const Placing placing : kPlacings) check(kind, num_inputs, count, placing);
      }
    }
    check(kind, 3, 133, Placing::kInStep, 1);
  }
}

TEST_P(DeviceFold, MatchesTheReducerAtEveryLength) {
  for (const Kind& kind : kinds_) {
    for (size_t count = 0; count <= 70; ++count) {
      for (const Placing placing : kPlacings) check(kind, 2, count, placing);
    }
  }
}

// More than all threads of a GPU do at once.
TEST_P(DeviceFold, MatchesTheReducerOnLongArrays) {
  for (const Dtype dtype : {Dtype::kFloat32, Dtype::kBfloat16}) {
    for (const Placing placing : kPlacings) check({dtype, ReduceOp::kSum}, 2, 5'000'011, placing);
  }
}

TEST_P(DeviceFold, MayWriteOverAnyOfItsInputs) {
  for (const Kind& kind : kinds_) {
    for (const size_t num_inputs : {1, 2, 3, 9}) {
      for (size_t alias = 0; alias < num_inputs; ++alias) {
        for (const Placing placing : kPlacings) check(kind, num_inputs, 133, placing, alias);
      }
    }
  }
}

TEST_P(DeviceFold, RoundsEveryHalfToNearestEven) {
  std::vector<uint16_t> all(65536);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  for (const Dtype dtype : {Dtype::kFloat16, Dtype::kBfloat16}) {
    for (const uint32_t divisor : {0u, 1u, 2u, 3u, 4u, 1000u, UINT32_MAX}) {
      check_values<uint16_t>({dtype, ReduceOp::kAverage}, {all}, divisor);
    }
  }
}

// Every pair of values at the edges of a float's format, given by the bits of its infinity.
template <typename Bits>
std::vector<std::vector<Bits>> pairs_at_the_edges(Bits infinity) {
  const Bits normal = infinity & (~infinity + 1);  // the smallest: its exponent is 1
  const Bits sign = static_cast<Bits>(Bits{1} << (8 * sizeof(Bits) - 1));
  std::vector<Bits> edges;
  for (const Bits base : {Bits{1}, normal, infinity}) {
    for (const int off : {-1, 0, 1}) {
      edges.push_back(static_cast<Bits>(base + off));
      edges.push_back(static_cast<Bits>(sign | edges.back()));
    }
  }
  edges.push_back(static_cast<Bits>(infinity | normal >> 1));  // the quiet NaN
  edges.push_back(static_cast<Bits>(~Bits{0}));                // another, with everything set
  std::vector<std::vector<Bits>> pairs(2);
  for (const Bits a : edges) {
    for (const Bits b : edges) {
      pairs[0].push_back(a);
      pairs[1].push_back(b);
    }
  }
  return pairs;
}

TEST_P(DeviceFold, HoldsAtTheEdgesOfEveryFormat) {
  for (const Kind& kind : kinds_) {
    if (!is_float(kind.dtype)) continue;
    for (const uint32_t divisor : {0, 3, 0, 3}) {
      if (divisor == 0) scaled_ = !scaled_;
      if (kind.dtype == Dtype::kFloat64) {
        check_values(kind, pairs_at_the_edges<uint64_t>(0x7ff0000000000000), divisor);
      } else if (kind.dtype == Dtype::kFloat32) {
        check_values(kind, pairs_at_the_edges<uint32_t>(0x7f800000), divisor);
      } else {
        const uint16_t infinity = kind.dtype == Dtype::kFloat16 ? 0x7c00 : 0x7f80;
        check_values(kind, pairs_at_the_edges<uint16_t>(infinity), divisor);
      }
    }
  }
}

// By a loop on the host; a GPU's is launched by the driver (transport/cuda/gpu.h).
TEST(FoldShare, WritesTheSameToAllOuts) {
  constexpr size_t kCount = 1003;
  for (const bool in_step : {true, false}) {
    const size_t skew = in_step ? 0 : 1;
    std::vector<float> a(kCount + 4), b(kCount + 4), c(kCount + 4, -1);
    for (size_t i = 0; i < kCount; ++i) {
      a[i] = static_cast<float>(i);
      b[i] = static_cast<float>(2 * i);
    }
    const void* const inputs[] = {a.data(), b.data()};
    void* const outs[] = {a.data(), b.data(), c.data() + skew};
    const auto arguments = cuda::fold_arguments(Dtype::kFloat32, inputs, outs, kCount, 3);
    for (size_t thread = 0; thread < 5; ++thread) {
      cuda::fold_share<cuda::Float32, cuda::Sum>(arguments, thread, 5);
    }
    for (size_t i = 0; i < kCount; ++i) {
      ASSERT_EQ(a[i], static_cast<float>(i)) << "(i + 2 i) / 3";
      ASSERT_EQ(b[i], a[i]);
      ASSERT_EQ(c[i + skew], a[i]);
    }
    EXPECT_EQ(c[kCount + skew], -1);
  }
}

}  // namespace
}  // namespace gradring::transport
