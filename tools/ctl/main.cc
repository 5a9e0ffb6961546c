// gradringctl: asks the daemon of this node what it is doing.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/program_options.hpp>
#include <cstdlib>
#include <sstream>

#include "proto/version.h"
#include "tools/common/option_error.h"
#include "tools/common/output.h"
#include "tools/common/text.h"
#include "tools/ctl/command.h"
#include "tools/ctl/watch.h"

namespace {

using namespace gradring;
using namespace gradring::tools;
namespace po = boost::program_options;

enum class Asks { kOneNode, kAllNodes, kNobody };

struct Command {
  std::string_view name;
  std::string_view arguments;
  std::string_view help;
  Result (*run)(const Context&, const Arguments&);
  Asks asks = Asks::kOneNode;
  bool once = false;  // it does something, or shows itself: nothing to --watch
};

constexpr std::array kCommands = {
    Command{"status", "", "the daemon: version, transport, devices, limits, counters", run_status},
    Command{"peers", "", "the daemons it is connected with, and since when", run_peers},
    Command{"jobs", "", "the jobs that have trainers on this node", run_jobs},
    Command{"job", "NAME", "one job: its ranks, and who waits for whom, for how long", run_job},
    Command{
        "topology", "[--svg FILE] [--dot FILE]",
        "GPUs, network cards and what is near to what; lanes and rings. --record DIR writes this "
        "machine down, --replay DIR shows such a one",
        run_topology},
    Command{"flight-recorder", "[JOB] [--last N]",
            "what the daemon did last, also after it died: N events, 100 or else 0 for all",
            run_flight_recorder, Asks::kNobody},
    Command{"bandwidth", "[--seconds S]",
            "what goes from node to node right now, lane by lane. --matrix [--size BYTES] "
            "[--svg FILE] [--force] measures what could go, --latency how long it takes",
            run_bandwidth, Asks::kAllNodes},
    Command{"top", "[--once [--size 80x24]] [--all]",
            "a screen of jobs, links and limits, each second anew; --once prints it", run_top,
            Asks::kOneNode, true},
    Command{"trace", "start|stop|dump [-o FILE] [--job JOB]",
            "what all daemons do from start to stop, or did last, as a file for ui.perfetto.dev",
            run_trace, Asks::kAllNodes, true},
    Command{"doctor", "[--seconds S]",
            "what usually goes wrong, here and between nodes, and what to do about it", run_doctor},
    Command{"events", "[--since 10m] [--all] [--follow]",
            "what happened on this node, or on all: jobs, peers, deaths, drains", run_events},
    Command{"set", "JOB weight=N", "its share of a wire that other jobs want as well, 1 to 100",
            run_set, Asks::kAllNodes, true},
    Command{"drain", "[--timeout S] | --cancel",
            "take no new jobs, let those that run end, and stop; or take jobs again", run_drain,
            Asks::kOneNode, true},
    Command{"support-bundle", "[-o FILE.tar.gz]",
            "all that somebody needs who is to help, without keys, in one file", run_support_bundle,
            Asks::kAllNodes, true},
    Command{"keygen", "[--out DIR] [--name NODE] [--address HOST:PORT]",
            "make the key pair of a node", run_keygen, Asks::kNobody, true},
};

enum Exit { kGood = 0, kUnhealthy = 1, kUsage = 2, kUnreachable = 3 };

Exit exit_code_of(Code code) {
  switch (code) {
    case Code::kInvalidArgument:
      return kUsage;
    case Code::kUnavailable:
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
  const char* none = std::getenv("NO_COLOR");  // https://no-color.org: not where it is empty
  return isatty(STDOUT_FILENO) == 1 && (none == nullptr || *none == '\0') && term != nullptr &&
         std::string_view(term) != "dumb";
}

// How to call a command, and beside it what it is for, in lines of a terminal. The manual page is
// made from it (tools/manual/helptext.py).
std::string help_of(const Command& command) {
  constexpr size_t kColumn = 36, kWidth = 80;
  std::string text = fmt::format("  {} {}", command.name, command.arguments);
  size_t used = text.size();
  if (used + 2 > kColumn) used = kWidth;  // it has a line to itself
  std::istringstream words{std::string(command.help)};
  for (std::string word; words >> word;) {
    const bool fits = used + 1 + word.size() <= kWidth;
    if (!fits) text += '\n';
    const size_t indent = fits ? (used < kColumn ? kColumn - used : 1) : kColumn;
    text += fmt::format("{:{}}{}", "", indent, word);
    used = (fits ? used + indent : kColumn) + word.size();
  }
  return text + "\n";
}

// Of all commands, or of the one that was named.
std::string help_text(const po::options_description& options, const Arguments& named) {
  std::ostringstream text;
  const auto* const one = std::ranges::find_if(kCommands, [&](const Command& command) {
    return !named.empty() && command.name == named[0];
  });
  if (one != kCommands.end()) {
    text << "usage: gradringctl [OPTION]...\n\n" << help_of(*one);
  } else {
    text << "usage: gradringctl [OPTION]... COMMAND\n\nCommands\n";
    for (const Command& command : kCommands) text << help_of(command);
  }
  text << "\n"
       << options
       << "\nExit code: 0 good, 1 what was asked about is unhealthy, or refused, 2 usage, 3 the "
          "daemon cannot be reached (flight-recorder: there is no file).\nWhat --json prints is "
          "described in tools/schema of the source.\n";
  return text.str();
}

int complain(std::string_view where, const std::string& message, Exit code) {
  put_err(fmt::format("gradringctl{}{}: {}\n", where.empty() ? "" : " ", where, message));
  return code;
}

// What no daemon has to be asked for.
int say(const std::string& text) {
  return put_out(text) ? kGood : complain("", "cannot write the answer", kUnhealthy);
}

// What stands behind a "--" is no option, as the name of a job that begins with a dash. Boost takes
// the bar away; who reads the words of a command has to know of it.
Arguments with_bar(Arguments words, const Arguments& all) {
  const auto bar = std::ranges::find(all, "--");
  const auto behind = static_cast<size_t>(std::distance(bar, all.end()));
  if (behind > 1 && behind <= words.size()) {
    words.insert(words.end() - static_cast<ptrdiff_t>(behind - 1), "--");
  }
  return words;
}

// How answers are printed.
struct Manner {
  bool json = false;
  bool watched = false;  // others follow
  bool screen = false;   // each on a screen of its own
  double seconds = kWatchSeconds;
};

std::string document_text(const Answer& answer, const Manner& manner) {
  // Names from outside may hold anything: what is not UTF-8 is replaced, not thrown at the user.
  return document_of(answer).dump(manner.watched ? -1 : 2, ' ', false,
                                  nlohmann::json::error_handler_t::replace);
}

int tell(const Command& command, const Answer& answer, const Manner& manner, const Style& style) {
  std::string text = manner.json ? document_text(answer, manner) + '\n' : answer.text;
  if (!manner.json) {
    if (!answer.problems.empty() && !text.empty()) text += '\n';
    for (const auto& problem : answer.problems) {
      text += fmt::format("{} {}\n", style.bad("!"), problem);
    }
    if (manner.watched && !manner.screen) text += '\n';
  }
  if (!put_out(text)) return complain(command.name, "cannot write the answer", kUnhealthy);
  return answer.problems.empty() ? kGood : kUnhealthy;
}

int run(const Command& command, const Context& context, const Arguments& arguments,
        const Manner& manner) {
  const auto answer = command.run(context, arguments);
  if (manner.screen) {
    fmt::print("\x1b[H\x1b[2J{}\n\n",
               context.style.faint(
                   fmt::format("{} every {} s; Ctrl-C ends it", command.name, manner.seconds)));
  }
  if (answer) return tell(command, *answer, manner, context.style);
  const Exit code = exit_code_of(answer.error().code());
  return complain(command.name, answer.error().message() + (code == kUsage ? "; see --help" : ""),
                  code);
}

int answer(int argc, char** argv) {
  Context context;
  Manner manner;
  po::options_description shown("Options");
  // clang-format off
  shown.add_options()
    ("runtime-dir", po::value(&context.runtime_dir)->default_value(default_runtime_dir())->value_name("DIR"),
     "of the daemon; GRADRING_RUNTIME_DIR")
    ("node", po::value(&context.node)->value_name("NODE"),
     "ask this peer, through the daemon here (status, peers, jobs, job, topology, top, events, drain)")
    ("json", po::bool_switch(&manner.json), "answer for scripts")
    ("watch", po::value(&manner.seconds)->value_name("[S]"), "ask again each S seconds, 2 where no number follows, until Ctrl-C; with --json one answer a line")
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
    const auto parsed = po::command_line_parser(with_watch_seconds({argv + 1, argv + argc}))
                            .options(all)
                            .positional(positions)
                            .allow_unregistered()
                            .run();
    po::store(parsed, values);
    po::notify(values);
    rest = with_bar(po::collect_unrecognized(parsed.options, po::include_positional),
                    {argv + 1, argv + argc});
  } catch (const po::error& error) {
    return complain("", fmt::format("{}; see --help", printable(words_of(error))), kUsage);
  }
  if (values.count("help") > 0) return say(help_text(shown, rest));
  if (values.count("version") > 0) return say(fmt::format("gradringctl {}\n", kProductVersion));
  if (rest.empty()) return complain("", "which command? See --help", kUsage);
  // As of a script's variable that is not set: it would be asked, or drained, another daemon.
  for (const char* option : {"runtime-dir", "node"}) {
    if (values.count(option) == 0 || !values[option].as<std::string>().empty()) continue;
    return complain("", fmt::format("--{} takes a name, not nothing; see --help", option), kUsage);
  }

  context.json = manner.json;
  context.style.colour = !manner.json && wants_colour();
  manner.watched = values.count("watch") > 0;
  manner.screen = manner.watched && !manner.json && isatty(STDOUT_FILENO) == 1;
  if (Status fault = fault_of_watch(manner.seconds); !fault.ok()) {
    return complain("", fault.message() + "; see --help", kUsage);
  }
  for (const Command& command : kCommands) {
    if (command.name != rest[0]) continue;
    if (command.asks != Asks::kOneNode && !context.node.empty()) {
      const char* const whom = command.asks == Asks::kNobody ? "no daemon" : "all nodes";
      return complain(command.name, fmt::format("it asks {}: leave out --node", whom), kUsage);
    }
    const Arguments arguments(rest.begin() + 1, rest.end());
    if (!manner.watched) return run(command, context, arguments, manner);
    if (command.once) {
      return complain(command.name, "it is done once, so --watch says nothing to it", kUsage);
    }
    const auto goes_on = [](int code) { return code != kUsage && std::ferror(stdout) == 0; };
    return watch(
        manner.seconds, [&] { return run(command, context, arguments, manner); }, goes_on);
  }
  const char* const what = rest[0].starts_with('-') ? "option" : "command";
  return complain("", fmt::format("there is no {} \"{}\"; see --help", what, printable(rest[0])),
                  kUsage);
}

}  // namespace

int main(int argc, char** argv) {
  fill_standard_descriptors();
  try {
    return answer(argc, argv);
  } catch (const std::exception& error) {  // the system has no room for a socket, or a thread
    return complain("", error.what(), kUnhealthy);
  }
}
