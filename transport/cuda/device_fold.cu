#include "transport/cuda/device_fold.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <string>
#include <type_traits>
#include <utility>

#include "proto/reduction.h"
#include "transport/cuda/fold_arguments.h"
#include "transport/cuda/fold_share.h"

namespace gradring::transport {
namespace {

using cuda::FoldArguments;

// __grid_constant__: the pointers are read where the launch put them; without it a thread would
// copy all of them to memory of its own, to index them.
template <class Format, class Op, bool kScaled>
__global__ void __launch_bounds__(cuda::kBlockThreads)
    fold_kernel(const __grid_constant__ FoldArguments arguments) {
  const size_t thread = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  cuda::fold_share<Format, Op, kScaled>(arguments, thread, size_t{gridDim.x} * blockDim.x);
}

const void* kernel_for(Dtype dtype, ReduceOp op, bool scaled) {
  return cuda::with_kind(dtype, op, [scaled](auto format, auto operation) {
    using Format = decltype(format);
    using Op = decltype(operation);
    if constexpr (std::is_floating_point_v<typename Format::Value>) {
      if (scaled) return reinterpret_cast<const void*>(&fold_kernel<Format, Op, true>);
    }
    return reinterpret_cast<const void*>(&fold_kernel<Format, Op, false>);
  });
}

Status refuse(std::string why) {
  return {Code::kInvalidArgument, "a fold on the GPU " + std::move(why)};
}

// Whatever would be a bug, or make the kernel fail when it runs: that would leave the whole process
// without its GPU.
Status check(Dtype dtype, ReduceOp op, std::span<const void* const> inputs, const void* out,
             size_t count, uint32_t divisor, const Scale& scale) {
  Status status = can_reduce(dtype, op);
  if (!status.ok()) return status;
  if (inputs.empty()) return refuse("has no input; give at least one");
  if (inputs.size() > kDeviceFoldInputsMax) {
    return refuse("has " + std::to_string(inputs.size()) + " inputs; the most is " +
                  std::to_string(kDeviceFoldInputsMax) + ": run fewer ranks on this node");
  }
  if (divisor != 0 && !is_float(dtype)) {
    return refuse("cannot divide " + std::string(name_of(dtype)) +
                  ": divide in a type that can hold the result");
  }
  if (cuda::scales(scale) && !is_float(dtype)) {
    return refuse("cannot multiply " + std::string(name_of(dtype)) + " by a factor");
  }
  if (count == 0) return {};  // nothing will be touched
  const auto unfit = [element = size_of(dtype)](const void* pointer) {
    return pointer == nullptr || reinterpret_cast<uintptr_t>(pointer) % element != 0;
  };
  const bool unfit_input = std::any_of(inputs.begin(), inputs.end(), unfit);
  if (unfit_input || unfit(out)) {
    return refuse(std::string("has ") + (unfit_input ? "an input" : "an output") +
                  " that is null or not aligned to " + std::to_string(size_of(dtype)) +
                  " bytes, as " + std::string(name_of(dtype)) + " must be");
  }
  return {};
}

std::string in_words(cudaError_t error) {
  return std::string(cudaGetErrorName(error)) + ", " + cudaGetErrorString(error);
}

}  // namespace

Status device_fold(Dtype dtype, ReduceOp op, std::span<const void* const> inputs, void* out,
                   size_t count, uint32_t divisor, CUstream_st* stream, const Scale& scale) {
  Status status = check(dtype, op, inputs, out, count, divisor, scale);
  if (!status.ok() || count == 0) return status;

  FoldArguments arguments = cuda::fold_arguments(dtype, inputs, {&out, 1}, count, divisor, scale);
  const void* const kernel = kernel_for(dtype, op, arguments.scaled != 0);
  int device = 0;
  int multiprocessors = 0, blocks_on_each = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) {
    error = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
  }
  if (error != cudaSuccess) {
    cudaGetLastError();  // told here; nobody else shall find it
    return {Code::kUnavailable, "there is no GPU to fold on (" + in_words(error) +
                                    "): see what nvidia-smi says, or fold on the host"};
  }

  error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks_on_each, kernel,
                                                        cuda::kBlockThreads, 0);
  if (error == cudaSuccess) {
    const auto at_once = static_cast<unsigned>(blocks_on_each * multiprocessors);
    void* parameters[] = {&arguments};
    error = cudaLaunchKernel(kernel, dim3(cuda::fold_blocks(arguments, at_once)),
                             dim3(cuda::kBlockThreads), parameters, 0, stream);
  }
  if (error != cudaSuccess) {
    cudaGetLastError();
    return {
        Code::kInternal,
        "GPU " + std::to_string(device) + " did not take the " + std::string(name_of(op)) + " of " +
            std::to_string(count) + " " + std::string(name_of(dtype)) + " (" + in_words(error) +
            "): check that gradring was built for this GPU (CMAKE_CUDA_ARCHITECTURES), that the "
            "stream is of it, and that no earlier work on it failed"};
  }
  return {};
}

}  // namespace gradring::transport
