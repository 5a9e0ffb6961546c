// gradring-digits-check: are two runs of the example the same run?
#include <fmt/format.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "client/examples/digits/compare.h"

namespace {

constexpr char kUsage[] =
    "usage: gradring-digits-check losses A.csv B.csv TOLERANCE\n"
    "       gradring-digits-check same FILE FILE...\n"
    "\n"
    "losses  the loss curves of two runs agree: at every step |a - b| / max(|a|, |b|, 0.01) is at\n"
    "        most TOLERANCE\n"
    "same    the files are equal to the last bit\n"
    "\n"
    "exit code: 0 yes, 1 no, 2 usage or an unreadable file\n";

int fail(const std::string& error) {
  fmt::print(stderr, "gradring-digits-check: {}\n", error);
  return 2;
}

int losses(const std::vector<std::string>& arguments) {
  char* end = nullptr;
  const double tolerance = std::strtod(arguments[2].c_str(), &end);
  if (end == arguments[2].c_str() || *end != '\0' || !(tolerance >= 0)) {
    return fail(fmt::format("the tolerance \"{}\" is not a number >= 0", arguments[2]));
  }
  const auto a = digits::read_losses(arguments[0]);
  if (!a) return fail(a.error());
  const auto b = digits::read_losses(arguments[1]);
  if (!b) return fail(b.error());
  const auto difference = digits::compare_losses(*a, *b);
  if (!difference) return fail(difference.error());
  const bool good = difference->largest <= tolerance;
  fmt::print(
      "loss curves {} over {} steps: largest relative difference {:.2e} (step {}), tolerance "
      "{:.0e}\n",
      good ? "agree" : "DIFFER", a->size(), difference->largest, difference->step, tolerance);
  return good ? 0 : 1;
}

int same(const std::vector<std::string>& files) {
  const auto unequal = digits::first_unequal(files);
  if (!unequal) return fail(unequal.error());
  if (unequal->empty())
    fmt::print("{} files are identical bit for bit\n", files.size());
  else
    fmt::print("{} DIFFERS from {}\n", *unequal, files[0]);
  return unequal->empty() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const std::string verb = arguments.empty() ? "" : arguments[0];
  const std::vector<std::string> rest(arguments.begin() + !arguments.empty(), arguments.end());
  if (verb == "losses" && rest.size() == 3) return losses(rest);
  if (verb == "same" && rest.size() >= 2) return same(rest);
  const bool asked = verb == "--help" || verb == "-h";
  fmt::print(asked ? stdout : stderr, "{}", kUsage);
  return asked ? 0 : 2;
}
