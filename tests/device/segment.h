#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <stdexcept>
#include <string>

#include "tests/device/answers.h"

namespace gradring::device {

// As a trainer's segment is: a memfd, mapped and touched.
class Segment {
 public:
  explicit Segment(size_t bytes)
      : bytes_(bytes), fd_(::memfd_create("gpu-questions", MFD_CLOEXEC)) {
    if (fd_ < 0 || ::ftruncate(fd_, static_cast<off_t>(bytes)) != 0) {
      if (fd_ >= 0) ::close(fd_);
      throw std::runtime_error("no memfd of " + size_in_words(bytes));
    }
    map();
  }
  // That of another process.
  Segment(pid_t pid, int fd, size_t bytes) : bytes_(bytes) {
    const std::string path = "/proc/" + std::to_string(pid) + "/fd/" + std::to_string(fd);
    fd_ = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (fd_ < 0) throw std::runtime_error("could not open " + path);
    map();
  }
  ~Segment() {
    ::munmap(at_, bytes_);
    ::close(fd_);
  }
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;
  std::byte* get() const { return static_cast<std::byte*>(at_); }
  int fd() const { return fd_; }

 private:
  void map() {
    at_ = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd_, 0);
    if (at_ != MAP_FAILED) return;
    ::close(fd_);
    throw std::runtime_error("could not map " + size_in_words(bytes_));
  }

  const size_t bytes_;
  int fd_ = -1;
  void* at_ = nullptr;
};

}  // namespace gradring::device
