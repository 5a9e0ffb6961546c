#pragma once

#include <memory>
#include <string_view>
#include <tl/expected.hpp>

#include "client/src/gpu/cuda_driver.h"
#include "client/src/gpu/fetch_streams.h"
#include "proto/status.h"

namespace gradring::client {

// A context of a GPU, and the streams in it for all memory of that context: one by which results
// are brought back, and those that fetch. Thread-safe.
class GpuContext {
 public:
  // Of memory that is a GPU's. An error says why it cannot be used.
  static tl::expected<std::shared_ptr<const GpuContext>, Status> of(const CudaDriver& driver,
                                                                    const void* memory);
  ~GpuContext();
  GpuContext(const GpuContext&) = delete;
  GpuContext& operator=(const GpuContext&) = delete;

  // Whether this memory of a GPU is in it.
  bool has(const void* memory) const;
  const CudaDriver& driver() const { return driver_; }
  CudaDriver::Stream deliveries() const { return deliveries_; }
  int ordinal() const { return ordinal_; }  // of its GPU, CUDA's in this process
  FetchStreams& fetches() const { return fetches_; }

  // The calling thread is in the context as long as this lives, and then in its own again. Nobody's
  // capture into a graph is disturbed meanwhile.
  class Current {
   public:
    explicit Current(const GpuContext& context);
    ~Current();
    Current(const Current&) = delete;
    Current& operator=(const Current&) = delete;
    CudaDriver::Result result() const { return result_; }

   private:
    const CudaDriver& driver_;
    const CudaDriver::Aside aside_;
    const CudaDriver::Result result_;
  };

  Status failed(CudaDriver::Result result, std::string_view what) const;

 private:
  explicit GpuContext(const CudaDriver& driver) : driver_(driver), fetches_(driver) {}

  const CudaDriver& driver_;
  CudaDriver::Context context_ = nullptr;
  int ordinal_ = -1;     // of its GPU
  int primary_of_ = -1;  // the device whose primary context we hold on to; -1: none
  CudaDriver::Stream deliveries_ = nullptr;
  mutable FetchStreams fetches_;
};

}  // namespace gradring::client
