#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace gradring::daemon {

// Pieces of one length in which bundles lie while they are put together, are with the transport, or
// come in. Made when they are needed, and kept, so that in the long run nothing is allocated.
//
// To the transport a piece is a number that no loan of the ledger ever has.
class BundleMemory {
 public:
  explicit BundleMemory(size_t bytes_each) : bytes_each_(bytes_each) {}

  static bool is_number(uint64_t number) { return (number & kOurs) != 0; }

  uint64_t take() {
    ++taken_;
    if (free_.empty()) {
      pieces_.push_back(std::make_unique_for_overwrite<std::byte[]>(bytes_each_));
      return kOurs | (pieces_.size() - 1);
    }
    const uint64_t number = free_.back();
    free_.pop_back();
    return number;
  }
  void give_back(uint64_t number) {
    --taken_;
    free_.push_back(number);
  }
  std::span<std::byte> at(uint64_t number) { return {pieces_[number & ~kOurs].get(), bytes_each_}; }
  size_t taken() const { return taken_; }

 private:
  static constexpr uint64_t kOurs = uint64_t{1} << 63;

  const size_t bytes_each_;
  std::vector<std::unique_ptr<std::byte[]>> pieces_;
  std::vector<uint64_t> free_;
  size_t taken_ = 0;
};

}  // namespace gradring::daemon
