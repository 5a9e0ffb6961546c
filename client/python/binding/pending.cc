#include "client/python/binding/pending.h"

#include <chrono>

namespace gradring::python {
namespace {

// This rank has left, and the other ranks may go on with the op.
bool goes_on_without_us(const gradring_result& result, const gradring_comm* comm) {
  return result.cause == GRADRING_CAUSE_TRAINER_LEFT && result.blamed_rank == gradring_rank(comm);
}

}  // namespace

void Pending::Parts::keep_blocks() const {
  for (const auto& block : blocks) block->kept = true;
}

bool Pending::wait(int64_t timeout_ms) {
  std::unique_lock lock(mutex_, std::defer_lock);
  if (timeout_ms < 0) {
    lock.lock();
  } else if (!lock.try_lock_for(std::chrono::milliseconds(timeout_ms))) {
    return false;  // another thread waits, and its end will be ours
  }
  return wait_once(timeout_ms);
}

bool Pending::wait_once(int64_t timeout_ms) {
  if (error_) throw Error(*error_);
  if (result_) return true;
  gradring_result result{};
  result.struct_size = sizeof(result);
  const gradring_code code = gradring_wait(parts_.comm.get(), parts_.request, timeout_ms, &result);
  if (code == GRADRING_ERR_DEADLINE) return false;
  if (code != GRADRING_OK) {
    error_ = Error(code, gradring_last_error(), result);
    if (goes_on_without_us(result, parts_.comm.get())) parts_.keep_blocks();
  } else {
    result_ = result;
    const CopyOut& out = parts_.copy_out;
    if (out.bytes > 0) parts_.arena->copy(out.to, out.from, out.bytes);
  }
  parts_.blocks.clear();
  if (error_) throw Error(*error_);
  return true;
}

// Not under the mutex, which somebody may hold while waiting for the end. Who takes the request by
// that in this very moment will have let go of it soon.
bool Pending::wait_on_stream(uintptr_t stream, int64_t timeout_ms) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): Python has numbers
  void* const waits = reinterpret_cast<void*>(stream);
  const gradring_code code =
      gradring_wait_on_stream(parts_.comm.get(), parts_.request, waits, timeout_ms);
  if (code == GRADRING_ERR_DEADLINE) return false;
  if (code == GRADRING_ERR_NOT_FOUND) return wait(timeout_ms);
  check(code);
  return true;
}

std::optional<gradring_result> Pending::result() const {
  const std::lock_guard lock(mutex_);
  return result_;
}

// Not under the mutex, as above.
std::optional<gradring_progress> Pending::progress() const {
  gradring_progress known{};
  known.struct_size = sizeof(known);
  const gradring_code code = gradring_get_progress(parts_.comm.get(), parts_.request, &known);
  if (code == GRADRING_ERR_NOT_FOUND) return std::nullopt;
  check(code);
  return known;
}

std::optional<Pending::Parts> Pending::leave() {
  const std::lock_guard lock(mutex_);
  if (result_ || error_ || parts_.request == 0) return std::nullopt;
  parts_.copy_out = {};
  return std::exchange(parts_, {});
}

void Leftovers::add(Pending::Parts parts) {
  const std::lock_guard lock(mutex_);
  parts_.push_back(std::move(parts));
}

void Leftovers::sweep() {
  const std::lock_guard lock(mutex_);
  std::erase_if(parts_, [](const Pending::Parts& one) {
    gradring_result result{};
    result.struct_size = sizeof(result);
    const gradring_code code = gradring_wait(one.comm.get(), one.request, 0, &result);
    if (code == GRADRING_ERR_DEADLINE) return false;
    if (goes_on_without_us(result, one.comm.get())) one.keep_blocks();
    return true;
  });
}

// What is under way still is so when its communicator closes.
Leftovers::~Leftovers() {
  sweep();
  for (const Pending::Parts& one : parts_) one.keep_blocks();
}

}  // namespace gradring::python
