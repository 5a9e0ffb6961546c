#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <tl/expected.hpp>

#include "proto/cuda_pages.h"

namespace gradring::transport::cuda {

// The functions of NVIDIA's driver that are called here, by the names and numbers of its cuda.h,
// where they have been the same since CUDA 11. It is looked up, never linked: a daemon without GPUs
// needs none.
struct Driver {
  using Result = int;
  using Device = int;
  using Context = void*;
  using Stream = void*;
  using Event = void*;
  using Module = void*;
  using Function = void*;
  using Address = uint64_t;
  using Uuid = std::array<std::byte, 16>;
  struct IpcHandle {  // passed by value
    std::array<std::byte, 64> bytes;
  };

  static constexpr Result kSuccess = 0;
  static constexpr Result kNotReady = 600;
  static constexpr Result kPeerAlready = 704;        // CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED
  static constexpr int kDevicePointer = 3;           // CU_POINTER_ATTRIBUTE_DEVICE_POINTER
  static constexpr int kMultiprocessors = 16;        // CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
  static constexpr int kLendsDmabufs = 124;          // CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED
  static constexpr int kUnderMps = 133;              // CU_DEVICE_ATTRIBUTE_MPS_ENABLED
  static constexpr int kStackBytes = 0;              // CU_LIMIT_STACK_SIZE
  static constexpr unsigned kOpenWithPeers = 1;      // CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS
  static constexpr unsigned kPortableAndMapped = 3;  // CU_MEMHOSTREGISTER_PORTABLE, _DEVICEMAP
  static constexpr unsigned kNonBlocking = 1;        // CU_STREAM_NON_BLOCKING
  static constexpr unsigned kNoTiming = 2;           // CU_EVENT_DISABLE_TIMING

  Result (*init)(unsigned flags) = nullptr;
  Result (*name_of)(Result, const char**) = nullptr;

  Result (*count_devices)(int*) = nullptr;
  Result (*get_device)(Device*, int ordinal) = nullptr;
  Result (*device_name)(char*, int bytes, Device) = nullptr;
  // Of a slice of a GPU (MIG) its own, where the driver can tell.
  Result (*device_uuid)(void* uuid, Device) = nullptr;
  Result (*device_attribute)(int* value, int attribute, Device) = nullptr;
  Result (*can_access_peer)(int* can, Device, Device peer) = nullptr;

  Result (*retain_primary)(Context*, Device) = nullptr;
  Result (*release_primary)(Device) = nullptr;
  Result (*push_context)(Context) = nullptr;
  Result (*pop_context)(Context*) = nullptr;
  // Of the current context.
  Result (*set_limit)(int limit, size_t value) = nullptr;
  Result (*enable_peer)(Context peer, unsigned flags) = nullptr;
  Result (*priority_range)(int* least, int* greatest) = nullptr;

  Result (*open_handle)(Address*, IpcHandle, unsigned flags) = nullptr;
  Result (*close_handle)(Address) = nullptr;
  Result (*pointer_attribute)(void* value, int attribute, Address) = nullptr;
  Result (*address_range)(Address* base, size_t* bytes, Address) = nullptr;
  // Pages that came as a descriptor; `kind`: CU_MEM_HANDLE_TYPE_...
  Result (*take_pages)(CudaPages*, void* descriptor, int kind) = nullptr;
  Result (*release_pages)(CudaPages) = nullptr;
  Result (*kind_of_pages)(CudaPagesKind*, CudaPages) = nullptr;
  // CU_MEM_ALLOC_GRANULARITY_...; 0: what there is at least.
  Result (*page_bytes)(size_t*, const CudaPagesKind*, int which) = nullptr;
  Result (*reserve)(Address*, size_t bytes, size_t boundary, Address, uint64_t flags) = nullptr;
  Result (*unreserve)(Address, size_t bytes) = nullptr;
  Result (*map)(Address, size_t bytes, size_t offset, CudaPages, uint64_t flags) = nullptr;
  Result (*unmap)(Address, size_t bytes) = nullptr;
  Result (*set_access)(Address, size_t bytes, const CudaAccess* all, size_t count) = nullptr;
  Result (*allocate)(Address*, size_t bytes) = nullptr;
  Result (*free)(Address) = nullptr;
  Result (*register_host)(void*, size_t bytes, unsigned flags) = nullptr;
  Result (*unregister_host)(void*) = nullptr;
  // Of what is registered and mapped.
  Result (*host_pointer)(Address*, void* host, unsigned flags) = nullptr;

  Result (*create_stream)(Stream*, unsigned flags, int priority) = nullptr;
  Result (*destroy_stream)(Stream) = nullptr;
  Result (*query_stream)(Stream) = nullptr;
  Result (*create_event)(Event*, unsigned flags) = nullptr;
  Result (*destroy_event)(Event) = nullptr;
  Result (*record_event)(Event, Stream) = nullptr;
  Result (*query_event)(Event) = nullptr;

  Result (*copy_to_host)(void* host, Address, size_t bytes, Stream) = nullptr;
  Result (*copy_to_device)(Address, const void* host, size_t bytes, Stream) = nullptr;
  Result (*copy_between)(Address to, Address from, size_t bytes, Stream) = nullptr;

  Result (*load_module)(Module*, const void* image) = nullptr;
  Result (*unload_module)(Module) = nullptr;
  Result (*get_function)(Function*, Module, const char* name) = nullptr;
  Result (*blocks_at_once)(int* per_multiprocessor, Function, int threads,
                           size_t shared_bytes) = nullptr;
  Result (*launch)(Function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                   unsigned block_y, unsigned block_z, unsigned shared_bytes, Stream,
                   void** parameters, void** extra) = nullptr;

  // ---- null where the driver is too old for them ----
  // In memory that the stream's GPU reaches, when the stream gets there; since CUDA 11.7.
  Result (*write_word)(Stream, Address, uint32_t value, unsigned flags) = nullptr;
  // Or it is loaded when it is first launched; since CUDA 12.4.
  Result (*load_function)(Function) = nullptr;

  // "CUDA_ERROR_ILLEGAL_ADDRESS"
  std::string in_words(Result result) const;
};

// The driver of this machine, ready to be called; an error says why there is none. Thread-safe;
// valid for as long as the process lives.
tl::expected<const Driver*, std::string> driver();

}  // namespace gradring::transport::cuda
