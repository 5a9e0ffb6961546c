#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "transport/cuda/gpu.h"

namespace gradring::transport::cuda {

// What was begun on the stream of one GPU and has not been told to have ended, in that order. One
// thread; the GPU has started.
class Queue {
 public:
  // Memory of the host in which something works.
  struct Host {
    std::span<const std::byte> memory;
    bool written = false;

    // One of the two must come behind the other.
    bool collides_with(const Host& other) const;
  };

  // What a sum leaves if it is not finite; with inputs, of which it says how many are so.
  struct Trace {
    std::optional<uint32_t> number;  // none: it is not watched
    size_t inputs = 0;
  };

  explicit Queue(std::shared_ptr<Gpu> gpu);
  ~Queue();
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  const Gpu& gpu() const { return *gpu_; }
  bool empty() const { return work_.empty(); }
  // What more is put there the driver may have to keep waiting, and who puts it with it: a GPU
  // whose stream has so much has no need of more, or hangs.
  bool full() const { return calls_ >= kCallsMost; }

  // Something that was begun there, and what is to begin must come behind it.
  bool is_before(const Host& host) const;
  // kNotReady: the oldest works still. `all`: or whatever comes behind it does.
  Driver::Result ask(bool all);
  // The oldest has left something in its trace, which is yet to come here.
  bool has_found() const;
  // Enqueues that, and now it comes last.
  Driver::Result fetch();
  struct Ended {
    uint64_t ticket = 0;
    std::optional<Gpus::Nonfinite> nonfinite;  // that was fetched
  };
  // The oldest. `well`: no GPU has failed.
  Ended pop(bool well);

  // ---- in its context ----
  // An event to be recorded behind what is about to begin.
  Driver::Result take_event(Driver::Event* event);
  void give_back(Driver::Event event) { spare_.push_back(event); }
  // 0 inputs: it needs none.
  Trace take_trace(size_t inputs);
  Watch watch(const Trace& trace) const {
    return trace.number ? gpu_->traces().watch(*trace.number) : Watch();
  }
  // Its event has been recorded.
  // `calls`: of the driver, that it took.
  void push(uint64_t ticket, Driver::Event event, const Host& host, const Trace& trace,
            size_t calls) {
    push({ticket, event, {}, host, trace, calls + kCallsBehind, false});
  }

 private:
  // A driver takes some 1,000 before it waits (not in its documents); what comes when there is one
  // less than these may take another hundred.
  static constexpr size_t kCallsMost = 512;
  static constexpr size_t kCallsBehind = 2;  // an event and a mark

  struct Work {
    uint64_t ticket;
    Driver::Event event;
    std::optional<uint32_t> mark;  // behind it
    Host host;
    Trace trace;
    size_t calls;
    bool fetched;
  };
  void push(Work work);
  Work take_oldest();

  const std::shared_ptr<Gpu> gpu_;
  std::deque<Work> work_;
  size_t calls_ = 0;                             // of all of it
  std::chrono::steady_clock::time_point asked_;  // the driver
  std::vector<Driver::Event> spare_;
  std::vector<uint32_t> spare_traces_;
};

}  // namespace gradring::transport::cuda
