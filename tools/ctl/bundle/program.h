#pragma once

#include <chrono>
#include <string>
#include <tl/expected.hpp>
#include <vector>

namespace gradring::tools {

// Runs a program that is found in PATH, without a shell, and returns what it wrote to its standard
// output; of more than 32 MiB the beginning. Errors are sentences: it is not there, it failed and
// what it said last, it took longer than `patience` and was killed.
tl::expected<std::string, std::string> output_of(const std::vector<std::string>& command,
                                                 std::chrono::seconds patience);

}  // namespace gradring::tools
