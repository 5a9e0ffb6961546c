#pragma once

#include <mutex>

namespace gradring::transport::cuda {

// Held while NCCL launches kernels, and while memory is opened, pinned, allocated or given back.
// The driver may let neither of the latter go on before a GPU has come to rest, nor anybody launch
// there meanwhile; and NCCL's kernels wait for one another. So there are all of them when it does
// that, or none. What takes it for long is on threads of its own, and who begins sums does not wait
// for that (Engine::is_free), so a thread that has it may take it again.
using LaunchLock = std::unique_lock<std::recursive_mutex>;
inline std::recursive_mutex& launches() {
  static std::recursive_mutex mutex;
  return mutex;
}
inline LaunchLock lock_launches() { return LaunchLock(launches()); }
inline LaunchLock try_lock_launches() { return {launches(), std::try_to_lock}; }

}  // namespace gradring::transport::cuda
