// gradringctl: asks the daemon of this node what it is doing.
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <boost/program_options.hpp>
#include <cstdlib>
#include <iostream>

#include "proto/version.h"
#include "tools/common/option_error.h"
#include "tools/common/text.h"
#include "tools/ctl/command.h"

namespace {

using namespace gradring;
using namespace gradring::tools;
namespace po = boost::program_options;

struct Command {
  std::string_view name;
  std::string_view arguments;
  std::string_view help;
  Result (*run)(const Context&, const Arguments&);
};

constexpr std::array kCommands = {
    Command{"status", "", "the daemon: version, transport, devices, limits, counters", run_status},
    Command{"peers", "", "the daemons it is connected with, and since when", run_peers},
    Command{"jobs", "", "the jobs that have trainers on this node", run_jobs},
    Command{"job", "NAME", "one job: its ranks, and who waits for whom, for how long", run_job},
    Command{"flight-recorder", "[JOB] [--last N]",
            "what the daemon did last, also after it died: N events, 100 or else 0 for all",
            run_flight_recorder},
    Command{"keygen", "[--out DIR] [--name NODE] [--address HOST:PORT]",
            "make the key pair of a node", run_keygen},
};

enum Exit { kGood = 0, kUnhealthy = 1, kUsage = 2, kUnreachable = 3 };

Exit exit_code_of(Code code) {
  switch (code) {
    case Code::kInvalidArgument:
      return kUsage;
    case Code::kUnavailable:
    case Code::kPermissionDenied:
    case Code::kDeadlineExceeded:
    case Code::kIncompatible:
      return kUnreachable;
    default:
      return kUnhealthy;  // the daemon answered: there is no such job, ...
  }
}

std::string default_runtime_dir() {
  const char* named = std::getenv("GRADRING_RUNTIME_DIR");
  return named != nullptr && *named != '\0' ? named : "/run/gradring";
}

bool wants_colour() {
  const char* term = std::getenv("TERM");
  return isatty(STDOUT_FILENO) == 1 && std::getenv("NO_COLOR") == nullptr && term != nullptr &&
         std::string_view(term) != "dumb";
}

void print_help(const po::options_description& options) {
  std::cout << "usage: gradringctl [OPTION]... COMMAND\n\nCommands\n";
  for (const Command& command : kCommands) {
    fmt::print("  {:<33} {}\n", fmt::format("{} {}", command.name, command.arguments),
               command.help);
  }
  std::cout << "\n"
            << options
            << "\nExit code: 0 good, 1 what was asked about is unhealthy, 2 usage, 3 the daemon "
               "cannot be "
               "reached (flight-recorder: there is no file).\nWhat --json prints is described in "
               "tools/schema of the source.\n";
}

int complain(std::string_view where, const std::string& message, Exit code) {
  std::cout.flush();
  fmt::print(stderr, "gradringctl{}{}: {}\n", where.empty() ? "" : " ", where, message);
  return code;
}

int tell(const Command& command, const Answer& answer, bool json, const Style& style) {
  if (json) {
    // Names from outside may hold anything: what is not UTF-8 is replaced, not thrown at the user.
    fmt::print("{}\n",
               document_of(answer).dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
  } else {
    fmt::print("{}", answer.text);
    if (!answer.problems.empty()) fmt::print("\n");
    for (const auto& problem : answer.problems) fmt::print("{} {}\n", style.bad("!"), problem);
  }
  if (std::fflush(stdout) != 0)
    return complain(command.name, "cannot write the answer", kUnhealthy);
  return answer.problems.empty() ? kGood : kUnhealthy;
}

}  // namespace

int main(int argc, char** argv) {
  Context context;
  bool json = false;
  po::options_description shown("Options");
  // clang-format off
  shown.add_options()
    ("runtime-dir", po::value(&context.runtime_dir)->default_value(default_runtime_dir())->value_name("DIR"),
     "of the daemon; GRADRING_RUNTIME_DIR")
    ("json", po::bool_switch(&json), "answer for scripts")
    ("version", "print the version")
    ("help,h", "show this");
  // clang-format on
  po::options_description hidden;
  Arguments words;
  hidden.add_options()("word", po::value(&words));
  po::options_description all;
  all.add(shown).add(hidden);
  po::positional_options_description positions;
  positions.add("word", -1);
  Arguments rest;
  po::variables_map values;
  try {
    const auto parsed = po::command_line_parser(argc, argv)
                            .options(all)
                            .positional(positions)
                            .allow_unregistered()
                            .run();
    po::store(parsed, values);
    po::notify(values);
    rest = po::collect_unrecognized(parsed.options, po::include_positional);
  } catch (const po::error& error) {
    return complain("", fmt::format("{}; see --help", words_of(error)), kUsage);
  }
  if (values.count("help") > 0) return print_help(shown), kGood;
  if (values.count("version") > 0) return fmt::print("gradringctl {}\n", kProductVersion), kGood;
  if (rest.empty()) return complain("", "which command? See --help", kUsage);

  context.style.colour = !json && wants_colour();
  for (const Command& command : kCommands) {
    if (command.name != rest[0]) continue;
    const auto answer = command.run(context, Arguments(rest.begin() + 1, rest.end()));
    if (answer) return tell(command, *answer, json, context.style);
    const Exit code = exit_code_of(answer.error().code());
    return complain(command.name, answer.error().message() + (code == kUsage ? "; see --help" : ""),
                    code);
  }
  return complain("", fmt::format("there is no command \"{}\"; see --help", printable(rest[0])),
                  kUsage);
}
