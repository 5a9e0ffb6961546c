#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <stdexcept>

#include "tests/device/answers.h"

namespace gradring::device {

// As a trainer's segment is: a memfd, mapped and touched.
class Segment {
 public:
  explicit Segment(size_t bytes) : bytes_(bytes) {
    const int fd = ::memfd_create("gpu-questions", MFD_CLOEXEC);
    if (fd < 0 || ::ftruncate(fd, static_cast<off_t>(bytes)) != 0) {
      if (fd >= 0) ::close(fd);
      throw std::runtime_error("no memfd of " + size_in_words(bytes));
    }
    at_ = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
    ::close(fd);
    if (at_ == MAP_FAILED) throw std::runtime_error("could not map " + size_in_words(bytes));
  }
  ~Segment() { ::munmap(at_, bytes_); }
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;
  std::byte* get() const { return static_cast<std::byte*>(at_); }

 private:
  const size_t bytes_;
  void* at_ = nullptr;
};

}  // namespace gradring::device
