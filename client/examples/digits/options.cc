#include "client/examples/digits/options.h"

#include <fmt/format.h>

#include <boost/program_options.hpp>
#include <filesystem>
#include <iostream>

namespace digits {
namespace {

namespace po = boost::program_options;

// The data set lies in share/ beside the bin/ of the program, in the build folder and when
// installed.
std::string default_data() {
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  return program.parent_path().parent_path() / "share/gradring/examples/digits.csv";
}

constexpr char kIntroduction[] =
    "usage: gradring-digits [OPTION]...\n"
    "\n"
    "Trains a small neural network to read handwritten digits, together with the other ranks of a "
    "job.\n"
    "Rank, size and job come from the environment, as gradring-run, torchrun, mpirun and srun set "
    "it:\n"
    "\n"
    "  gradring-run -np 4 gradring-digits\n"
    "\n"
    "With --single one process does the same work alone, without a daemon.\n";

constexpr char kEnding[] =
    "\nA FILE to write may contain %r for the rank; without it only rank 0 writes.\n"
    "Exit code: 0 trained, 1 failed, 2 usage.\n";

}  // namespace

tl::expected<std::optional<Options>, std::string> parse_options(int argc, const char* const* argv) {
  Options options;
  int64_t epochs = 30, batch = 64, delay_ms = 0, width = 1;
  po::options_description known("Options");
  // clang-format off
  known.add_options()
    ("single", po::bool_switch(&options.single), "train alone, in this process")
    ("epochs", po::value(&epochs)->default_value(epochs), "passes over the training images")
    ("batch", po::value(&batch)->default_value(batch), "images a step, all ranks together")
    ("seed", po::value(&options.recipe.seed)->default_value(1), "of the initial weights and the order of the images")
    ("rate", po::value(&options.recipe.rate)->default_value(options.recipe.rate, "0.05"), "learning rate")
    ("width", po::value(&width)->default_value(width), "hidden layers of 128 and 64 times so many units, up to 32")
    ("policy", po::value(&options.policy), "\"fail\", or \"elastic min=A max=B\": go on with the ranks that are left, and take in new ones; default: GRADRING_POLICY, else fail")
    ("data", po::value(&options.data)->default_value(default_data()), "the images")
    ("loss-out", po::value(&options.loss_out)->value_name("FILE"), "write the loss of every step as CSV")
    ("weights-out", po::value(&options.weights_out)->value_name("FILE"), "write the trained weights as raw float32")
    ("step-delay-ms", po::value(&delay_ms)->default_value(0), "sleep so long in every step")
    ("help,h", "show this");
  // clang-format on
  po::variables_map values;
  try {
    po::store(po::command_line_parser(argc, argv).options(known).positional({}).run(), values);
    po::notify(values);
  } catch (const po::error& error) {
    return tl::unexpected(fmt::format("{}; see --help", error.what()));
  }
  if (values.count("help") > 0) {
    std::cout << kIntroduction << "\n" << known << kEnding;
    return std::optional<Options>();
  }
  if (epochs < 1 || batch < 1 || delay_ms < 0) {
    return tl::unexpected(std::string("--epochs and --batch start at 1, --step-delay-ms at 0"));
  }
  if (width < 1 || width > 32) return tl::unexpected(std::string("--width takes 1 to 32"));
  options.width = static_cast<size_t>(width);
  options.recipe.epochs = static_cast<size_t>(epochs);
  options.recipe.batch = static_cast<size_t>(batch);
  options.recipe.step_delay = std::chrono::milliseconds(delay_ms);
  return options;
}

std::optional<std::string> file_of_rank(const std::string& pattern, int rank) {
  std::string name = pattern;
  bool any = false;
  for (size_t at = 0; (at = name.find("%r", at)) != std::string::npos; any = true) {
    name.replace(at, 2, std::to_string(rank));
  }
  if (pattern.empty() || (!any && rank != 0)) return std::nullopt;
  return name;
}

}  // namespace digits
