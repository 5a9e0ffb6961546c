#include "client/examples/digits/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <iterator>

namespace digits {

tl::expected<std::vector<double>, std::string> read_losses(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!file || !std::getline(file, line) || line != "step,loss") {
    return tl::unexpected(fmt::format("{}: not a file of losses (--loss-out writes them)", path));
  }
  std::vector<double> losses;
  while (std::getline(file, line)) {
    const char* end = line.data() + line.size();
    size_t step = 0;
    double loss = 0;
    const auto [comma, bad_step] = std::from_chars(line.data(), end, step);
    bool good = bad_step == std::errc() && step == losses.size() && comma != end && *comma == ',';
    if (good) {
      const auto [rest, bad_loss] = std::from_chars(comma + 1, end, loss);
      good = bad_loss == std::errc() && rest == end;
    }
    if (!good) {
      return tl::unexpected(fmt::format("{}: expected step {} and its loss, found \"{}\"", path,
                                        losses.size(), line));
    }
    losses.push_back(loss);
  }
  return losses;
}

tl::expected<Difference, std::string> compare_losses(const std::vector<double>& a,
                                                     const std::vector<double>& b) {
  if (a.size() != b.size() || a.empty()) {
    return tl::unexpected(
        fmt::format("the curves have {} and {} steps: runs of one recipe have equally many",
                    a.size(), b.size()));
  }
  Difference worst;
  for (size_t step = 0; step < a.size(); ++step) {
    if (!std::isfinite(a[step]) || !std::isfinite(b[step])) {
      return tl::unexpected(fmt::format("the loss of step {} is not a number", step));
    }
    const double scale = std::max({std::abs(a[step]), std::abs(b[step]), kSmallLoss});
    const double difference = std::abs(a[step] - b[step]) / scale;
    if (difference > worst.largest) worst = {difference, step};
  }
  return worst;
}

tl::expected<std::string, std::string> first_unequal(const std::vector<std::string>& files) {
  std::string first;
  for (const auto& name : files) {
    std::ifstream file(name, std::ios::binary);
    std::string content{std::istreambuf_iterator<char>(file), {}};
    if (!file.is_open() || content.empty()) {
      return tl::unexpected(fmt::format("{} is missing, unreadable or empty", name));
    }
    if (first.empty())
      first = std::move(content);
    else if (content != first)
      return name;
  }
  return "";
}

}  // namespace digits
