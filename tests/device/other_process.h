#pragma once

#include <sys/types.h>

#include <cstddef>
#include <string>

namespace gradring::device {

// This program once more, as a process with a CUDA context of its own, playing `part`. The two talk
// in messages of fixed size over two pipes; it ends when the pipes are closed, which the destructor
// does and waits for.
class OtherProcess {
 public:
  explicit OtherProcess(const std::string& part);
  ~OtherProcess();
  OtherProcess(const OtherProcess&) = delete;
  OtherProcess& operator=(const OtherProcess&) = delete;

  // Throws std::runtime_error when it has ended, or said nothing for a minute.
  void tell(const void* message, size_t bytes);
  void hear(void* message, size_t bytes);
  // For its end, which it was told to come to; as long.
  void wait();

 private:
  std::string part_;
  pid_t pid_ = -1;
  int to_ = -1;
  int from_ = -1;
};

// The other end, in that process. False: the pipe was closed.
bool hear_from_parent(void* message, size_t bytes);
void tell_parent(const void* message, size_t bytes);

}  // namespace gradring::device
