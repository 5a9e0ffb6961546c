#pragma once

#include <string>
#include <tl/expected.hpp>

#include "proto/status.h"
#include "transport/machine/answers.h"

namespace gradring::machine {

// A machine that was written down: a folder with hwloc's XML and, in YAML, what the drivers said.
// It is shown, and gradring's choices for it are, on any other machine.
inline constexpr const char* kTreeFile = "hwloc.xml";
inline constexpr const char* kAnswersFile = "machine.yaml";

// Pure. Errors are one line that names the key, and the line where it stands; what a newer version
// has added is passed over. Text comes from anywhere: nothing of it is believed, and its size is
// bounded.
tl::expected<Answers, Status> parse_answers(const std::string& yaml);
std::string yaml_of(const Answers& answers);

// Into a folder, which is made; one that holds a recording is written over.
Status write_recording(const std::string& folder, const std::string& xml, const Answers& answers);
// The answers; the tree is read_tree()'s.
tl::expected<Answers, Status> read_recorded_answers(const std::string& folder);

}  // namespace gradring::machine
