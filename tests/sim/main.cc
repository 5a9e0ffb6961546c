#include <fmt/format.h>
#include <unistd.h>

#include <boost/program_options.hpp>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <string>

#include "tests/sim/world.h"

namespace po = boost::program_options;

namespace {

struct Totals {
  uint64_t runs = 0, events = 0, completions = 0, slices = 0, faults = 0, failed = 0,
           mismatches = 0, views = 0, shrunk = 0, grown = 0, damaged = 0, condemned = 0;
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

bool run_seed(uint64_t seed, uint32_t nodes, gradring::core::Bug bug, bool trace, Totals* totals) {
  gradring::sim::Scenario scenario = gradring::sim::draw_scenario(seed, nodes);
  scenario.bug = bug;
  gradring::sim::World world(scenario);
  if (trace) world.trace_to(stdout);
  const std::string violation = world.run();
  const gradring::sim::Stats& stats = world.stats();
  ++totals->runs;
  totals->events += stats.events;
  totals->completions += stats.completions;
  totals->slices += stats.slices;
  totals->faults += stats.faults;
  totals->failed += stats.jobs_failed > 0 ? 1 : 0;
  totals->mismatches += stats.mismatches;
  totals->views += stats.views;
  totals->shrunk += stats.shrunk;
  totals->grown += stats.grown;
  totals->damaged += stats.damaged;
  totals->condemned += stats.condemned;
  if (violation.empty()) return true;
  fmt::print("\nVIOLATION seed {}: {}\nreplay it with: gradring-sim --replay {}{}\n", seed,
             violation, seed, nodes != 0 ? fmt::format(" --nodes {}", nodes) : "");
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  po::options_description options(
      "gradring-sim: gradring's core under virtual time and a faulty network");
  std::string seeds;
  uint32_t nodes = 0;
  uint64_t replay = 0;
  uint32_t bug = 0;
  options.add_options()("help", "this text")("seeds", po::value(&seeds)->default_value("1..100"),
                                             "run these seeds, A..B or one number")(
      "nodes", po::value(&nodes)->default_value(0),
      "number of nodes, 1 to 64; 0: drawn from the seed")("replay", po::value(&replay),
                                                          "run one seed again, exactly as it ran")(
      "trace", "with --replay: a line for everything that happens")(
      "bug", po::value(&bug)->default_value(0),
      "make this mistake on purpose (a number of daemon/core/planted.h), and stop where it is "
      "found");
  po::variables_map values;
  uint64_t first = 0;
  uint64_t last = 0;
  try {
    po::store(po::parse_command_line(argc, argv, options), values);
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
  if (values.count("replay") > 0) {
    first = last = replay;
  } else if (!parse_range(seeds, &first, &last)) {
    std::cerr << "gradring-sim: --seeds wants A..B with A <= B, got '" << seeds << "'\n";
    return 2;
  }
  if (values.count("trace") > 0 && values.count("replay") == 0) {
    std::cerr << "gradring-sim: --trace goes with --replay\n";
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

  Totals totals;
  uint64_t violations = 0;
  const bool terminal = isatty(STDOUT_FILENO) != 0;
  auto said = std::chrono::steady_clock::now();
  const auto began = said;
  for (uint64_t seed = first; seed <= last; ++seed) {
    const bool good = run_seed(seed, nodes, static_cast<gradring::core::Bug>(bug),
                               values.count("trace") > 0, &totals);
    if (!good && (++violations == 10 || bug != 0)) break;
    const auto now = std::chrono::steady_clock::now();
    if (now - said > std::chrono::milliseconds(terminal ? 200 : 4000)) {
      said = now;
      fmt::print("{}seed {} of {}..{}  {} ops ended  {} faults{}", terminal ? "\r" : "", seed,
                 first, last, totals.completions, totals.faults, terminal ? "   " : "\n");
      std::fflush(stdout);
    }
  }
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  fmt::print(
      "{}gradring-sim: {} seeds, {} events, {} slices, {} submissions ended, {} faults, {} views "
      "entered, {} ops shrunk, {} runs with a failed job, {} mismatches, {} ranks saw their job "
      "grow, {} slices damaged, {} ops given up for that, {:.1f} s: {}\n",
      terminal ? "\n" : "", totals.runs, totals.events, totals.slices, totals.completions,
      totals.faults, totals.views, totals.shrunk, totals.failed, totals.mismatches, totals.grown,
      totals.damaged, totals.condemned, seconds,
      violations == 0 ? "all invariants held" : fmt::format("{} VIOLATIONS", violations));
  return violations == 0 ? 0 : 1;
}
