#pragma once

#include <cstdint>
#include <string>

namespace gradring::chaos {

// CLOCK_MONOTONIC in seconds, comparable between processes of a machine.
double now();

// What one trainer saw: a file to which each line is appended by one write(), so that it is there
// whole or not at all whenever the trainer is killed. tests/chaos/records.py reads it.
class Log {
 public:
  // Throws std::runtime_error if there can be no such file.
  explicit Log(const std::string& path);
  ~Log();
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;

  // A letter for the kind of line, the time, and whatever the kind says.
  void line(char kind, const std::string& fields);

 private:
  int fd_ = -1;
};

}  // namespace gradring::chaos
