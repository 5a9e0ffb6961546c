#pragma once

#include <cuda_fp16.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

// How elements lie in memory, what they are while they are folded, and the operations. Everything
// here runs on the host too, where the tests compare it with the reducer without a GPU.
namespace gradring::transport::cuda {

// std::bit_cast is not for device code.
template <typename To, typename From>
inline __host__ __device__ To same_bits(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof(to));
  return to;
}

// A format has
//   Stored   the type of an element in memory; of floats, its bits,
//   Value    what it is folded in,
//   load, store, and for floats
//   kNan     the one NaN that is ever stored: quiet, with sign and payload zero,
//   kInfinity

template <typename T>
struct Integer {
  using Stored = T;
  using Value = T;
  static __host__ __device__ Value load(Stored stored) { return stored; }
  static __host__ __device__ Stored store(Value value) { return value; }
};

// A byte that is not 0 is 1.
struct Bool {
  using Stored = uint8_t;
  using Value = uint8_t;
  static __host__ __device__ Value load(Stored stored) { return stored != 0 ? 1 : 0; }
  static __host__ __device__ Stored store(Value value) { return value; }
};

template <typename T, typename Bits, Bits kQuietNan, Bits kInfinite>
struct Native {
  using Stored = Bits;
  using Value = T;
  static constexpr Stored kNan = kQuietNan;
  static constexpr Stored kInfinity = kInfinite;
  static __host__ __device__ Value load(Stored stored) { return same_bits<Value>(stored); }
  static __host__ __device__ Stored store(Value value) { return same_bits<Stored>(value); }
};
using Float32 = Native<float, uint32_t, 0x7fc00000, 0x7f800000>;
using Float64 = Native<double, uint64_t, 0x7ff8000000000000, 0x7ff0000000000000>;

struct Float16 {
  using Stored = uint16_t;
  using Value = float;
  static constexpr Stored kNan = 0x7e00;
  static constexpr Stored kInfinity = 0x7c00;
  static __host__ __device__ Value load(Stored stored) { return __half2float(__half_raw{stored}); }
  static __host__ __device__ Stored store(Value value) {
    return static_cast<__half_raw>(__float2half_rn(value)).x;  // to nearest even, subnormals kept
  }
};

// The upper half of a float32, rounded by hand as transport/simd does: the conversion that some
// GPUs have is an instruction less, in a kernel that waits for memory anyway.
struct Bfloat16 {
  using Stored = uint16_t;
  using Value = float;
  static constexpr Stored kNan = 0x7fc0;
  static constexpr Stored kInfinity = 0x7f80;
  static __host__ __device__ Value load(Stored stored) {
    return same_bits<Value>(static_cast<uint32_t>(stored) << 16);
  }
  static __host__ __device__ Stored store(Value value) {
    const auto bits = same_bits<uint32_t>(value);
    return static_cast<Stored>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
  }
};

// Integers wrap, which C++ defines for unsigned types alone; the narrow ones in 32 bits, since
// uint16_t would be multiplied as an int, and overflow it.
template <typename T>
using Wrapping = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;

struct Sum {
  template <typename T>
  static __host__ __device__ T apply(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(static_cast<Wrapping<T>>(a) + static_cast<Wrapping<T>>(b));
    } else {
      return a + b;
    }
  }
};

struct Product {
  template <typename T>
  static __host__ __device__ T apply(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(static_cast<Wrapping<T>>(a) * static_cast<Wrapping<T>>(b));
    } else {
      return a * b;
    }
  }
};

// NaN wins whoever came first, and -0 is less than +0. The instructions (min.f32) would drop NaN.
struct Min {
  template <typename T>
  static __host__ __device__ T apply(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) {
      if (a != a || b != b) return a + b;
      if (a == b) return std::signbit(a) ? a : b;
    }
    return a < b ? a : b;
  }
};

struct Max {
  template <typename T>
  static __host__ __device__ T apply(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) {
      return -Min::apply(-a, -b);
    } else {
      return a > b ? a : b;
    }
  }
};

struct And {
  template <typename T>
  static __host__ __device__ T apply(T a, T b) {
    return static_cast<T>(a & b);
  }
};

struct Or {
  template <typename T>
  static __host__ __device__ T apply(T a, T b) {
    return static_cast<T>(a | b);
  }
};

struct Xor {
  template <typename T>
  static __host__ __device__ T apply(T a, T b) {
    return static_cast<T>(a ^ b);
  }
};

// What is stored of a folded value.
template <class Format, bool kScaled>
inline __host__ __device__ typename Format::Stored finish(typename Format::Value value,
                                                          uint32_t divisor, double factor) {
  if constexpr (std::is_floating_point_v<typename Format::Value>) {
    if (divisor != 0) value /= static_cast<typename Format::Value>(divisor);
    if constexpr (kScaled) value *= static_cast<typename Format::Value>(factor);
    // Which NaN comes out of an operation differs from processor to processor.
    if (value != value) return Format::kNan;
  }
  return Format::store(value);
}

// Of floats.
template <class Format>
inline __host__ __device__ bool is_finite(typename Format::Stored stored) {
  return (stored & Format::kInfinity) != Format::kInfinity;
}
template <class Format>
inline __host__ __device__ bool is_infinite(typename Format::Stored stored) {
  using Stored = typename Format::Stored;
  return static_cast<Stored>(stored << 1) == static_cast<Stored>(Format::kInfinity << 1);
}

}  // namespace gradring::transport::cuda
