#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "client/src/gpu/cuda_driver.h"

namespace gradring::client {

// How far streams have come with something: behind the last that each has to do with it there is an
// event. Of a driver that orders(), in a context. Thread-safe, and a stream that has as much to do
// as its driver takes keeps nobody but those who put more on it.
class StreamMarks {
 public:
  explicit StreamMarks(const CudaDriver& driver) : driver_(driver) {}
  StreamMarks(const StreamMarks&) = delete;
  StreamMarks& operator=(const StreamMarks&) = delete;

  // What was put on the stream until now is part of it.
  CudaDriver::Result set(CudaDriver::Stream stream);
  // What is put on `later` from now on comes behind all of it.
  CudaDriver::Result let_follow(CudaDriver::Stream later) const;
  // Returns when all of it is done, and forgets it. To be called before this goes, by its last
  // user.
  void wait();

 private:
  struct Mark {
    explicit Mark(const CudaDriver& by) : driver(by) {}
    ~Mark() {
      if (event != nullptr) driver.destroy_event(event);
    }
    Mark(const Mark&) = delete;
    Mark& operator=(const Mark&) = delete;

    const CudaDriver& driver;
    CudaDriver::Event event = nullptr;
    std::mutex setting;  // it follows itself
  };
  CudaDriver::Result mark_of(CudaDriver::Stream stream, std::shared_ptr<Mark>* mark);
  void forget_what_is_done();

  const CudaDriver& driver_;
  mutable std::mutex mutex_;
  std::map<CudaDriver::Stream, std::shared_ptr<Mark>> last_;
};

}  // namespace gradring::client
