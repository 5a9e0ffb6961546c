#pragma once

#include <optional>
#include <span>

#include "transport/gpus.h"
#include "transport/reducer.h"

namespace gradring::transport {

// What GPUs are to say of a sum, told from its result and from inputs that nobody has overwritten.
inline std::optional<Gpus::Nonfinite> sum_findings(Dtype dtype, const void* result,
                                                   std::span<const void* const> inputs,
                                                   size_t count) {
  const auto at = [size = size_of(dtype)](const void* data, size_t element) {
    return static_cast<const void*>(static_cast<const std::byte*>(data) + element * size);
  };
  const auto is_finite = [&](const void* data, size_t element) {
    size_t first = 0;
    return count_nonfinite(dtype, at(data, element), 1, &first) == 0;
  };
  Gpus::Nonfinite found;
  if (count_nonfinite(dtype, result, count, &found.first) == 0) return std::nullopt;
  found.inputs.resize(inputs.size());
  for (size_t i = found.first; i < count; ++i) {
    if (is_finite(result, i)) continue;
    for (size_t r = 0; r < inputs.size(); ++r) {
      if (is_finite(inputs[r], i)) continue;
      Gpus::Nonfinite::Input& input = found.inputs[r];
      if (input.many++ == 0) input = {1, i, is_nan(dtype, at(inputs[r], i))};
    }
  }
  return found;
}

}  // namespace gradring::transport
