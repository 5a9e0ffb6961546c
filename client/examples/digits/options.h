#pragma once

#include <optional>
#include <string>
#include <tl/expected.hpp>

#include "client/examples/digits/train.h"

namespace digits {

struct Options {
  Recipe recipe;
  bool single = false;
  size_t width = 1;         // the hidden layers are so many times as wide
  std::string policy;       // of the job; empty: as the environment says
  std::string data;         // where the images are
  std::string loss_out;     // empty: not written
  std::string weights_out;  // empty: not written
};

// Reads the command line. Nothing is returned when --help was asked for and printed; the error is a
// sentence.
tl::expected<std::optional<Options>, std::string> parse_options(int argc, const char* const* argv);

// `pattern` with every "%r" replaced by the rank. A name without one belongs to rank 0 alone:
// nothing is returned for the others.
std::optional<std::string> file_of_rank(const std::string& pattern, int rank);

}  // namespace digits
