#include "client/examples/digits/dataset.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <fstream>

namespace digits {
namespace {

constexpr int kBrightest = 16;
constexpr size_t kTestEvery = 5;

// The numbers of one line; false if there are not exactly `values.size()` of them.
bool parse_line(const std::string& line, std::span<int> values) {
  const char* at = line.data();
  const char* end = at + line.size();
  if (end != at && end[-1] == '\r') --end;
  for (size_t i = 0; i < values.size(); ++i) {
    if (i > 0) {
      if (at == end || *at != ',') return false;
      ++at;
    }
    const auto [next, error] = std::from_chars(at, end, values[i]);
    if (error != std::errc()) return false;
    at = next;
  }
  return at == end;
}

}  // namespace

void Dataset::add(std::span<const float> image, uint8_t label) {
  pixels_.insert(pixels_.end(), image.begin(), image.end());
  labels_.push_back(label);
}

tl::expected<Dataset, std::string> load(const std::string& path) {
  std::ifstream file(path);
  if (!file) {
    return tl::unexpected(
        fmt::format("cannot read the data set {}: name it with --data FILE", path));
  }
  Dataset data;
  std::array<int, kPixels + 1> values;
  std::array<float, kPixels> image;
  std::string line;
  for (size_t number = 1; std::getline(file, line); ++number) {
    bool good = parse_line(line, values) && values[kPixels] >= 0 &&
                values[kPixels] < static_cast<int>(kClasses);
    for (size_t i = 0; good && i < kPixels; ++i) {
      good = values[i] >= 0 && values[i] <= kBrightest;
      image[i] = static_cast<float>(values[i]) / kBrightest;
    }
    if (!good) {
      return tl::unexpected(fmt::format(
          "{}:{}: expected 64 grey values 0..16 and a digit, separated by commas", path, number));
    }
    data.add(image, static_cast<uint8_t>(values[kPixels]));
  }
  if (data.size() < kTestEvery) {
    return tl::unexpected(
        fmt::format("{}: only {} images, too few to train on", path, data.size()));
  }
  return data;
}

Split split(const Dataset& all) {
  Split parts;
  for (size_t i = 0; i < all.size(); ++i) {
    (i % kTestEvery == 0 ? parts.test : parts.train).add(all.image(i), all.label(i));
  }
  return parts;
}

}  // namespace digits
