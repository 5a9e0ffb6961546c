// gradring-perf: how fast are the collectives, and are they right?
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <optional>
#include <stdexcept>

#include "tools/common/output.h"
#include "tools/perf/buffers.h"
#include "tools/perf/measure.h"
#include "tools/perf/options.h"
#include "tools/perf/show.h"
#include "tools/run/launch.h"
#include "tools/run/supervisor.h"

namespace {

using namespace gradring;
using namespace gradring::tools;

constexpr int kFailed = 1, kUsage = 2;

int complain(const std::string& message, int code) {
  put_err(fmt::format("gradring-perf: {}\n", message));
  return code;
}

// Starts --ranks of this program, with a job and a token that nobody else has.
int launch(const PerfOptions& options, int argc, char** argv) {
  std::error_code error;
  Launch ranks;
  ranks.share = {"", 0, options.ranks};
  ranks.size = options.ranks;
  ranks.token = random_token();
  ranks.job = fmt::format("perf-{}", random_token().substr(0, 8));
  ranks.runtime_dir = options.runtime_dir;
  ranks.command = {std::filesystem::read_symlink("/proc/self/exe", error)};
  ranks.command.insert(ranks.command.end(), argv + 1, argv + argc);
  Rules rules;
  rules.program = "gradring-perf";
  return Supervisor(processes_of(ranks), rules).run();
}

// Before anything is measured: nobody waits for an hour to hear that there is no such folder.
class JsonFile {
 public:
  explicit JsonFile(const std::string& path) : path_(path) {
    check(std::ofstream(path, std::ios::app));  // what is in it stays until there is something new
  }
  void write(const nlohmann::ordered_json& document) {
    std::ofstream file(path_, std::ios::trunc);
    file << document.dump(2) << "\n";
    file.close();
    check(file);
  }

 private:
  void check(const std::ofstream& file) const {
    if (!file) throw std::runtime_error(fmt::format("cannot write {}", path_));
  }

  const std::string path_;
};

int complain_of(const gradring_options& place, const std::exception& error) {
  const std::string who = place.rank < 0 ? "" : fmt::format("rank {}: ", place.rank);
  return complain(who + error.what(), kFailed);
}

// As what float32 travels, where there is some.
std::string wire_of(const PerfOptions& options, const gradring_options& place) {
  const bool told = place.wire != nullptr && *place.wire != '\0';
  return told && any_float32(options.cases) ? place.wire : "native";
}

// The part of one rank. Rank 0 speaks for all.
int measure(const PerfOptions& options, const gradring_options& place, Communicator& job,
            std::optional<JsonFile>& json) {
  const int ranks = job.size();
  const bool speaks = job.rank() == 0;
  const auto tell = [speaks](const std::string& text) {
    if (speaks && !put_out(text)) throw std::runtime_error("cannot write the table");
  };
  uint64_t largest = 0;
  const std::vector<Case> cases = rounded(options.cases, ranks);
  for (const Case& one : cases) {
    const uint64_t elements = buffers_of(one, job.rank(), ranks).elements;
    largest = std::max(largest, elements * size_of(one.dtype));
    if (one.root >= static_cast<uint32_t>(ranks)) {
      return complain(fmt::format("--root {}: there are only {} ranks", one.root, ranks), kUsage);
    }
  }
  if (speaks && !options.unused.empty()) complain(options.unused, 0);
  Meter meter(job, largest, options.together, options.memory);
  const Manner manner{options.memory.kind, meter.memory(), options.together,
                      wire_of(options, place)};
  tell(perf_heading(options.collective, ranks, job.local_size(),
                    place.job != nullptr ? place.job : "", manner));
  std::vector<Measurement> results;
  uint64_t wrong = 0;
  for (const Case& one : cases) {
    results.push_back(meter.measure(one, {options.iters, options.warmup, options.check}));
    wrong += results.back().wrong.value_or(0);
    tell(perf_row(results.back(), ranks));
  }
  tell(perf_ending(results, ranks));
  if (json) {
    json->write(perf_document(options.collective, ranks, results, manner));
  }
  job.barrier();  // nobody leaves while another still measures
  return wrong == 0 || !speaks ? 0 : kFailed;
}

int measure(const PerfOptions& options, const gradring_options& place) {
  std::optional<JsonFile> json;
  if (place.rank == 0 && !options.json.empty()) json.emplace(options.json);
  Communicator job(place);
  try {
    return measure(options, place, job, json);
  } catch (const std::exception& error) {
    // Before it leaves the job: the others end with that, and whoever started them ends this one.
    return complain_of(place, error);
  }
}

}  // namespace

int main(int argc, char** argv) {
  fill_standard_descriptors();
  const auto options = parse_perf_options(argc, argv);
  if (!options) return complain(options.error(), kUsage);
  if (!*options) return std::cout.flush() ? 0 : complain("cannot write the answer", kFailed);
  const PerfOptions& wanted = **options;

  gradring_options place;
  gradring_options_init(&place);
  if (!wanted.runtime_dir.empty()) place.runtime_dir = wanted.runtime_dir.c_str();
  if (!wanted.wire.empty()) place.wire = wanted.wire.c_str();
  if (wanted.check && wire_of(wanted, place) == "int8") {
    return complain("--check compares to the bit, and int8 on the wire rounds: give --wire native",
                    kUsage);
  }
  // One that the environment has and that is no number is told by opening the job.
  const bool is_rank = place.rank >= 0 || (place.rank != -1 && wanted.ranks == 0);
  if (!is_rank && wanted.ranks == 0) {
    return complain(
        "how many ranks? Give --ranks R, or start it with gradring-run, torchrun, mpirun or "
        "srun; see --help",
        kUsage);
  }
  if (is_rank && wanted.ranks != 0 && wanted.ranks != place.size) {
    return complain(
        fmt::format("the environment says that this is rank {} of {}: leave --ranks {} out",
                    place.rank, place.size, wanted.ranks),
        kUsage);
  }
  try {
    return is_rank ? measure(wanted, place) : launch(wanted, argc, argv);
  } catch (const std::exception& error) {
    return is_rank ? complain_of(place, error) : complain(error.what(), kFailed);
  }
}
