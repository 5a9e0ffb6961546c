#include "tools/run/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/program_options.hpp>
#include <cstdlib>
#include <iostream>
#include <iterator>
#include <sstream>

#include "proto/policy.h"
#include "proto/version.h"
#include "tools/common/option_error.h"
#include "tools/common/text.h"
#include "tools/run/build_report.h"
#include "tools/run/horovod_flags.h"
#include "tools/run/launch.h"

namespace gradring::tools {
namespace {

namespace po = boost::program_options;

constexpr char kIntroduction[] =
    "usage: gradring-run -np N [OPTION]... COMMAND [ARGUMENT]...\n"
    "\n"
    "Starts N ranks of COMMAND, which find one another through the gradringd of their host.\n"
    "\n"
    "  gradring-run -np 4 gradring-digits\n"
    "  gradring-run -np 8 -H alpha:4,beta:4 python3 train.py\n"
    "\n"
    "Where a command began with horovodrun, gradring-run may stand in its place.\n";

constexpr char kEnding[] =
    "\nEach rank finds RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, the same as HOROVOD_RANK "
    "and\n"
    "so on, GRADRING_JOB and GRADRING_JOB_TOKEN (random, the same for all ranks of a launch) in\n"
    "its environment, for torch.distributed also MASTER_ADDR and MASTER_PORT: as set here or with "
    "-x,\n"
    "else the host of rank 0 and a port from 20000 to 29999. Ranks have nothing on their standard\n"
    "input, and no terminal. When one fails, or on Ctrl-C, the others get SIGTERM and five "
    "seconds\n"
    "later SIGKILL; no process of the launch is left behind.\n"
    "\n"
    "On other hosts gradring-run must lie at the same path. It is started through --rsh and ends "
    "what it\n"
    "runs when the connection ends. Variables named GRADRING_* or HOROVOD_*, PATH, "
    "LD_LIBRARY_PATH,\n"
    "PYTHONPATH and VIRTUAL_ENV go along, others with -x.\n"
    "\n"
    "srun and mpirun take the place of gradring-run, with flags that say the same. They name the "
    "job "
    "unless\n"
    "--job does, cannot start a rank anew, and show output and end ranks in their own way.\n"
    "\n"
    "Under torchrun, srun or mpirun no launcher of gradring is needed, nor where RANK and "
    "WORLD_SIZE\n"
    "are set otherwise, as in the pods of Kubernetes.\n"
    "\n"
    "Exit code: of the first rank that failed (128 + N for signal N, 127 if it could not be "
    "started),\n"
    "1 if what they printed could not be written, else 0; 2 usage. Of an elastic job: how many\n"
    "ranks failed and were not started anew, 100 at most; signals and programs that cannot be\n"
    "started as above.\n";

struct Raw {
  std::string hosts, rsh, launcher, launcher_args;
  HorovodFlags horovod;
};

void describe_options(Raw* raw, RunOptions* options, po::options_description* shown,
                      po::options_description* hidden) {
  // clang-format off
  shown->add_options()
    ("np,n", po::value(&options->ranks)->value_name("N"), "how many ranks; also -np N")
    ("hosts,H", po::value(&raw->hosts)->value_name("HOST:N,..."), "where, with the ranks each host may run; default: all here")
    ("rsh", po::value(&raw->rsh)->default_value("ssh")->value_name("CMD"), "starts a command on another host: CMD HOST COMMAND")
    ("launcher", po::value(&raw->launcher)->default_value("auto")->value_name("LAUNCHER"), "who starts the ranks: ssh (gradring-run itself, by --rsh on other hosts), srun, mpirun (Open MPI's), or auto: srun inside a Slurm allocation unless -H says where, else ssh")
    ("launcher-args", po::value(&raw->launcher_args)->value_name("ARGS"), "more flags for srun or mpirun, in one word")
    ("runtime-dir", po::value(&options->runtime_dir)->value_name("DIR"), "of the daemons; %h stands for the host; default: GRADRING_RUNTIME_DIR")
    ("job", po::value(&options->job)->value_name("NAME"), "name of the job; default: GRADRING_JOB, else a new one")
    ("policy", po::value(&options->policy)->value_name("POLICY"), "of the job: \"fail\", or \"elastic min=A max=B\": a rank that fails does not end the others; default: GRADRING_POLICY, else fail")
    ("restarts", po::value(&options->restarts)->default_value(0)->value_name("N"), "start each rank anew that fails, N times at most; for elastic jobs")
    ("env,x", po::value(&options->send)->value_name("NAME[=VALUE]"), "a variable that goes along to other hosts, or that is set; may be repeated")
    ("tag", po::bool_switch(&options->tag), "begin each line of output with its rank")
    ("version,v", "print the version")
    ("help,h", "show this");
  hidden->add_options()("agent", po::bool_switch(&options->agent))("attended", po::bool_switch(&options->attended))("rank", po::bool_switch(&options->as_rank));
  // clang-format on
}

// Where the command begins. Boost.Program_options would look for options behind it as well.
size_t command_begins(const std::vector<std::string>& words, const po::options_description& all) {
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word == "--") return i;
    if (word.size() < 2 || word[0] != '-') return i;
    const bool is_long = word[1] == '-';
    // -n4, -Ha:2 and --np=4 carry their value with them.
    const bool alone = is_long ? word.find('=') == std::string::npos : word.size() == 2;
    const auto* option =
        all.find_nothrow(is_long ? word.substr(2, word.find('=') - 2) : word.substr(0, 2), false);
    if (alone && option != nullptr) i += option->semantic()->max_tokens();
  }
  return words.size();
}

std::vector<std::string> split_words(const std::string& text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), {}};
}

// Of a shell's variable that is not set: without it, it would be another launch.
tl::expected<void, std::string> refuse_empty(const po::variables_map& values) {
  for (const char* name :
       {"hosts", "hostfile", "ssh-identity-file", "output-filename", "timeline-filename"}) {
    if (values.count(name) > 0 && values[name].as<std::string>().empty())
      return tl::unexpected(fmt::format("--{} is empty", name));
  }
  return {};
}

// As the daemon would, of each rank, once all of them have been started.
tl::expected<void, std::string> judge_policy(const RunOptions& options) {
  const auto policy = parse_policy(options.policy);
  if (!policy) {
    return tl::unexpected(
        fmt::format("policy \"{}\" is not known; use \"fail\", or \"elastic\", with min=A and "
                    "max=B as you like",
                    printable(options.policy)));
  }
  const auto ranks = static_cast<uint32_t>(options.ranks);
  if (policy->elastic && (ranks < policy->min || (policy->max != 0 && ranks > policy->max))) {
    return tl::unexpected(
        fmt::format("-np {} does not fit the policy, {}", ranks, describe(*policy)));
  }
  return {};
}

tl::expected<void, std::string> judge(const Raw& raw, RunOptions* options) {
  if (options->agent || options->as_rank) return {};
  if (options->ranks < 1 || options->ranks > kRanksMax) {
    return tl::unexpected(fmt::format("how many ranks? -np takes 1 to {}; see --help", kRanksMax));
  }
  // The first word is empty where a shell's variable is not set.
  if (options->command.empty() || options->command[0].empty())
    return tl::unexpected(std::string("which command? See --help"));
  options->rsh = split_words(raw.rsh);
  if (options->rsh.empty()) return tl::unexpected(std::string("--rsh is empty"));
  if (!raw.hosts.empty()) {
    const auto hosts = parse_hosts(raw.hosts, std::max(raw.horovod.slots, 1));
    if (!hosts) return tl::unexpected("-H: " + hosts.error());
    options->hosts = *hosts;
  }
  if (auto taken = take_horovod_flags(raw.horovod, options); !taken) return taken;
  if (options->policy.empty()) options->policy = value_of("GRADRING_POLICY", options->send);
  if (auto good = judge_policy(*options); !good) return good;
  if (options->restarts < 0) return tl::unexpected(std::string("--restarts is negative"));
  if (options->restarts > 0 && !is_elastic(options->policy)) {
    return tl::unexpected(std::string(
        "--restarts is for jobs that go on without a rank: say --policy elastic as well"));
  }
  options->launcher_args = split_words(raw.launcher_args);
  const auto launcher = choose_launcher(raw.launcher, *options);
  if (!launcher) return tl::unexpected(launcher.error());
  options->launcher = *launcher;
  return {};
}

}  // namespace

tl::expected<std::optional<RunOptions>, std::string> parse_run_options(
    const std::vector<std::string>& words) {
  RunOptions options;
  Raw raw;
  po::options_description shown("Options", 100), hidden, all;
  po::options_description horovod("As horovodrun has them", 100);
  describe_options(&raw, &options, &shown, &hidden);
  describe_horovod_flags(&raw.horovod, &options, &horovod);
  all.add(shown).add(horovod).add(hidden);

  std::vector<std::string> own = words;
  spell_for_boost(&own);
  const size_t begin = command_begins(own, all);
  // The command as it was given: its own -np is none of our business.
  options.command.assign(words.begin() + static_cast<ptrdiff_t>(begin), words.end());
  if (!options.command.empty() && options.command[0] == "--") {
    options.command.erase(options.command.begin());
  }
  own.resize(begin);
  po::variables_map values;
  try {
    const int style =
        po::command_line_style::default_style & ~po::command_line_style::allow_guessing;
    po::store(po::command_line_parser(own).options(all).positional({}).style(style).run(), values);
    po::notify(values);
  } catch (const po::error& error) {
    return tl::unexpected(fmt::format("{}; see --help", printable(words_of(error))));
  }
  if (values.count("help") > 0) {
    std::cout << kIntroduction << "\n" << shown << "\n" << horovod << kEnding;
    return std::optional<RunOptions>();
  }
  if (values.count("version") > 0) {
    std::cout << "gradring-run " << kProductVersion << "\n";
    return std::optional<RunOptions>();
  }
  if (values.count("check-build") > 0) {
    std::cout << describe_build();
    return std::optional<RunOptions>();
  }
  if (const auto good = refuse_flags(values); !good) return tl::unexpected(good.error());
  if (const auto good = refuse_empty(values); !good) return tl::unexpected(good.error());
  if (auto needless = describe_needless(values); !needless.empty())
    options.warnings.push_back(std::move(needless));
  for (const std::string& name : options.send) {
    if (name_in(name).empty())
      return tl::unexpected(fmt::format("-x {}: it is -x NAME or -x NAME=VALUE", printable(name)));
    if (name.find('=') == std::string::npos && std::getenv(name.c_str()) == nullptr)
      options.warnings.push_back(
          fmt::format("-x {}: it is not set here, so ranks do not get it", printable(name)));
  }
  if (const auto good = judge(raw, &options); !good) return tl::unexpected(good.error());
  return options;
}

}  // namespace gradring::tools
