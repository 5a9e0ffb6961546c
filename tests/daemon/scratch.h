#pragma once

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace gradring::daemon {

// A directory of its own for one test, gone with it.
class Scratch {
 public:
  Scratch() {
    std::string name = (std::filesystem::temp_directory_path() / "gradring-XXXXXX").string();
    directory_ = mkdtemp(name.data());
  }
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(directory_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  const std::string& directory() const { return directory_; }
  std::string path(const std::string& name) const { return directory_ + "/" + name; }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(path(name)) << text;
  }

 private:
  std::string directory_;
};

}  // namespace gradring::daemon
