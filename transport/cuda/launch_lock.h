#pragma once

#include <atomic>
#include <mutex>

namespace gradring::transport::cuda {

// Held while NCCL launches kernels, and while memory is opened, pinned, allocated or given back.
// The driver may let neither of the latter go on before a GPU has come to rest, nor anybody launch
// there meanwhile; and NCCL's kernels wait for one another. So there are all of them when it does
// that, or none. Nobody has need of it where there is no NCCL: then what the driver does on one
// GPU, perhaps for ever, keeps it from nothing on others. What takes it for long is on threads of
// its own, and who begins sums does not wait for that (Engine::is_free), so a thread that has it
// may take it again.
using LaunchLock = std::unique_lock<std::recursive_mutex>;
inline std::recursive_mutex& launches() {
  static std::recursive_mutex mutex;
  return mutex;
}
inline std::atomic<bool>& launches_jointly() {
  static std::atomic<bool> jointly = false;
  return jointly;
}
inline LaunchLock lock_launches() {
  return launches_jointly() ? LaunchLock(launches()) : LaunchLock();
}
inline LaunchLock try_lock_launches() { return {launches(), std::try_to_lock}; }

}  // namespace gradring::transport::cuda
