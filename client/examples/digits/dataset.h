#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <tl/expected.hpp>
#include <vector>

namespace digits {

inline constexpr size_t kPixels = 64;   // 8 x 8
inline constexpr size_t kClasses = 10;  // the digits

// Labelled images, each kPixels grey values between 0 and 1.
class Dataset {
 public:
  size_t size() const { return labels_.size(); }
  std::span<const float> image(size_t i) const { return {&pixels_[i * kPixels], kPixels}; }
  uint8_t label(size_t i) const { return labels_[i]; }
  void add(std::span<const float> image, uint8_t label);

 private:
  std::vector<float> pixels_;
  std::vector<uint8_t> labels_;
};

// Reads lines of 64 grey values 0..16 and the digit, separated by commas; the error names file and
// line.
tl::expected<Dataset, std::string> load(const std::string& path);

struct Split {
  Dataset train;
  Dataset test;
};
// Every fifth image is kept for the test, the same ones in every run: 1437 and 360 of 1797.
Split split(const Dataset& all);

}  // namespace digits
