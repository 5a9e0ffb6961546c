#pragma once

#include <array>
#include <cstdint>

namespace gradring {

// Memory of a GPU that is made of pages, which a trainer offers its daemon as a descriptor: what
// both must tell NVIDIA's driver of it, by the layouts and numbers of its cuda.h.
using CudaPages = uint64_t;  // CUmemGenericAllocationHandle

inline constexpr int kCudaDescriptor = 1;  // CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR

struct CudaLocation {  // CUmemLocation
  int kind = 1;        // CU_MEM_LOCATION_TYPE_DEVICE
  int device = 0;      // by its ordinal
};

struct CudaPagesKind {  // CUmemAllocationProp
  int kind = 1;         // CU_MEM_ALLOCATION_TYPE_PINNED
  int handles = kCudaDescriptor;
  CudaLocation at;
  void* of_windows = nullptr;
  std::array<unsigned char, 8> flags{};
};

struct CudaAccess {  // CUmemAccessDesc
  CudaLocation by;
  int kind = 3;  // CU_MEM_ACCESS_FLAGS_PROT_READWRITE
};

}  // namespace gradring
