#pragma once

#include <string>
#include <tl/expected.hpp>
#include <vector>

namespace gradring::tools {

struct Launch;
struct RunOptions;

// Who starts the ranks: gradring-run itself, or a launcher that takes its place.
enum class Launcher { kOwn, kSrun, kMpirun };

// By what --launcher says: ssh, srun, mpirun, or auto. The error is a sentence, also where the
// launcher cannot do what the options ask for.
tl::expected<Launcher, std::string> choose_launcher(const std::string& said,
                                                    const RunOptions& options);

struct Handover {
  std::vector<std::string> command;
  std::vector<std::string> environment;  // all of it, NAME=VALUE
};

// What starts the ranks of a launch, whose share is not asked, by srun or mpirun. They begin as
// gradring-run --rank, which takes their place from what the launcher says (rank.h).
Handover hand_over(const RunOptions& options, const Launch& launch);

// This process becomes another program, found through its own PATH. Returns only if that failed,
// with a sentence.
std::string become(const std::vector<std::string>& command,
                   const std::vector<std::string>& environment);

}  // namespace gradring::tools
