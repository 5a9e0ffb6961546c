#pragma once

#include <array>
#include <cstdint>
#include <tl/expected.hpp>

#include "client/src/gpu/gpu_context.h"
#include "proto/status.h"

namespace gradring::client {

// By which another process opens memory of a GPU.
struct GpuHandle {
  std::array<char, 64> allocation{};  // CUipcMemHandle
  std::array<char, 16> gpu{};         // CUuuid
  uint64_t offset = 0;                // within the allocation, bytes
};

// CUuuid of the GPU that has this. Thread-safe, in any context or none.
tl::expected<std::array<char, 16>, CudaDriver::Result> uuid_of(const CudaDriver& driver,
                                                               const void* memory);

// Of `bytes` from there on. An error says why nobody else can open it, and what would help.
// Thread-safe.
tl::expected<GpuHandle, Status> handle_of(const GpuContext& context, const void* memory,
                                          uint64_t bytes);

}  // namespace gradring::client
