#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "transport/cuda/gpu.h"

namespace gradring::transport::cuda {

// What was begun on the stream of one GPU and has not been told to have ended, in that order. One
// thread; the GPU has started.
class Queue {
 public:
  using Host = std::span<const std::byte>;

  explicit Queue(std::shared_ptr<const Gpu> gpu) : gpu_(std::move(gpu)) {}
  ~Queue();
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  const Gpu& gpu() const { return *gpu_; }
  bool empty() const { return work_.empty(); }

  // ---- in its context ----
  // An event to be recorded behind what is about to begin.
  Driver::Result take_event(Driver::Event* event);
  void give_back(Driver::Event event) { spare_.push_back(event); }
  // What is put on the stream from now on comes behind all that `other` has begun in this memory.
  Driver::Result follow(const Queue& other, Host host) const;
  void push(uint64_t ticket, Driver::Event event, Host host) {
    work_.push_back({ticket, event, host});
  }
  // kNotReady: the oldest works still. `all`: or whatever comes behind it does.
  Driver::Result ask(bool all) const;
  // The oldest's.
  uint64_t pop();

 private:
  struct Work {
    uint64_t ticket;
    Driver::Event event;
    Host host;
  };

  const std::shared_ptr<const Gpu> gpu_;
  std::deque<Work> work_;
  std::vector<Driver::Event> spare_;
};

}  // namespace gradring::transport::cuda
