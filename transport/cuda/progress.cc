#include "transport/cuda/progress.h"

#include <atomic>
#include <utility>

namespace gradring::transport::cuda {

Driver::Result Progress::make(const Driver& driver) {
  if (driver.write_word == nullptr) return Driver::kSuccess;
  page_ = std::make_unique<Page>();
  last_ = 0;
  auto result = driver.register_host(page_.get(), sizeof(Page), Driver::kPortableAndMapped);
  pinned_ = result == Driver::kSuccess;
  if (pinned_) result = driver.host_pointer(&word_, &page_->word, 0);
  return result;
}

void Progress::end(const Driver& driver) {
  if (std::exchange(pinned_, false)) driver.unregister_host(page_.get());
  page_.reset();
}

std::optional<uint32_t> Progress::mark(const Driver& driver, Driver::Stream stream) {
  if (!pinned_) return std::nullopt;
  ++last_;
  const bool marked = driver.write_word(stream, word_, last_, 0) == Driver::kSuccess;
  return marked ? std::optional(last_) : std::nullopt;
}

// Numbers go round.
bool Progress::has_come(uint32_t number) const {
  const uint32_t now = std::atomic_ref(page_->word).load(std::memory_order_acquire);
  return static_cast<int32_t>(now - number) >= 0;
}

}  // namespace gradring::transport::cuda
