#include "tools/run/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <optional>
#include <sstream>
#include <utility>

extern char** environ;

namespace gradring::tools {
namespace {

// Both ends of a pipe; what was not taken out is closed.
class Pipe {
 public:
  enum End { kRead = 0, kWrite = 1 };

  Pipe() = default;
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  ~Pipe() {
    close_end(kRead);
    close_end(kWrite);
  }
  bool open() { return pipe2(ends_.data(), O_CLOEXEC) == 0; }
  int get(End end) const { return ends_[end]; }
  int take(End end) { return std::exchange(ends_[end], -1); }
  void close_end(End end) {
    if (ends_[end] >= 0) close(ends_[end]);
    ends_[end] = -1;
  }

 private:
  std::array<int, 2> ends_{-1, -1};
};

// Words as exec wants them. Made before the fork: a child may not allocate.
std::vector<char*> pointers_to(const std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (const std::string& word : words) pointers.push_back(const_cast<char*>(word.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

std::optional<rlimit> limit_of_before;

struct Descriptors {
  int in, out, err;  // to become 0, 1, 2; -1: inherit
  int report;        // takes errno when the program cannot be executed
  int guards_door;   // takes our process group; -1: there is no guard
};

// The child's side; only calls that are allowed between fork and exec.
[[noreturn]] void become(const Descriptors& fds, bool at_terminal, const char* directory,
                         char* const* command, char** environment, pid_t parent) {
  if (at_terminal) {
    setpgid(0, 0);
  } else {
    setsid();
  }
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);  // it died before the line above
  const pid_t group = getpid();
  [[maybe_unused]] const auto guarded = write(fds.guards_door, &group, sizeof group);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  signal(SIGPIPE, SIG_DFL);
  if (limit_of_before) setrlimit(RLIMIT_NOFILE, &*limit_of_before);
  if (fds.in >= 0) dup2(fds.in, STDIN_FILENO);
  if (fds.out >= 0) dup2(fds.out, STDOUT_FILENO);
  if (fds.err >= 0) dup2(fds.err, STDERR_FILENO);
  if (*directory == '\0' || chdir(directory) == 0) {
    environ = environment;
    execvp(command[0], command);
  }
  const int error = errno;
  [[maybe_unused]] const auto told = write(fds.report, &error, sizeof error);
  _exit(127);
}

// Whether there is a file to execute; execvp looks along PATH for what has no slash.
bool is_there(const Process& process, const std::filesystem::path& directory) {
  const std::string& program = process.command[0];
  std::error_code ignored;
  if (program.find('/') != std::string::npos) {
    return std::filesystem::exists(directory / program, ignored);
  }
  const std::string_view name = "PATH=";
  for (const std::string& variable : process.environment) {
    if (!variable.starts_with(name)) continue;
    std::istringstream folders(variable.substr(name.size()));
    for (std::string folder; std::getline(folders, folder, ':');) {
      if (std::filesystem::exists(directory / folder / program, ignored)) return true;
    }
    return false;
  }
  return false;
}

std::string cannot_run(const Process& process, int error) {
  const std::string& program = process.command[0];
  const std::filesystem::path directory = process.directory.empty() ? "." : process.directory;
  std::string where = process.directory.empty() ? "" : " in " + process.directory;
  std::error_code ignored;
  std::string why = std::strerror(error);
  if (error == ENOENT && std::filesystem::exists(directory, ignored)) {
    if (is_there(process, directory)) {
      why =
          "it is there, but not the program that its first line names to run it (one that ends in "
          "CR is another)";
    } else if (program.find('/') == std::string::npos) {
      where = "";
      why += ", in no folder of PATH";
    }
  }
  return fmt::format("cannot run {}{}: {}", program, where, why);
}

}  // namespace

void raise_file_limit() {
  rlimit limit{};
  if (limit_of_before || getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit_of_before = limit;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

tl::expected<Child, std::string> start(const Process& process, int guards_door) {
  const auto fail = [&](std::string_view doing, int error) {
    return tl::unexpected(fmt::format("{}: {}: {}", process.label, doing, std::strerror(error)));
  };
  Pipe in, out, err, report;
  const bool piped = process.piped();
  if (!report.open() || (piped && (!out.open() || !err.open())))
    return fail("making a pipe", errno);
  if (process.lifeline && !in.open()) return fail("making a pipe", errno);
  const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (nothing < 0) return fail("opening /dev/null", errno);

  const auto command = pointers_to(process.command);
  auto environment = pointers_to(process.environment);
  const Descriptors fds{process.lifeline ? in.get(Pipe::kRead) : nothing, out.get(Pipe::kWrite),
                        err.get(Pipe::kWrite), report.get(Pipe::kWrite), guards_door};
  const pid_t parent = getpid();
  Child child;
  child.pid = fork();
  if (child.pid == 0) {
    become(fds, process.lifeline.has_value(), process.directory.c_str(), command.data(),
           environment.data(), parent);
  }
  const int fork_error = errno;
  close(nothing);
  if (child.pid < 0) return fail("making a process", fork_error);

  // The write end closes by itself when the program is executed.
  report.close_end(Pipe::kWrite);
  int exec_error = 0;
  if (read(report.get(Pipe::kRead), &exec_error, sizeof exec_error) > 0) {
    waitpid(child.pid, nullptr, 0);
    return tl::unexpected(fmt::format("{}: {}", process.label, cannot_run(process, exec_error)));
  }
  if (process.lifeline) {
    const std::string& text = *process.lifeline;
    if (write(in.get(Pipe::kWrite), text.data(), text.size()) !=
        static_cast<ssize_t>(text.size())) {
      const int error = errno;
      kill(-child.pid, SIGKILL);
      waitpid(child.pid, nullptr, 0);
      return fail("handing over what to run", error);
    }
    child.lifeline = in.take(Pipe::kWrite);
  }
  if (piped) {
    child.out = out.take(Pipe::kRead);
    child.err = err.take(Pipe::kRead);
    fcntl(child.out, F_SETFL, O_NONBLOCK);
    fcntl(child.err, F_SETFL, O_NONBLOCK);
  }
  return child;
}

}  // namespace gradring::tools
