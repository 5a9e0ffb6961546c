#pragma once

#include <string>
#include <vector>

namespace gradring::tools {

struct Outcome {
  int exit_code = -1;  // 128 + N: ended by signal N
  std::string out;
  std::string err;
};

// Runs a program to its end, without a shell. NAME=VALUE words in front of it are added to its
// environment.
Outcome run(const std::vector<std::string>& words);
// The same, with its stdout on a disk that is full.
Outcome run_without_room(const std::vector<std::string>& words);

// A new empty folder, removed with everything in it at the end.
class TemporaryFolder {
 public:
  TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder();
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace gradring::tools
