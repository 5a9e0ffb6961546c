#include "tools/run/handover.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <string_view>
#include <system_error>

#include "tools/common/text.h"
#include "tools/run/launch.h"
#include "tools/run/options.h"

namespace gradring::tools {
namespace {

using Words = std::vector<std::string>;

// Steps from here on are no srun's: the shell of sbatch, and that of salloc.
constexpr int64_t kSpecialSteps = 0xfffffff0;

int64_t number_in(const char* variable) {
  const char* text = std::getenv(variable);
  int64_t number = -1;
  if (text != nullptr) std::from_chars(text, text + std::strlen(text), number);
  return number;
}

bool is_in_path(const char* program) {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path != nullptr ? path : "");
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (access((folder + "/" + program).c_str(), X_OK) == 0) return true;
  }
  return false;
}

// What srun starts waits for the processors that a step around it holds.
bool is_in_allocation() {
  const int64_t step = number_in("SLURM_STEP_ID");
  return number_in("SLURM_JOB_ID") >= 0 && (step < 0 || step >= kSpecialSteps);
}

const char* program_of(Launcher launcher) {
  return launcher == Launcher::kSrun ? "srun" : "mpirun";
}

// Why not, as the end of a sentence that begins with the launcher's name; empty: it can.
std::string why_it_cannot(Launcher launcher, const RunOptions& options) {
  const bool by_srun = launcher == Launcher::kSrun;
  if (by_srun && !options.hosts.empty())
    return "places ranks on the nodes of its allocation: leave -H and --hostfile away";
  if (options.restarts > 0) return "cannot start a rank anew: leave --restarts away";
  if (!by_srun && is_elastic(options.policy))
    return "ends all ranks when one fails, so the job cannot be elastic: leave the policy away";
  if (by_srun && options.stamp) return "shows no times: leave --prefix-output-with-timestamp away";
  if (!options.output.empty())
    return fmt::format(
        "has files of its own: say --launcher-args \"--output{} ...\" instead of "
        "--output-filename",
        by_srun ? "" : "-filename");
  return "";
}

Words to_srun(const RunOptions& options) {
  Words words = {"srun", fmt::format("--ntasks={}", options.ranks)};
  // An allocation of nodes alone would be filled from its first one. One that knows how many tasks
  // it is for may have other processors on each node.
  const int64_t nodes = number_in("SLURM_JOB_NUM_NODES");
  if (nodes > options.ranks) words.push_back(fmt::format("--nodes={}", options.ranks));
  if (nodes > 0 && number_in("SLURM_NTASKS") < 0) {
    words.push_back(fmt::format("--ntasks-per-node={}", (options.ranks + nodes - 1) / nodes));
  }
  // srun does not take over by itself how many each task has.
  if (const int64_t processors = number_in("SLURM_CPUS_PER_TASK"); processors > 0)
    words.push_back(fmt::format("--cpus-per-task={}", processors));
  words.insert(words.end(), {"--export=ALL", "--input=none"});
  if (is_elastic(options.policy)) {
    words.insert(words.end(), {"--kill-on-bad-exit=0", "--wait=0", "--no-kill"});
  } else {
    words.emplace_back("--kill-on-bad-exit=1");
  }
  if (options.tag) words.emplace_back("--label");
  return words;
}

Words to_mpirun(const RunOptions& options, const Launch& launch, const Words& environment) {
  Words words = {"mpirun", "-np", std::to_string(options.ranks)};
  if (!options.hosts.empty()) {
    Words hosts;
    for (const Slots& slots : options.hosts)
      hosts.push_back(fmt::format("{}:{}", slots.host, slots.count));
    words.insert(words.end(), {"--host", fmt::format("{}", fmt::join(hosts, ","))});
  }
  if (options.rsh != Words{"ssh"})
    words.insert(words.end(),
                 {"--mca", "plm_rsh_agent", fmt::format("{}", fmt::join(options.rsh, " "))});
  words.insert(words.end(), {"--stdin", "none", "--bind-to", "none"});
  if (options.tag) words.emplace_back("--tag-output");
  if (options.stamp) words.emplace_back("--timestamp-output");
  // By name alone: command lines are for everybody to read.
  for (const std::string& variable : environment) {
    const std::string name(name_in(variable));
    const auto is_it = [&](const std::string& one) { return name_in(one) == name; };
    if (goes_along(name) || name == "PYTHONUNBUFFERED" ||
        std::ranges::any_of(options.send, is_it) || std::ranges::any_of(launch.environment, is_it))
      words.insert(words.end(), {"-x", name});
  }
  return words;
}

}  // namespace

tl::expected<Launcher, std::string> choose_launcher(const std::string& said,
                                                    const RunOptions& options) {
  Launcher launcher = Launcher::kOwn;
  if (said == "srun") {
    launcher = Launcher::kSrun;
  } else if (said == "mpirun") {
    launcher = Launcher::kMpirun;
  } else if (said == "auto") {
    if (is_in_allocation() && options.hosts.empty() && is_in_path("srun"))
      launcher = Launcher::kSrun;
  } else if (said != "ssh") {
    return tl::unexpected(
        fmt::format("--launcher {}: it is one of ssh, srun, mpirun and auto", printable(said)));
  }
  if (launcher == Launcher::kOwn) {
    if (options.launcher_args.empty()) return launcher;
    return tl::unexpected(std::string(
        "--launcher-args are for srun or mpirun, and neither starts the ranks: see --launcher"));
  }
  const char* program = program_of(launcher);
  if (!is_in_path(program))
    return tl::unexpected(fmt::format("--launcher {}: there is no {} in PATH", said, program));
  if (const auto why = why_it_cannot(launcher, options); !why.empty()) {
    return tl::unexpected(fmt::format(
        "{}{} {}; or say --launcher ssh, and -H where other hosts take part",
        said == "auto" ? "inside a Slurm allocation srun starts the ranks. " : "", program, why));
  }
  return launcher;
}

Handover hand_over(const RunOptions& options, const Launch& launch) {
  Handover handover;
  handover.environment = environment_of_all(launch);
  // Both read what ranks print through pipes, for which Python keeps it back.
  if (std::getenv("PYTHONUNBUFFERED") == nullptr)
    handover.environment.emplace_back("PYTHONUNBUFFERED=1");
  handover.command = options.launcher == Launcher::kSrun
                         ? to_srun(options)
                         : to_mpirun(options, launch, handover.environment);
  auto& words = handover.command;
  words.insert(words.end(), options.launcher_args.begin(), options.launcher_args.end());
  std::error_code error;
  words.push_back(std::filesystem::read_symlink("/proc/self/exe", error));
  words.emplace_back("--rank");
  if (!options.runtime_dir.empty()) words.push_back("--runtime-dir=" + options.runtime_dir);
  words.emplace_back("--");
  words.insert(words.end(), launch.command.begin(), launch.command.end());
  return handover;
}

std::string become(const Words& command, const Words& environment) {
  const auto pointers = [](const Words& words) {
    std::vector<char*> all;
    for (const std::string& word : words) all.push_back(const_cast<char*>(word.c_str()));
    all.push_back(nullptr);
    return all;
  };
  execvpe(command[0].c_str(), pointers(command).data(), pointers(environment).data());
  return fmt::format("cannot run {}: {}", command[0], std::strerror(errno));
}

}  // namespace gradring::tools
