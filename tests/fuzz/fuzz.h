#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

// From libFuzzer.
extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t size_max);

namespace gradring::fuzz {

// What must hold for any input. Unlike assert it stays in every build.
inline void require(bool good, const char* what) {
  if (good) return;
  std::fprintf(stderr, "violated: %s\n", what);
  std::abort();
}

// For LLVMFuzzerCustomMutator: now and then begins anew from a well-formed sample, since bending
// one reaches deeper than what chance puts together. One in 32 leaves time to follow up what was
// found.
inline size_t mutate(const std::vector<std::string>& samples, uint8_t* data, size_t size,
                     size_t size_max, unsigned seed) {
  const std::string& sample = samples[seed / 32 % samples.size()];
  if (seed % 32 != 0 || sample.size() > size_max) return LLVMFuzzerMutate(data, size, size_max);
  std::copy(sample.begin(), sample.end(), data);
  return LLVMFuzzerMutate(data, sample.size(), size_max);
}

}  // namespace gradring::fuzz
