#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

namespace gradring::machine {

// What fake_nvml.cc's GPUs do, as long as this is: for processes that begin meanwhile.
class GpuScript {
 public:
  // In a folder of the test's own.
  explicit GpuScript(const std::string& fifo) {
    EXPECT_EQ(mkfifo(fifo.c_str(), 0600), 0) << fifo;
    fd_ = open(fifo.c_str(), O_RDWR | O_CLOEXEC);
    setenv("GRADRING_FAKE_NVML_EVENTS", fifo.c_str(), 1);
  }
  ~GpuScript() {
    unsetenv("GRADRING_FAKE_NVML_EVENTS");
    close(fd_);
  }
  GpuScript(const GpuScript&) = delete;
  GpuScript& operator=(const GpuScript&) = delete;

  // Words of fake_nvml.cc: "xid 0 79".
  void happens(const std::string& what) const {
    const std::string line = what + "\n";
    EXPECT_EQ(write(fd_, line.data(), line.size()), static_cast<ssize_t>(line.size()));
  }

  static std::string gpu(int index) {
    return "GPU-67726164-7269-6e67-2074-77696e20233" + std::to_string(index);
  }

 private:
  int fd_ = -1;
};

}  // namespace gradring::machine
