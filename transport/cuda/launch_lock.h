#pragma once

#include <mutex>

namespace gradring::transport::cuda {

// Held while NCCL launches kernels, and while memory is opened, pinned, allocated or given back.
// The driver may let neither of the latter go on before a GPU has come to rest, nor anybody launch
// there meanwhile; and NCCL's kernels wait for one another. So there are all of them when it does
// that, or none.
inline std::unique_lock<std::mutex> lock_launches() {
  static std::mutex mutex;
  return std::unique_lock(mutex);
}

}  // namespace gradring::transport::cuda
