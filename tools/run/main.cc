// gradring-run: starts the ranks of a job and ends them together.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <iterator>

#include "proto/shell_word.h"
#include "tools/common/output.h"
#include "tools/common/text.h"
#include "tools/run/here.h"
#include "tools/run/launch.h"
#include "tools/run/options.h"
#include "tools/run/rank.h"
#include "tools/run/rendezvous.h"
#include "tools/run/supervisor.h"

namespace {

using namespace gradring::tools;

constexpr int kUsage = 2;
constexpr int kCannotRun = 127;

int complain(const std::string& message, int code) {
  put_err(fmt::format("gradring-run: {}\n", message));
  return code;
}

std::string with_host(std::string pattern, const std::string& host) {
  for (size_t at = 0; (at = pattern.find("%h", at)) != std::string::npos; at += host.size()) {
    pattern.replace(at, 2, host);
  }
  return pattern;
}

std::string job_name(const RunOptions& options) {
  if (!options.job.empty()) return options.job;
  std::string named = value_of("GRADRING_JOB", options.send);
  if (!named.empty()) return named;
  if (options.launcher != Launcher::kOwn) return "";
  return fmt::format("run-{}-{}", host_name(), random_token().substr(0, 8));
}

// By itself ssh hears for hours nothing of a host without power. A job that goes on without its
// ranks is over by then, and the launch would wait for them. Longer than gradringd's `decide`.
constexpr std::array kNoticeSilence = {"-o", "ServerAliveInterval=20", "-o",
                                       "ServerAliveCountMax=3"};

// The connection to a host, at whose other end an agent runs its share.
Process connection_to(const Launch& launch, const std::vector<std::string>& rsh) {
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  Process process;
  process.label = fmt::format("host {} ({})", launch.share.host, describe_ranks(launch.share));
  process.command = rsh;
  if (is_elastic(launch.policy) && std::filesystem::path(rsh.front()).filename() == "ssh")
    process.command.insert(process.command.end(), kNoticeSilence.begin(), kNoticeSilence.end());
  process.command.push_back(launch.share.host);
  process.command.push_back(fmt::format("exec {} --agent", gradring::shell_word(program.native())));
  for (char** variable = environ; *variable != nullptr; ++variable)
    process.environment.emplace_back(*variable);
  process.lifeline = to_line(launch) + "\n";
  process.ranks = launch.share.count;
  process.line_ends = line_ends(launch);
  return process;
}

std::vector<std::string> with(const std::vector<std::string>& more,
                              std::vector<std::string> environment) {
  environment.insert(environment.end(), more.begin(), more.end());
  return environment;
}

Rules rules_of(const Launch& launch) {
  Rules rules;
  rules.elastic = is_elastic(launch.policy);
  rules.restarts = launch.restarts;
  rules.answers = launch.answers;
  return rules;
}

// As a shell would take it, on one line.
std::string shown(const std::vector<std::string>& command) {
  std::vector<std::string> words;
  std::ranges::transform(command, std::back_inserter(words),
                         [](const std::string& word) { return gradring::shell_word(word); });
  return printable(fmt::format("{}", fmt::join(words, " ")));
}

void tell(const Launch& launch, const std::string& how, const RunOptions& options) {
  if (!options.verbose) return;
  put_err(fmt::format("gradring-run: job {}: {} of {} {}: {}\n", printable(launch.job),
                      describe_ranks(launch.share), launch.size, how, shown(launch.command)));
}

int become_launcher(const RunOptions& options, Launch launch) {
  launch.environment = with(rendezvous_to_hand_over(options), variables_to_set(options.send));
  const Handover handover = hand_over(options, launch);
  if (options.verbose) put_err(fmt::format("gradring-run: becomes {}\n", shown(handover.command)));
  return complain(become(handover.command, handover.environment), kCannotRun);
}

int be_rank(const RunOptions& options) {
  const auto place = place_by_launcher();
  if (!place) return complain(place.error(), kUsage);
  Launch launch;
  launch.runtime_dir = with_host(options.runtime_dir, host_name());
  auto environment = environment_of_all(launch);
  for (const std::string& variable : *place) {
    set(&environment, name_in(variable), variable.substr(variable.find('=') + 1));
  }
  return complain(become(options.command, environment), kCannotRun);
}

int launch(const RunOptions& options) {
  const auto shares = place(options.ranks, options.hosts);
  if (!shares) return complain(shares.error(), kUsage);
  std::error_code error;
  Launch common;
  common.size = options.ranks;
  for (const Share& share : *shares) common.counts.push_back(share.count);
  // Of -x alone: a token that we have ourselves is that of the launch which we are in.
  common.token = value_set("GRADRING_JOB_TOKEN", options.send).value_or("");
  if (common.token.empty()) common.token = random_token();
  common.job = job_name(options);
  common.directory = std::filesystem::current_path(error);
  common.command = options.command;
  common.policy = options.policy;
  common.restarts = options.restarts;
  common.tag = options.tag;
  common.stamp = options.stamp;
  common.output = options.output;
  common.answers = options.attended;
  if (options.launcher != Launcher::kOwn) return become_launcher(options, common);

  const auto meeting = rendezvous(*shares, options.send);
  std::vector<Process> processes;
  for (const Share& share : *shares) {
    Launch one = common;
    one.share = share;
    one.runtime_dir = with_host(options.runtime_dir, share.host.empty() ? host_name() : share.host);
    if (is_here(share.host)) {
      one.environment = with(meeting, variables_to_set(options.send));
      for (Process& process : processes_of(one)) processes.push_back(std::move(process));
      tell(one, "here", options);
      continue;
    }
    one.environment = with(meeting, environment_to_send(options.send));
    if (const std::string fault = fault_of(one); !fault.empty()) return complain(fault, kUsage);
    processes.push_back(connection_to(one, options.rsh));
    tell(one, "by " + shown(processes.back().command), options);
    if (processes.back().lifeline->size() > kLifelineMax) {
      return complain(
          fmt::format("the command and the variables that go to {} are longer than {} KiB",
                      share.host, kLifelineMax >> 10),
          kUsage);
    }
  }
  Rules rules = rules_of(common);
  if (options.attended) rules.lifeline = STDIN_FILENO;
  return Supervisor(std::move(processes), rules).run();
}

// One line from the standard input, which stays open behind it as the thread by which the agent
// hangs.
std::string read_line() {
  std::string line;
  for (char c = 0; line.size() <= kLifelineMax && read(STDIN_FILENO, &c, 1) == 1 && c != '\n';)
    line += c;
  return line;
}

int serve() {
  const auto launch = from_line(read_line());
  if (!launch) return complain(launch.error(), kUsage);
  Rules rules = rules_of(*launch);
  rules.program = fmt::format("gradring-run on {}", launch->share.host);
  rules.lifeline = STDIN_FILENO;
  rules.elsewhere = launch->share.count < launch->size;
  return code_of_agent(Supervisor(processes_of(*launch), rules).run());
}

}  // namespace

int main(int argc, char** argv) {
  fill_standard_descriptors();
  const auto options = parse_run_options({argv + 1, argv + argc});
  if (!options) return complain(options.error(), kUsage);
  if (!*options) return std::cout.flush() ? 0 : complain("cannot write the answer", 1);
  for (const std::string& warning : (*options)->warnings)
    put_err(fmt::format("gradring-run: {}\n", warning));
  try {
    if ((*options)->agent) return serve();
    return (*options)->as_rank ? be_rank(**options) : launch(**options);
  } catch (const std::exception& error) {
    return complain(error.what(), 1);
  }
}
