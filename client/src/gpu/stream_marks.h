#pragma once

#include <map>

#include "client/src/gpu/cuda_driver.h"

namespace gradring::client {

// How far streams have come with something: behind the last that each has to do with it there is an
// event. Of a driver that orders(), in a context; not thread-safe.
class StreamMarks {
 public:
  explicit StreamMarks(const CudaDriver& driver) : driver_(driver) {}
  StreamMarks(const StreamMarks&) = delete;
  StreamMarks& operator=(const StreamMarks&) = delete;

  // What was put on the stream until now is part of it.
  CudaDriver::Result set(CudaDriver::Stream stream);
  // What is put on `later` from now on comes behind all of it.
  CudaDriver::Result let_follow(CudaDriver::Stream later) const;
  // Returns when all of it is done, and forgets it. To be called before this goes.
  void wait();

 private:
  void forget_what_is_done();

  const CudaDriver& driver_;
  std::map<CudaDriver::Stream, CudaDriver::Event> last_;
};

}  // namespace gradring::client
