#include <fmt/format.h>
#include <unistd.h>

#include <boost/program_options.hpp>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "proto/version.h"
#include "tests/sim/world.h"

namespace po = boost::program_options;

namespace {

struct Totals {
  uint64_t runs = 0, events = 0, completions = 0, slices = 0, faults = 0, failed = 0,
           mismatches = 0, views = 0, shrunk = 0, grown = 0, lanes_lost = 0, damaged = 0,
           condemned = 0, stood_in = 0, pieces = 0, slow_reports = 0, in_groups = 0, expired = 0,
           expired_names_rank = 0, gone_back = 0;
};

// What is asked for.
struct Orders {
  uint64_t first = 0;
  uint64_t last = 0;
  uint32_t nodes = 0;
  gradring::core::Bug bug = gradring::core::Bug::kNone;
  bool rough = false;
  bool crowded = false;
  bool trace = false;

  gradring::sim::Scenario draw(uint64_t seed) const {
    if (crowded) return gradring::sim::draw_crowded(seed);
    return rough ? gradring::sim::draw_rough(seed) : gradring::sim::draw_scenario(seed, nodes);
  }
};

// "A..B", both included, or one number.
bool parse_range(const std::string& text, uint64_t* first, uint64_t* last) {
  const size_t dots = text.find("..");
  const auto number = [](std::string_view part, uint64_t* out) {
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), *out);
    return error == std::errc() && end == part.data() + part.size();
  };
  const std::string_view view(text);
  if (dots == std::string::npos) return number(view, first) && (*last = *first, true);
  return number(view.substr(0, dots), first) && number(view.substr(dots + 2), last) &&
         *first <= *last;
}

// Seeds are run by several threads, each a world of its own.
class Runs {
 public:
  explicit Runs(const Orders& orders) : orders_(orders), next_(orders.first) {}

  // Until the last seed, or until enough has been found.
  void work() {
    while (const auto seed = take()) {
      gradring::sim::Scenario scenario = orders_.draw(*seed);
      scenario.bug = orders_.bug;
      gradring::sim::World world(scenario);
      if (orders_.trace) world.trace_to(stdout);
      const std::string violation = world.run();
      add(*seed, world.stats(), violation);
    }
  }

  const Totals& totals() const { return totals_; }
  uint64_t violations() const { return violations_; }
  double seconds() const { return std::chrono::duration<double>(Clock::now() - began_).count(); }
  bool on_terminal() const { return terminal_; }

 private:
  using Clock = std::chrono::steady_clock;

  std::optional<uint64_t> take() {
    const std::lock_guard lock(mutex_);
    if (over_) return std::nullopt;
    over_ = next_ == orders_.last;  // which may be the largest number that there is
    return next_++;
  }

  void add(uint64_t seed, const gradring::sim::Stats& stats, const std::string& violation) {
    const std::lock_guard lock(mutex_);
    ++totals_.runs;
    totals_.events += stats.events;
    totals_.completions += stats.completions;
    totals_.slices += stats.slices;
    totals_.faults += stats.faults;
    totals_.failed += stats.jobs_failed > 0 ? 1 : 0;
    totals_.mismatches += stats.mismatches;
    totals_.views += stats.views;
    totals_.shrunk += stats.shrunk;
    totals_.grown += stats.grown;
    totals_.lanes_lost += stats.lanes_lost;
    totals_.damaged += stats.damaged;
    totals_.condemned += stats.condemned;
    totals_.stood_in += stats.stood_in;
    totals_.pieces += stats.pieces;
    totals_.slow_reports += stats.slow_reports;
    totals_.in_groups += stats.in_groups;
    totals_.expired += stats.expired;
    totals_.expired_names_rank += stats.expired_names_rank;
    totals_.gone_back += stats.gone_back;
    if (!violation.empty()) {
      const std::string how = orders_.crowded      ? " --crowded"
                              : orders_.rough      ? " --rough"
                              : orders_.nodes != 0 ? fmt::format(" --nodes {}", orders_.nodes)
                                                   : "";
      fmt::print("\nVIOLATION seed {}: {}\nreplay it with: gradring-sim --replay {}{}\n", seed,
                 violation, seed, how);
      ++violations_;
      over_ = over_ || violations_ == 10 || orders_.bug != gradring::core::Bug::kNone;
    }
    show_progress();
  }

  void show_progress() {
    const auto now = Clock::now();
    if (now - said_ <= std::chrono::milliseconds(terminal_ ? 200 : 4000)) return;
    said_ = now;
    fmt::print("{}seed {} of {}..{}  {} ops ended  {} faults{}", terminal_ ? "\r" : "", next_ - 1,
               orders_.first, orders_.last, totals_.completions, totals_.faults,
               terminal_ ? "   " : "\n");
    std::fflush(stdout);
  }

  const Orders orders_;
  const bool terminal_ = isatty(STDOUT_FILENO) != 0;
  const Clock::time_point began_ = Clock::now();
  std::mutex mutex_;
  uint64_t next_;
  bool over_ = false;
  Totals totals_;
  uint64_t violations_ = 0;
  Clock::time_point said_ = began_;
};

}  // namespace

int main(int argc, char** argv) {
  po::options_description options(
      "gradring-sim: gradring's core under virtual time and a faulty network");
  std::string seeds;
  uint32_t nodes = 0;
  uint64_t replay = 0;
  uint32_t bug = 0;
  uint32_t jobs = 1;
  options.add_options()("help", "this text")("version", "print the version")(
      "seeds", po::value(&seeds)->default_value("1..100"), "run these seeds, A..B or one number")(
      "nodes", po::value(&nodes)->default_value(0),
      "number of nodes, 1 to 64; 0: drawn from the seed")("replay", po::value(&replay),
                                                          "run one seed again, exactly as it ran")(
      "rough",
      "more faults, for as long as there is work; trainers that start over and leave early")(
      "crowded", "as --rough, with several jobs on each node and daemons that restart more often")(
      "trace", "with --replay: a line for everything that happens")(
      "jobs", po::value(&jobs)->default_value(1), "run so many seeds at a time, 1 to 256")(
      "bug", po::value(&bug)->default_value(0),
      "make this mistake on purpose (a number of daemon/core/planted.h), and stop where it is "
      "found");
  po::variables_map values;
  Orders orders;
  try {
    po::store(po::command_line_parser(argc, argv).options(options).positional({}).run(), values);
    po::notify(values);
  } catch (const po::error& error) {
    std::cerr << "gradring-sim: " << error.what() << "; see --help\n";
    return 2;
  }
  if (values.count("help") > 0) {
    std::cout << options
              << "Exit: 0 all invariants held, 1 a violation (its seed is printed), 2 usage.\n";
    return 0;
  }
  if (values.count("version") > 0) {
    std::cout << "gradring-sim " << gradring::kProductVersion << "\n";
    return 0;
  }
  if (values.count("replay") > 0) {
    orders.first = orders.last = replay;
  } else if (!parse_range(seeds, &orders.first, &orders.last)) {
    std::cerr << "gradring-sim: --seeds wants A..B with A <= B, got '" << seeds << "'\n";
    return 2;
  }
  if (values.count("trace") > 0 && values.count("replay") == 0) {
    std::cerr << "gradring-sim: --trace goes with --replay\n";
    return 2;
  }
  if (nodes != 0 && values.count("rough") + values.count("crowded") > 0) {
    std::cerr
        << "gradring-sim: --rough and --crowded draw the number of nodes; leave out --nodes\n";
    return 2;
  }
  if (nodes > 64) {
    std::cerr << "gradring-sim: --nodes wants 0 to 64\n";
    return 2;
  }

  if (bug > gradring::core::kBugLast) {
    std::cerr << "gradring-sim: --bug wants 0 to " << int{gradring::core::kBugLast} << "\n";
    return 2;
  }
#ifndef GRADRING_PLANTED_BUGS
  if (bug != 0) {
    std::cerr << "gradring-sim: a build with sanitizers makes no mistakes on purpose; take the "
                 "release's\n";
    return 2;
  }
#endif

  if (jobs < 1 || jobs > 256) {
    std::cerr << "gradring-sim: --jobs wants 1 to 256\n";
    return 2;
  }

  orders.nodes = nodes;
  orders.bug = static_cast<gradring::core::Bug>(bug);
  orders.rough = values.count("rough") > 0;
  orders.crowded = values.count("crowded") > 0;
  orders.trace = values.count("trace") > 0;
  Runs runs(orders);
  std::vector<std::thread> others;
  for (uint32_t i = 1; i < jobs; ++i) others.emplace_back([&runs] { runs.work(); });
  runs.work();
  for (std::thread& other : others) other.join();
  const Totals& totals = runs.totals();
  fmt::print(
      "{}gradring-sim: {} seeds, {} events, {} slices, {} submissions ended, {} faults, {} views "
      "entered, {} ops shrunk, {} runs with a failed job, {} mismatches, {} ranks saw their job "
      "grow, {} lanes lost, {} slices damaged, {} ops given up for that, {} stood in for by "
      "ranks without more data, {} pieces of inputs came late, {} reports did, {} ranks came into "
      "groups, {} ops past their deadlines, {} of them for a rank, {} times a rank went back, "
      "{:.1f} s: {}\n",
      runs.on_terminal() ? "\n" : "", totals.runs, totals.events, totals.slices, totals.completions,
      totals.faults, totals.views, totals.shrunk, totals.failed, totals.mismatches, totals.grown,
      totals.lanes_lost, totals.damaged, totals.condemned, totals.stood_in, totals.pieces,
      totals.slow_reports, totals.in_groups, totals.expired, totals.expired_names_rank,
      totals.gone_back, runs.seconds(),
      runs.violations() == 0 ? "all invariants held"
                             : fmt::format("{} VIOLATIONS", runs.violations()));
  return runs.violations() == 0 ? 0 : 1;
}
