#include "tools/run/launch.h"

#include <fmt/format.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <iterator>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string_view>

extern char** environ;

namespace gradring::tools {
namespace {

using nlohmann::json;

std::string_view name_in(std::string_view variable) {
  return variable.substr(0, variable.find('='));
}

void set(std::vector<std::string>* environment, std::string_view name, std::string_view value) {
  std::erase_if(*environment, [&](const std::string& one) { return name_in(one) == name; });
  environment->push_back(fmt::format("{}={}", name, value));
}

std::vector<std::string> own_environment() {
  std::vector<std::string> all;
  for (char** variable = environ; *variable != nullptr; ++variable) all.emplace_back(*variable);
  return all;
}

// Left from an outer launch these would be taken before RANK, WORLD_SIZE and LOCAL_RANK.
bool would_mislead(std::string_view name) {
  return name == "GRADRING_RANK" || name == "GRADRING_SIZE" || name == "GRADRING_LOCAL_RANK" ||
         name == "GRADRING_LOCAL_SIZE";
}

std::vector<std::string> environment_of(const Launch& launch, int local_rank) {
  auto all = own_environment();
  for (const std::string& variable : launch.environment) {
    set(&all, name_in(variable), variable.substr(variable.find('=') + 1));
  }
  std::erase_if(all, [](const std::string& one) { return would_mislead(name_in(one)); });
  set(&all, "RANK", std::to_string(launch.share.first_rank + local_rank));
  set(&all, "WORLD_SIZE", std::to_string(launch.size));
  set(&all, "LOCAL_RANK", std::to_string(local_rank));
  set(&all, "LOCAL_WORLD_SIZE", std::to_string(launch.share.count));
  set(&all, "GRADRING_JOB", launch.job);
  set(&all, "GRADRING_JOB_TOKEN", launch.token);
  if (!launch.policy.empty()) set(&all, "GRADRING_POLICY", launch.policy);
  if (!launch.runtime_dir.empty()) set(&all, "GRADRING_RUNTIME_DIR", launch.runtime_dir);
  return all;
}

}  // namespace

std::vector<Process> processes_of(const Launch& launch) {
  std::vector<Process> processes;
  for (int local = 0; local < launch.share.count; ++local) {
    const int rank = launch.share.first_rank + local;
    Process process;
    process.label = fmt::format("rank {}", rank);
    process.command = launch.command;
    process.environment = environment_of(launch, local);
    process.directory = launch.directory;
    if (launch.tag) process.tag = fmt::format("[{}] ", rank);
    processes.push_back(std::move(process));
  }
  return processes;
}

std::string to_line(const Launch& launch) {
  const json document = {{"host", launch.share.host},
                         {"first_rank", launch.share.first_rank},
                         {"count", launch.share.count},
                         {"size", launch.size},
                         {"job", launch.job},
                         {"token", launch.token},
                         {"runtime_dir", launch.runtime_dir},
                         {"directory", launch.directory},
                         {"environment", launch.environment},
                         {"command", launch.command},
                         {"policy", launch.policy},
                         {"restarts", launch.restarts},
                         {"tag", launch.tag}};
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
    launch.job = document.at("job");
    launch.token = document.at("token");
    launch.runtime_dir = document.at("runtime_dir");
    launch.directory = document.at("directory");
    launch.environment = document.at("environment").get<std::vector<std::string>>();
    launch.command = document.at("command").get<std::vector<std::string>>();
    launch.policy = document.at("policy");
    launch.restarts = document.at("restarts");
    launch.tag = document.at("tag");
  } catch (const json::exception& error) {
    return tl::unexpected(fmt::format(
        "what to run came garbled: {}; are both hosts on the same version?", error.what()));
  }
  if (launch.share.count < 1 || launch.command.empty()) {
    return tl::unexpected(std::string("there is nothing to run"));
  }
  return launch;
}

std::vector<std::string> environment_to_send(const std::vector<std::string>& more) {
  static constexpr std::array<std::string_view, 4> kPaths = {"PATH", "LD_LIBRARY_PATH",
                                                             "PYTHONPATH", "VIRTUAL_ENV"};
  std::vector<std::string> chosen;
  for (const std::string& variable : own_environment()) {
    const auto name = name_in(variable);
    if (name.starts_with("GRADRING_") || std::ranges::find(kPaths, name) != kPaths.end()) {
      chosen.push_back(variable);
    }
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

bool is_elastic(const std::string& policy) {
  return policy.substr(0, policy.find(' ')) == "elastic";
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

std::string shell_quoted(const std::string& word) {
  std::string quoted = "'";
  for (const char c : word) {
    if (c == '\'')
      quoted += "'\\''";
    else
      quoted += c;
  }
  return quoted + "'";
}

}  // namespace gradring::tools
