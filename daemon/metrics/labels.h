#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace gradring::daemon::metrics {

// A name from outside as a label's value: printable ASCII of a length that keeps pages short. One
// that is not UTF-8 would make Prometheus throw away all of a node's metrics.
inline std::string label_of(std::string_view name) {
  constexpr size_t kLongest = 64;
  std::string label(name.substr(0, kLongest));
  const auto unfit = [](unsigned char c) { return c < 0x20 || c > 0x7e; };
  std::replace_if(label.begin(), label.end(), unfit, '_');
  return label.empty() ? "_" : label;
}

}  // namespace gradring::daemon::metrics
