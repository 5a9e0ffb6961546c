#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace gradring::tools {

// A GPU of NVIDIA's as a program uses it that measures: by its driver, which is loaded here, so
// that no toolkit is needed. One thread. What the driver refuses is thrown as std::runtime_error,
// in words.
class Gpu {
 public:
  // `number`: CUDA's, of those that this process may use; -1: the one of this rank among `local`
  // ranks, in turn where there are fewer.
  static std::unique_ptr<Gpu> open(int number, int local_rank);
  virtual ~Gpu() = default;

  virtual int number() const = 0;
  // "GPU 1, NVIDIA H100 80GB HBM3"
  virtual std::string name() const = 0;

  virtual uint64_t allocate(size_t bytes) = 0;
  virtual void free(uint64_t address) = 0;

  // Behind this ops come, and their results.
  virtual void* stream() const = 0;
  virtual void wait_for_stream() = 0;
  // Return when it is there.
  virtual void write(uint64_t to, const void* from, size_t bytes) = 0;
  virtual void read(void* to, uint64_t from, size_t bytes) = 0;
};

}  // namespace gradring::tools
