#include "tools/run/build_report.h"

#include <fmt/format.h>

#include <cstdlib>

#include "proto/version.h"

namespace gradring::tools {
namespace {

// Both are looked for and neither is imported, which for a framework takes seconds.
bool python_has(const char* framework, const char* front_end) {
  const std::string command = fmt::format(
      "python3 -c 'import sys, importlib.util as u; sys.exit(not all(map(u.find_spec, "
      "sys.argv[1:])))' {} {} >/dev/null 2>&1 </dev/null",
      framework, front_end);
  // NOLINTNEXTLINE(bugprone-command-processor): a command of ours, whole
  return std::system(command.c_str()) == 0;
}

std::string line(bool has, const char* what) {
  return fmt::format("    [{}] {}\n", has ? 'X' : ' ', what);
}

}  // namespace

std::string describe_build() {
  return fmt::format("gradring-run {}\n\nFrameworks, of the python3 in PATH:\n", kProductVersion) +
         line(python_has("torch", "gradring.torch"), "PyTorch") +
         line(python_has("tensorflow", "gradring.tensorflow"), "TensorFlow") +
         line(python_has("keras", "gradring.keras"), "Keras") +
         line(python_has("jax", "gradring.jax"), "JAX") + "\nControllers:\n" +
         line(true, "gradringd, which needs neither MPI nor Gloo") + "\nEngines that sum:\n" +
         line(true, "on CPUs") + line(GRADRING_WITH_CUDA != 0, "on GPUs");
}

}  // namespace gradring::tools
