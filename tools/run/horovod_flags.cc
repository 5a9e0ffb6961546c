#include "tools/run/horovod_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/program_options/value_semantic.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include "tools/common/text.h"
#include "tools/run/options.h"

namespace gradring::tools {
namespace {

namespace po = boost::program_options;

constexpr std::string_view kMeeting = "ranks meet through gradringd, without Gloo or MPI";
constexpr std::string_view kNoCycle = "the daemon acts on events, it has no cycle";
constexpr std::string_view kOncePerNode =
    "a node's daemon sends once for all of its ranks, in any case";
constexpr std::string_view kTuning = "gradringd tunes while jobs run, where its tuning is auto";
constexpr std::string_view kSearch = "the search of gradringd ends by its own statistics";
constexpr std::string_view kNetwork = "the network is gradringd's: see its net-device";
constexpr std::string_view kLog = "gradringd keeps the log: see its log-level";

// clang-format off
constexpr HorovodFlag kWithoutEffect[] = {
  {"gloo", "", false, kMeeting},
  {"mpi", "", false, kMeeting},
  {"mpi-threads-disable", "", false, kMeeting},
  {"no-mpi-threads-disable", "", false, kMeeting},
  {"mpi-args", "ARGS", false, "mpirun is run by --launcher mpirun alone, with the flags of --launcher-args"},
  {"binding-args", "ARGS", false, "ranks are not bound; put numactl or taskset in front of the command"},
  {"tcp", "", false, "an RDMA card is used only where net-device of gradringd names it"},
  {"network-interfaces", "NAMES", false, kNetwork},
  {"network-interface", "NAME", false, kNetwork},
  {"nics", "NAMES", false, kNetwork},
  {"disable-cache", "", false, "nothing is checked beforehand, so nothing is kept of it"},
  {"fusion-threshold-mb", "MB", false, "small ops of the same time share messages: see bundle-bytes of gradringd"},
  {"cycle-time-ms", "MS", false, kNoCycle},
  {"cache-capacity", "N", false, "ops are matched by key, with no negotiation to be cached"},
  {"hierarchical-allreduce", "", false, kOncePerNode},
  {"no-hierarchical-allreduce", "", false, kOncePerNode},
  {"hierarchical-allgather", "", false, kOncePerNode},
  {"no-hierarchical-allgather", "", false, kOncePerNode},
  {"torus-allreduce", "", false, kOncePerNode},
  {"no-torus-allreduce", "", false, kOncePerNode},
  {"autotune", "", false, kTuning},
  {"no-autotune", "", false, kTuning},
  {"autotune-log-file", "FILE", false, "gradringctl job NAME shows what was found, and why"},
  {"autotune-warmup-samples", "N", false, kSearch},
  {"autotune-steps-per-sample", "N", false, kSearch},
  {"autotune-bayes-opt-max-samples", "N", false, kSearch},
  {"autotune-gaussian-process-noise", "X", false, kSearch},
  {"timeline-mark-cycles", "", false, kNoCycle},
  {"no-timeline-mark-cycles", "", false, kNoCycle},
  {"stall-check", "", false, "a wait of a minute is told, unless --no-stall-check says that it is not to be"},
  {"stall-check-shutdown-time-seconds", "S", false, "op-deadline of gradringd ends an op that some rank never submits"},
  {"elastic-timeout", "S", false, "the ranks that are left go on at once"},
  {"reset-limit", "N", false, "a rank that fails is started anew as often as --restarts says, else never"},
  {"blacklist-cooldown-range", "MIN MAX", false, "no host is blacklisted"},
  {"num-nccl-streams", "N", false, "gradringd chooses how the GPUs of a node are summed: gpu-engine"},
  {"thread-affinity", "CPU", false, "trainers have no thread of gradring's"},
  {"log-level", "LEVEL", false, kLog},
  {"log-with-timestamp", "", false, kLog},
  {"log-without-timestamp", "", false, kLog},
  {"log-hide-timestamp", "", false, kLog},
  {"no-log-hide-timestamp", "", false, kLog},
  {"config-file", "FILE", true, "YAML is not read here; give as flags what is in the file"},
  {"jsrun", "", true, "jsrun starts ranks by itself; put it in front of the command, without gradring-run"},
  {"host-discovery-script", "FILE", true,
   "no hosts are looked for while a job runs; give those of now: -H \"$(FILE | paste -sd, -)\", and --min-np"},
};
// clang-format on

constexpr std::array<std::pair<const char*, const char*>, 4> kSpellings = {
    {{"-np", "--np"},
     {"-hostfile", "--hostfile"},
     {"-prefix-timestamp", "--prefix-output-with-timestamp"},
     {"-cb", "--check-build"}}};

constexpr int kPortMax = 65535;
constexpr int kTimeoutMax = 1'000'000;  // seconds; more is a slip of the pen

po::typed_value<int>* number(const char* name, int most, int* to, const char* unit) {
  return po::value(to)->value_name(unit)->notifier([=](int given) {
    if (given < 1 || given > most)
      throw po::error(fmt::format("--{} {}: it takes 1 to {}", name, given, most));
  });
}

// Takes its words, however often, and keeps only that it came.
class Seen : public po::value_semantic {
 public:
  explicit Seen(std::string_view values)
      : values_(values),
        count_(values.empty() ? 0 : 1 + static_cast<unsigned>(std::ranges::count(values, ' '))) {}

  std::string name() const override { return values_; }
  unsigned min_tokens() const override { return count_; }
  unsigned max_tokens() const override { return count_; }
  bool is_composing() const override { return false; }
  bool is_required() const override { return false; }
  void parse(boost::any& store, const std::vector<std::string>& /*words*/,
             bool /*utf8*/) const override {
    store = true;
  }
  bool apply_default(boost::any& /*store*/) const override { return false; }
  void notify(const boost::any& /*store*/) const override {}

 private:
  std::string values_;
  unsigned count_;
};

tl::unexpected<std::string> refusal(std::string sentence) {
  return tl::unexpected(std::move(sentence));
}

tl::expected<std::vector<Slots>, std::string> read_hostfile(const std::string& file, int slots) {
  std::ifstream stream(file);
  stream.peek();  // a folder can be opened
  if (!stream.is_open() || stream.bad())
    return refusal(fmt::format("--hostfile: cannot read {}", printable(file)));
  const std::string text(std::istreambuf_iterator<char>(stream), {});
  auto hosts = parse_hostfile(text, slots);
  if (!hosts) return refusal(fmt::format("{}: {}", printable(file), hosts.error()));
  return hosts;
}

tl::expected<void, std::string> take_policy(const HorovodFlags& flags, RunOptions* options) {
  if (flags.min_ranks == 0 && flags.max_ranks == 0) return {};
  if (!options->policy.empty())
    return refusal("--policy and --min-np say the same thing twice; leave one away");
  if (flags.min_ranks == 0)
    return refusal("--max-np is for elastic jobs: say --min-np as well, or leave it away");
  if (flags.min_ranks > options->ranks)
    return refusal(fmt::format("--min-np {} is more than -np {}", flags.min_ranks, options->ranks));
  options->policy = fmt::format("elastic min={}", flags.min_ranks);
  if (flags.max_ranks == 0) return {};
  if (flags.max_ranks < options->ranks)
    return refusal(fmt::format("--max-np {} is less than -np {}", flags.max_ranks, options->ranks));
  options->policy += fmt::format(" max={}", flags.max_ranks);
  return {};
}

}  // namespace

std::span<const HorovodFlag> flags_without_effect() { return kWithoutEffect; }

void spell_for_boost(std::vector<std::string>* words) {
  for (std::string& word : *words) {
    const size_t name = std::min(word.find('='), word.size());
    for (const auto& [one_dash, two_dashes] : kSpellings) {
      if (word.compare(0, name, one_dash) == 0) {
        word.replace(0, name, two_dashes);
        break;
      }
    }
  }
}

void describe_horovod_flags(HorovodFlags* flags, RunOptions* options,
                            po::options_description* all) {
  // clang-format off
  all->add_options()
    ("num-proc", po::value(&options->ranks)->value_name("N"), "as -np")
    ("hostfile", po::value(&flags->hostfile)->value_name("FILE"), "as -H, with a line \"HOST slots=N\" for each host; also -hostfile")
    ("slots-per-host", number("slots-per-host", kSlotsMax, &flags->slots, "N"), "of hosts whose ranks are not told; default: 1")
    ("ssh-port,p", number("ssh-port", kPortMax, &flags->ssh_port, "PORT"), "goes to --rsh as -p PORT")
    ("ssh-identity-file,i", po::value(&flags->ssh_identity_file)->value_name("FILE"), "goes to --rsh as -i FILE")
    ("start-timeout", number("start-timeout", kTimeoutMax, &flags->start_timeout, "S"), "how long a rank waits for all others to join; default: form-deadline of gradringd")
    ("gloo-timeout-seconds", number("gloo-timeout-seconds", kTimeoutMax, &flags->gloo_timeout, "S"), "the same, where there is no --start-timeout")
    ("min-np", number("min-np", kRanksMax, &flags->min_ranks, "A"), "--policy \"elastic min=A\"; also --min-num-proc")
    ("min-num-proc", number("min-num-proc", kRanksMax, &flags->min_ranks, "A"), "as --min-np")
    ("max-np", number("max-np", kRanksMax, &flags->max_ranks, "B"), "with --min-np: --policy \"elastic min=A max=B\"; also --max-num-proc")
    ("max-num-proc", number("max-num-proc", kRanksMax, &flags->max_ranks, "B"), "as --max-np")
    ("output-filename", po::value(&flags->output)->value_name("DIR"), "write each rank's output to DIR/rank.N/stdout and stderr as well, on the host that runs it")
    ("prefix-output-with-timestamp", po::bool_switch(&options->stamp), "begin each line of output with the time; also -prefix-timestamp")
    ("no-stall-check", po::bool_switch(&flags->no_stall_check), "sets GRADRING_STALL_WARNING=0: nobody says that it waits long")
    ("stall-check-warning-time-seconds", number("stall-check-warning-time-seconds", kTimeoutMax, &flags->stall_warning, "S"), "sets GRADRING_STALL_WARNING")
    ("timeline-filename", po::value(&flags->timeline)->value_name("FILE"), "sets GRADRING_TIMELINE")
    ("verbose", po::bool_switch(&options->verbose), "say what is started where")
    ("check-build", "show what this build has; also -cb");
  // clang-format on
  for (const HorovodFlag& flag : kWithoutEffect) {
    const std::string name(flag.name);
    const std::string text = fmt::format("{}: {}", flag.refused ? "refused" : "no need", flag.why);
    all->add_options()(name.c_str(), new Seen(flag.values), text.c_str());
  }
}

tl::expected<void, std::string> take_horovod_flags(const HorovodFlags& flags, RunOptions* options) {
  if (auto good = take_policy(flags, options); !good) return good;
  if (!flags.hostfile.empty()) {
    if (!options->hosts.empty())
      return refusal("-H and --hostfile both name hosts; leave one away");
    auto hosts = read_hostfile(flags.hostfile, std::max(flags.slots, 1));
    if (!hosts) return refusal(hosts.error());
    options->hosts = std::move(*hosts);
  }
  if (flags.ssh_port > 0)
    options->rsh.insert(options->rsh.end(), {"-p", std::to_string(flags.ssh_port)});
  if (!flags.ssh_identity_file.empty())
    options->rsh.insert(options->rsh.end(), {"-i", flags.ssh_identity_file});
  std::error_code error;
  if (!flags.output.empty())
    options->output = std::filesystem::absolute(flags.output, error).lexically_normal();
  if (error)
    return refusal(fmt::format("--output-filename {}: there is no folder to begin at any more: {}",
                               flags.output, error.message()));
  // In front, so that what -x says of the same variable counts.
  std::vector<std::string> variables;
  if (!flags.timeline.empty()) variables.push_back("GRADRING_TIMELINE=" + flags.timeline);
  if (flags.no_stall_check || flags.stall_warning > 0) {
    const int seconds = flags.no_stall_check ? 0 : flags.stall_warning;
    variables.push_back(fmt::format("GRADRING_STALL_WARNING={}", seconds));
  }
  const int timeout = flags.start_timeout > 0 ? flags.start_timeout : flags.gloo_timeout;
  if (timeout > 0) variables.push_back(fmt::format("GRADRING_JOIN_TIMEOUT={}", timeout));
  options->send.insert(options->send.begin(), variables.begin(), variables.end());
  return {};
}

tl::expected<void, std::string> refuse_flags(const po::variables_map& given) {
  for (const HorovodFlag& flag : kWithoutEffect) {
    if (flag.refused && given.count(std::string(flag.name)) > 0)
      return refusal(fmt::format("--{}: {}", flag.name, flag.why));
  }
  return {};
}

std::string describe_needless(const po::variables_map& given) {
  // By reason, in the order of the table.
  std::vector<std::pair<std::string_view, std::vector<std::string>>> groups;
  for (const HorovodFlag& flag : kWithoutEffect) {
    if (flag.refused || given.count(std::string(flag.name)) == 0) continue;
    auto group = std::ranges::find(groups, flag.why, [](const auto& one) { return one.first; });
    if (group == groups.end()) group = groups.insert(group, {flag.why, {}});
    group->second.push_back(fmt::format("--{}", flag.name));
  }
  std::vector<std::string> told;
  for (const auto& [why, names] : groups)
    told.push_back(fmt::format("{} ({})", fmt::join(names, ", "), why));
  return told.empty() ? "" : fmt::format("not needed here: {}", fmt::join(told, "; "));
}

}  // namespace gradring::tools
