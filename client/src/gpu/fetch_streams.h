#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "client/src/gpu/cuda_driver.h"

namespace gradring::client {

// A stream of ours by which inputs are fetched. Of a driver that orders(), in a context.
class FetchStream {
 public:
  explicit FetchStream(const CudaDriver& driver) : driver_(driver) {}
  // What is on it is done all the same.
  ~FetchStream();
  FetchStream(const FetchStream&) = delete;
  FetchStream& operator=(const FetchStream&) = delete;

  CudaDriver::Result make();
  CudaDriver::Stream stream() const { return stream_; }
  // What is put there in one go: when the first part of an input is there, the others must need
  // nothing but copies.
  std::mutex& go() { return go_; }
  // What is put here from now on comes behind what was put on `theirs` until now. With go(), and
  // nobody else's lock: one that has much to do may keep whoever puts more on it waiting.
  CudaDriver::Result follow(CudaDriver::Stream theirs);

 private:
  const CudaDriver& driver_;
  CudaDriver::Stream stream_ = nullptr;
  CudaDriver::Event there_ = nullptr;  // recorded and waited for at once, again and again
  std::mutex go_;
};

// For each stream behind which ops come, one: what is on that one, and may wait for other ops, is
// what an input waits for anyhow, and it must not wait for more, or ranks that submit in another
// order would wait for one another. No more than that: a GPU has few queues for all streams of a
// context (CUDA_DEVICE_MAX_CONNECTIONS), and where two streams share one, each waits for what the
// other waits for. Thread-safe, in the context.
class FetchStreams {
 public:
  explicit FetchStreams(const CudaDriver& driver) : driver_(driver) {}

  CudaDriver::Result behind(CudaDriver::Stream theirs, std::shared_ptr<FetchStream>* ours);
  void clear() { all_.clear(); }

 private:
  // CUDA's per-thread default stream is another one in each thread.
  using Key = std::pair<CudaDriver::Stream, std::thread::id>;
  struct Known {
    std::shared_ptr<FetchStream> stream;
    uint64_t used = 0;  // the number of its last use
  };

  const CudaDriver& driver_;
  std::mutex mutex_;
  std::map<Key, Known> all_;
  uint64_t uses_ = 0;
};

}  // namespace gradring::client
