#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "proto/cuda_pages.h"

namespace gradring::client {

// The functions of NVIDIA's driver that the library calls, by the names and numbers of its cuda.h,
// where they have been the same since CUDA 11. It is looked up, never linked or loaded: a process
// that has memory of a GPU has loaded it already, and all others need none.
struct CudaDriver {
  using Result = int;
  using Context = void*;
  using Stream = void*;
  using Event = void*;
  using Address = uint64_t;

  static constexpr Result kSuccess = 0;
  static constexpr Result kOutOfMemory = 2;
  static constexpr Result kNotInitialized = 3;  // of all functions, in a child that was forked off
  // Of an address: cuPointerGetAttribute.
  static constexpr int kContextOf = 1;
  static constexpr int kMemoryTypeOf = 2;
  static constexpr int kDeviceOf = 9;
  static constexpr int kMayBeOpened = 10;       // CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE
  static constexpr unsigned kDeviceMemory = 2;  // CU_MEMORYTYPE_DEVICE
  static constexpr unsigned kNonBlocking = 1;   // CU_STREAM_NON_BLOCKING
  static constexpr unsigned kMapped = 3;        // CU_MEMHOSTREGISTER_PORTABLE, _DEVICEMAP
  static constexpr unsigned kNoTiming = 2;      // CU_EVENT_DISABLE_TIMING
  static constexpr unsigned kAtLeast = 0;       // CU_STREAM_WAIT_VALUE_GEQ

  Result (*pointer_attribute)(void* value, int attribute, Address) = nullptr;
  Result (*get_device)(int* device, int ordinal) = nullptr;
  Result (*retain_primary)(Context*, int device) = nullptr;
  Result (*release_primary)(int device) = nullptr;
  Result (*push_context)(Context) = nullptr;
  Result (*pop_context)(Context*) = nullptr;
  Result (*register_host)(void*, size_t bytes, unsigned flags) = nullptr;
  Result (*unregister_host)(void*) = nullptr;
  Result (*create_stream)(Stream*, unsigned flags) = nullptr;
  Result (*destroy_stream)(Stream) = nullptr;
  Result (*synchronize)(Stream) = nullptr;
  Result (*is_capturing)(Stream, int* status) = nullptr;
  Result (*exchange_capture_mode)(int* mode) = nullptr;
  Result (*copy_to_host)(void* host, Address, size_t bytes, Stream) = nullptr;
  Result (*copy_to_device)(Address, const void* host, size_t bytes, Stream) = nullptr;
  Result (*name_of)(Result, const char**) = nullptr;

  // Of drivers since CUDA 11.7; null in older ones, and where one of them is.
  Result (*device_address)(Address*, void* host, unsigned flags) = nullptr;
  Result (*create_event)(Event*, unsigned flags) = nullptr;
  Result (*destroy_event)(Event) = nullptr;
  Result (*record_event)(Event, Stream) = nullptr;
  Result (*wait_for_event)(Stream, Event, unsigned flags) = nullptr;
  Result (*query_event)(Event) = nullptr;
  Result (*wait_here)(Event) = nullptr;
  Result (*write_word)(Stream, Address, uint32_t value, unsigned flags) = nullptr;
  Result (*wait_for_word)(Stream, Address, uint32_t value, unsigned flags) = nullptr;
  // Another process may open what these tell of; null where one of them is.
  Result (*range_around)(Address* base, size_t* bytes, Address) = nullptr;
  Result (*get_handle)(void* handle, Address base) = nullptr;
  Result (*uuid_of)(void* uuid, int device) = nullptr;
  Result (*allocate)(Address*, size_t bytes) = nullptr;
  Result (*free)(Address) = nullptr;
  Result (*copy_within)(Address to, Address from, size_t bytes, Stream) = nullptr;
  bool shares() const { return copy_within != nullptr; }
  // Memory that is made of pages; null where one of them is.
  Result (*count_devices)(int*) = nullptr;
  Result (*can_access_peer)(int* can, int device, int peer) = nullptr;
  Result (*page_bytes)(size_t*, const CudaPagesKind*, int which) = nullptr;
  Result (*create_pages)(CudaPages*, size_t bytes, const CudaPagesKind*, uint64_t flags) = nullptr;
  Result (*release_pages)(CudaPages) = nullptr;
  Result (*reserve)(Address*, size_t bytes, size_t boundary, Address, uint64_t flags) = nullptr;
  Result (*unreserve)(Address, size_t bytes) = nullptr;
  Result (*map)(Address, size_t bytes, size_t offset, CudaPages, uint64_t flags) = nullptr;
  Result (*unmap)(Address, size_t bytes) = nullptr;
  Result (*set_access)(Address, size_t bytes, const CudaAccess* all, size_t count) = nullptr;
  Result (*offer_pages)(void* to, CudaPages, int kind, uint64_t flags) = nullptr;
  bool maps() const { return offer_pages != nullptr; }
  // Whether streams can be put into an order with the daemon's work.
  bool orders() const { return wait_for_word != nullptr; }

  // "CUDA_ERROR_ILLEGAL_ADDRESS"
  std::string in_words(Result result) const;

  // While somebody captures into a CUDA graph, as torch.cuda.graph does, a driver refuses to pin,
  // allocate, give back or wait, in any thread, and the capture is lost. Not as long as this lives,
  // in the calling thread: nothing that the library does has a part in a graph.
  class Aside {
   public:
    explicit Aside(const CudaDriver& driver) : driver_(driver) {
      driver_.exchange_capture_mode(&mode_);
    }
    ~Aside() { driver_.exchange_capture_mode(&mode_); }
    Aside(const Aside&) = delete;
    Aside& operator=(const Aside&) = delete;

   private:
    const CudaDriver& driver_;
    int mode_ = 2;  // CU_STREAM_CAPTURE_MODE_RELAXED, and then what it was
  };
};

// Null where this process has loaded no driver, or one that is older. Thread-safe; valid for as
// long as the process lives.
const CudaDriver* cuda_driver();

}  // namespace gradring::client
