#pragma once

#include <cstddef>
#include <string>
#include <tl/expected.hpp>
#include <vector>

namespace digits {

// The file that --loss-out writes: a heading, then "step,loss", steps from 0 without a gap.
tl::expected<std::vector<double>, std::string> read_losses(const std::string& path);

struct Difference {
  double largest = 0;  // |a - b| / max(|a|, |b|, kSmallLoss) at its worst step
  size_t step = 0;
};
// Below this a loss counts as noise: its relative error says nothing about the run.
inline constexpr double kSmallLoss = 1e-2;
// Refuses curves of unequal length and losses that are not finite.
tl::expected<Difference, std::string> compare_losses(const std::vector<double>& a,
                                                     const std::vector<double>& b);

// The name of the first file that differs in any byte from files[0]; empty if none does. An error
// for a file that cannot be read or is empty.
tl::expected<std::string, std::string> first_unequal(const std::vector<std::string>& files);

}  // namespace digits
