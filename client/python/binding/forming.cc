#include "client/python/binding/forming.h"

#include <gradring/gradring.h>
#include <nanobind/nanobind.h>

#include <cmath>
#include <cstdint>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace gradring::python {
namespace {

struct Told {
  int32_t rank;
  double seconds;
  std::string words;
};

std::mutex untold_mutex;
std::vector<Told> untold;

void note(void*, int32_t rank, int64_t waited_ms, const char* message) {
  const std::lock_guard lock(untold_mutex);
  untold.push_back({rank, static_cast<double>(waited_ms) / 1000, message});
}

std::vector<Told> take() {
  const std::lock_guard lock(untold_mutex);
  return std::exchange(untold, {});
}

}  // namespace

void watch_forming(double seconds) {
  static_cast<void>(
      gradring_watch_forming(static_cast<int64_t>(std::ceil(1000 * seconds)), &note, nullptr));
}

void tell_of_forming() {
  for (const Told& one : take()) {
    try {
      nanobind::module_::import_("gradring.stalls")
          .attr("tell")(one.rank, one.seconds, nanobind::str(one.words.c_str()));
    } catch (nanobind::python_error& error) {
      if (!error.matches(PyExc_Exception)) throw;              // Ctrl-C
      error.discard_as_unraisable("a warning of gradring's");  // no job fails for want of it
    }
  }
}

}  // namespace gradring::python
