#include "tools/run/launch.h"

#include <fmt/format.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "tools/common/text.h"

extern char** environ;

namespace gradring::tools {
namespace {

using nlohmann::json;

std::vector<std::string> own_environment() {
  std::vector<std::string> all;
  for (char** variable = environ; *variable != nullptr; ++variable) all.emplace_back(*variable);
  return all;
}

// Left from an outer launch these would be taken before, or beside, what this one says. With
// torchrun's last one no rank listens at MASTER_PORT, where its agent would.
bool would_mislead(std::string_view name) {
  static constexpr std::array<std::string_view, 15> kPlaces = {"RANK",
                                                               "WORLD_SIZE",
                                                               "LOCAL_RANK",
                                                               "LOCAL_WORLD_SIZE",
                                                               "GRADRING_RANK",
                                                               "GRADRING_SIZE",
                                                               "GRADRING_LOCAL_RANK",
                                                               "GRADRING_LOCAL_SIZE",
                                                               "HOROVOD_RANK",
                                                               "HOROVOD_SIZE",
                                                               "HOROVOD_LOCAL_RANK",
                                                               "HOROVOD_LOCAL_SIZE",
                                                               "HOROVOD_CROSS_RANK",
                                                               "HOROVOD_CROSS_SIZE",
                                                               "TORCHELASTIC_USE_AGENT_STORE"};
  return std::ranges::find(kPlaces, name) != kPlaces.end();
}

bool is_set(const std::vector<std::string>& environment, std::string_view name) {
  return std::ranges::any_of(environment,
                             [&](const std::string& one) { return name_in(one) == name; });
}

// rank.07 of 16: so that the names sort as the ranks do.
std::string folder_of(const Launch& launch, int rank) {
  if (launch.output.empty()) return "";
  return fmt::format("{}/rank.{:0{}}", launch.output, rank, std::to_string(launch.size - 1).size());
}

// Among the ranks that have the same number on their hosts.
struct Across {
  int rank = 0;
  int size = 0;
};

Across across(const Launch& launch, int local_rank) {
  if (launch.counts.empty()) return {0, 1};
  Across place;
  int first_rank = 0;
  for (const int count : launch.counts) {
    if (count > local_rank && first_rank < launch.share.first_rank) ++place.rank;
    if (count > local_rank) ++place.size;
    first_rank += count;
  }
  return place;
}

std::vector<std::string> environment_of(const Launch& launch, int local_rank) {
  auto all = environment_of_all(launch);
  const auto say = [&](std::string_view name, int value) {
    set(&all, name, std::to_string(value));
  };
  const int rank = launch.share.first_rank + local_rank;
  say("RANK", rank);
  say("WORLD_SIZE", launch.size);
  say("LOCAL_RANK", local_rank);
  say("LOCAL_WORLD_SIZE", launch.share.count);
  // For scripts that look there before they call hvd.init().
  const Across place = across(launch, local_rank);
  say("HOROVOD_RANK", rank);
  say("HOROVOD_SIZE", launch.size);
  say("HOROVOD_LOCAL_RANK", local_rank);
  say("HOROVOD_LOCAL_SIZE", launch.share.count);
  say("HOROVOD_CROSS_RANK", place.rank);
  say("HOROVOD_CROSS_SIZE", place.size);
  return all;
}

}  // namespace

std::string_view name_in(std::string_view variable) {
  return variable.substr(0, variable.find('='));
}

void set(std::vector<std::string>* environment, std::string_view name, std::string_view value) {
  std::erase_if(*environment, [&](const std::string& one) { return name_in(one) == name; });
  environment->push_back(fmt::format("{}={}", name, value));
}

std::vector<std::string> environment_of_all(const Launch& launch) {
  auto all = own_environment();
  for (const std::string& variable : launch.environment) {
    set(&all, name_in(variable), variable.substr(variable.find('=') + 1));
  }
  std::erase_if(all, [](const std::string& one) { return would_mislead(name_in(one)); });
  if (!launch.job.empty()) set(&all, "GRADRING_JOB", launch.job);
  if (!launch.token.empty()) set(&all, "GRADRING_JOB_TOKEN", launch.token);
  if (!launch.policy.empty()) set(&all, "GRADRING_POLICY", launch.policy);
  if (!launch.runtime_dir.empty()) set(&all, "GRADRING_RUNTIME_DIR", launch.runtime_dir);
  return all;
}

// A bar that shows progress ends with CR what it shows; of tagged lines that is a part.
std::string_view line_ends(const Launch& launch) {
  if (launch.tag || launch.stamp) return "\n";
  return launch.size > 1 ? "\n\r" : "";
}

std::vector<Process> processes_of(const Launch& launch) {
  // There Python prints whole lines by itself, and bars adapt to its width.
  const bool at_terminal = isatty(STDOUT_FILENO) == 1 && isatty(STDERR_FILENO) == 1;
  std::vector<Process> processes;
  for (int local = 0; local < launch.share.count; ++local) {
    const int rank = launch.share.first_rank + local;
    Process process;
    process.label = fmt::format("rank {}", rank);
    process.command = launch.command;
    process.environment = environment_of(launch, local);
    process.directory = launch.directory;
    if (launch.tag) process.tag = fmt::format("[{}] ", rank);
    process.stamp = launch.stamp;
    process.output = folder_of(launch, rank);
    if (!at_terminal || process.piped()) process.line_ends = line_ends(launch);
    // Python keeps what it prints to a pipe or a file to itself until it has 8 KiB, or loses it.
    const bool keeps_back = process.piped() || !at_terminal;
    if (keeps_back && !is_set(process.environment, "PYTHONUNBUFFERED")) {
      process.environment.emplace_back("PYTHONUNBUFFERED=1");
    }
    processes.push_back(std::move(process));
  }
  return processes;
}

std::string fault_of(const Launch& launch) {
  // What a variable is set to may be a secret, so only names are shown.
  std::vector<std::pair<std::string, std::string_view>> all = {
      {"the name of the host", launch.share.host},   {"the name of the job", launch.job},
      {"GRADRING_JOB_TOKEN", launch.token},          {"the policy", launch.policy},
      {"the runtime directory", launch.runtime_dir}, {"the directory to run in", launch.directory},
      {"the folder for output", launch.output}};
  for (const std::string& variable : launch.environment) {
    all.emplace_back(fmt::format("the variable {}", printable(name_in(variable))), variable);
  }
  for (const std::string& word : launch.command) {
    all.emplace_back(fmt::format("\"{}\" of the command", printable(word)), word);
  }
  const auto bad = std::ranges::find_if(all, [](const auto& one) { return !is_utf8(one.second); });
  if (bad == all.end()) return "";
  return fmt::format(
      "{} is not UTF-8 and cannot go along to host {}: change it, or run all ranks here",
      bad->first, printable(launch.share.host));
}

std::string to_line(const Launch& launch) {
  const json document = {{"host", launch.share.host},     {"first_rank", launch.share.first_rank},
                         {"count", launch.share.count},   {"size", launch.size},
                         {"counts", launch.counts},       {"job", launch.job},
                         {"token", launch.token},         {"runtime_dir", launch.runtime_dir},
                         {"directory", launch.directory}, {"environment", launch.environment},
                         {"command", launch.command},     {"policy", launch.policy},
                         {"restarts", launch.restarts},   {"tag", launch.tag},
                         {"stamp", launch.stamp},         {"output", launch.output},
                         {"answers", launch.answers}};
  return document.dump();
}

tl::expected<Launch, std::string> from_line(const std::string& line) {
  Launch launch;
  try {
    const json document = json::parse(line);
    launch.share.host = document.at("host");
    launch.share.first_rank = document.at("first_rank");
    launch.share.count = document.at("count");
    launch.size = document.at("size");
    launch.counts = document.at("counts").get<std::vector<int>>();
    launch.job = document.at("job");
    launch.token = document.at("token");
    launch.runtime_dir = document.at("runtime_dir");
    launch.directory = document.at("directory");
    launch.environment = document.at("environment").get<std::vector<std::string>>();
    launch.command = document.at("command").get<std::vector<std::string>>();
    launch.policy = document.at("policy");
    launch.restarts = document.at("restarts");
    launch.tag = document.at("tag");
    launch.stamp = document.at("stamp");
    launch.output = document.at("output");
    launch.answers = document.at("answers");
  } catch (const json::exception& error) {
    return tl::unexpected(fmt::format(
        "what to run came garbled: {}; are both hosts on the same version?", error.what()));
  }
  if (launch.share.count < 1 || launch.command.empty()) {
    return tl::unexpected(std::string("there is nothing to run"));
  }
  return launch;
}

bool goes_along(std::string_view name) {
  static constexpr std::array<std::string_view, 4> kPaths = {"PATH", "LD_LIBRARY_PATH",
                                                             "PYTHONPATH", "VIRTUAL_ENV"};
  return name.starts_with("GRADRING_") || name.starts_with("HOROVOD_") ||
         std::ranges::find(kPaths, name) != kPaths.end();
}

std::vector<std::string> environment_to_send(const std::vector<std::string>& more) {
  std::vector<std::string> chosen;
  for (const std::string& variable : own_environment()) {
    if (goes_along(name_in(variable))) chosen.push_back(variable);
  }
  for (const std::string& wanted : more) {
    if (wanted.find('=') != std::string::npos) {
      set(&chosen, name_in(wanted), wanted.substr(wanted.find('=') + 1));
    } else if (const char* value = std::getenv(wanted.c_str())) {
      set(&chosen, wanted, value);
    }
  }
  return chosen;
}

std::vector<std::string> variables_to_set(const std::vector<std::string>& more) {
  std::vector<std::string> chosen;
  std::ranges::copy_if(more, std::back_inserter(chosen),
                       [](const std::string& one) { return one.find('=') != std::string::npos; });
  return chosen;
}

std::optional<std::string> value_set(const std::string& name,
                                     const std::vector<std::string>& more) {
  std::optional<std::string> value;
  for (const std::string& variable : variables_to_set(more)) {
    if (name_in(variable) == name) value = variable.substr(name.size() + 1);
  }
  return value;
}

std::string value_of(const std::string& name, const std::vector<std::string>& more) {
  if (auto value = value_set(name, more)) return *value;
  const char* own = std::getenv(name.c_str());
  return own == nullptr ? "" : own;
}

bool is_elastic(const std::string& policy) {
  std::string kind;
  std::istringstream(policy) >> kind;  // as the daemon reads it
  return kind == "elastic";
}

std::string random_token() {
  std::array<unsigned char, 16> bytes{};
  if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    throw std::runtime_error("the system has no random numbers to give");
  }
  std::string text;
  for (const unsigned char byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

}  // namespace gradring::tools
