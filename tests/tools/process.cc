#include "tests/tools/process.h"

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>

namespace gradring::tools {
namespace {

std::string content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

Outcome run_into(const std::string& stdout_of, const std::vector<std::string>& words) {
  TemporaryFolder folder;
  const std::string err = folder.path() + "/err";
  const std::string out = stdout_of.empty() ? folder.path() + "/out" : stdout_of;
  const pid_t pid = fork();
  if (pid == 0) {
    if (std::freopen(out.c_str(), "w", stdout) == nullptr ||
        std::freopen(err.c_str(), "w", stderr) == nullptr) {
      _exit(125);
    }
    size_t first = 0;
    for (; words[first].find('=') != std::string::npos; ++first) {
      putenv(const_cast<char*>(words[first].c_str()));
    }
    std::vector<char*> argv;
    for (size_t i = first; i < words.size(); ++i)
      argv.push_back(const_cast<char*>(words[i].c_str()));
    argv.push_back(nullptr);
    execvp(argv[0], argv.data());
    _exit(127);
  }
  int status = 0;
  if (pid < 0 || waitpid(pid, &status, 0) != pid)
    throw std::runtime_error("cannot run " + words[0]);
  return {WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status),
          stdout_of.empty() ? content_of(out) : "", content_of(err)};
}

}  // namespace

Outcome run(const std::vector<std::string>& words) { return run_into("", words); }

Outcome run_without_room(const std::vector<std::string>& words) {
  return run_into("/dev/full", words);
}

TemporaryFolder::TemporaryFolder() {
  std::string pattern = (std::filesystem::temp_directory_path() / "gradring-test-XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("cannot make a folder in /tmp");
  path_ = pattern;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace gradring::tools
