// gradring-differential: one rank of a world in which random programs of collectives are run, one
// after the other; every result is compared with a plain reference, to the bit. Rank, size and job
// come from the environment, as in any trainer.
#include <boost/program_options.hpp>
#include <exception>
#include <iostream>

#include "tests/differential/runner.h"

namespace {

namespace po = boost::program_options;

struct Orders {
  uint64_t seed = 1;
  uint64_t seeds = 1;
  int64_t patience_ms = 60'000;
  bool formed = false;
};

// Wrong values are said, and the programs go on: no other rank is disturbed by them.
int run(const Orders& orders) {
  gradring_options options;
  gradring_options_init(&options);
  options.join_timeout_ms = orders.patience_ms;
  const gradring::Communicator world(options);
  gradring::differential::RunnerOptions how;
  how.patience = std::chrono::milliseconds(orders.patience_ms);
  how.choice.formed = orders.formed;
  gradring::differential::Runner runner(world, how);
  uint64_t wrong = 0;
  for (uint64_t seed = orders.seed; seed - orders.seed < orders.seeds; ++seed) {
    try {
      const std::vector<std::string> faults = runner.run(seed);
      for (const std::string& fault : faults) std::cerr << fault << '\n';
      wrong += faults.empty() ? 0 : 1;
    } catch (const std::exception& error) {
      std::cerr << "seed " << seed << ", rank " << world.rank()
                << " of the world gave up: " << error.what() << '\n';
      return 1;
    }
  }
  world.barrier();  // nobody leaves while another is at work
  std::cout << "programs " << orders.seed << " to " << orders.seed + orders.seeds - 1 << ": ";
  if (wrong == 0) {
    std::cout << runner.ops() << " ops, all right\n";
  } else {
    std::cout << wrong << " programs went wrong\n";
  }
  return wrong == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  Orders orders;
  po::options_description known("One rank of random programs of collectives");
  // clang-format off
  known.add_options()
    ("help", "show this")
    ("seed", po::value(&orders.seed)->default_value(1), "of the first program")
    ("seeds", po::value(&orders.seeds)->default_value(1), "how many programs")
    ("formed", po::bool_switch(&orders.formed), "leave out groups and sends, so that nothing forms meanwhile")
    ("patience-ms", po::value(&orders.patience_ms)->default_value(60'000), "with one op, or with a rank that is to come");
  // clang-format on
  try {
    po::variables_map values;
    po::store(po::parse_command_line(argc, argv, known), values);
    if (values.count("help") > 0) {
      std::cout << known;
      return 0;
    }
    po::notify(values);
    return run(orders);
  } catch (const std::exception& error) {
    std::cerr << "gradring-differential: " << error.what() << '\n';
    return 2;
  }
}
