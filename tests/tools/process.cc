#include "tests/tools/process.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string_view>

namespace gradring::tools {
namespace {

std::string content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The caller's environment, and in place of its own or behind it what `words` begin with:
// NAME=VALUE.
std::vector<std::string> environment_with(const std::vector<std::string>& words, size_t count) {
  std::vector<std::string> all(words.begin(), words.begin() + static_cast<ptrdiff_t>(count));
  for (char** own = environ; *own != nullptr; ++own) {
    const std::string_view entry = *own;
    const std::string_view name = entry.substr(0, entry.find('=') + 1);
    const auto is_it = [&](const std::string& word) { return word.starts_with(name); };
    if (std::none_of(words.begin(), words.begin() + static_cast<ptrdiff_t>(count), is_it)) {
      all.emplace_back(entry);
    }
  }
  return all;
}

std::vector<char*> pointers_to(const std::vector<std::string>& words, size_t first) {
  std::vector<char*> pointers;
  for (size_t i = first; i < words.size(); ++i) {
    pointers.push_back(const_cast<char*>(words[i].c_str()));
  }
  pointers.push_back(nullptr);
  return pointers;
}

// By no fork of ours: tests have threads, and what one of these has locked stays so in the child.
Outcome run_into(const std::string& stdout_of, const std::vector<std::string>& words) {
  TemporaryFolder folder;
  const std::string err = folder.path() + "/err";
  const std::string out = stdout_of.empty() ? folder.path() + "/out" : stdout_of;
  size_t first = 0;
  while (words[first].find('=') != std::string::npos) ++first;
  const std::vector<std::string> environment = environment_with(words, first);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  constexpr int kNew = O_WRONLY | O_CREAT | O_TRUNC;
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, out.c_str(), kNew, 0600);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, err.c_str(), kNew, 0600);
  pid_t pid = -1;
  const int error =
      posix_spawnp(&pid, words[first].c_str(), &actions, nullptr, pointers_to(words, first).data(),
                   pointers_to(environment, 0).data());
  posix_spawn_file_actions_destroy(&actions);
  int status = 0;
  if (error != 0 || waitpid(pid, &status, 0) != pid)
    throw std::runtime_error("cannot run " + words[first]);
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
