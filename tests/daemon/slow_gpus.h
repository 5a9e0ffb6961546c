#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/transport/sum_findings.h"
#include "transport/gpus.h"
#include "transport/reducer.h"

namespace gradring::daemon {

// GPUs of the host's memory, which do what they were given when the test lets them: whatever is
// read or written too early or too late shows.
class SlowGpus final : public transport::Gpus {
 public:
  class Memory final : public transport::OpenGpuMemory {
   public:
    explicit Memory(std::vector<float>* data) : data_(data) {}
    uint64_t bytes() const override { return data_->size() * sizeof(float); }
    size_t gpu() const override { return gpu_; }
    void lies_on(size_t gpu) { gpu_ = gpu; }
    std::byte* address() const override { return at(0); }
    std::byte* at(uint64_t offset) const {
      return reinterpret_cast<std::byte*>(data_->data()) + offset;
    }

   private:
    std::vector<float>* const data_;
    size_t gpu_ = 0;
  };

  // So many more things may be done; at first all.
  void let(size_t many) {
    const std::lock_guard lock(mutex_);
    allowed_ = many;
  }
  void let_all() { let(SIZE_MAX); }
  void fail(const std::string& why) {
    const std::lock_guard lock(mutex_);
    failure_ = why;
  }
  // Begins so many things more, and then none.
  void refuse_after(size_t many) {
    const std::lock_guard lock(mutex_);
    begins_ = many;
  }
  // What one GPU cannot sum, since it does not reach the others.
  void cannot_sum_together() {
    const std::lock_guard lock(mutex_);
    apart_ = true;
  }
  void pin_no_more() {
    const std::lock_guard lock(mutex_);
    pins_ = false;
  }
  // From now on there are so many; at first one.
  void have(size_t count) { count_ = count; }
  // As trainers may: nothing of it is left for the daemon.
  void fill_up(size_t gpu) {
    const std::lock_guard lock(mutex_);
    full_.insert(gpu);
  }
  // Whoever pins waits until that is over.
  void keep_pins(bool on) {
    {
      const std::lock_guard lock(mutex_);
      keeps_pins_ = on;
    }
    memory_comes_.notify_all();
  }
  // Whoever allocates waits until that is over.
  void keep_memory(bool on) {
    {
      const std::lock_guard lock(mutex_);
      keeps_memory_ = on;
    }
    memory_comes_.notify_all();
  }
  // As a driver does: who gives memory back waits for what is under way, until that may go on.
  void settle(bool on) { settles_ = on; }
  // That were under way at one time.
  size_t most() const {
    const std::lock_guard lock(mutex_);
    return most_;
  }
  // A driver would have waited for what is under way.
  bool freed_at_work() const { return freed_at_work_; }
  // How many inputs each sum had that was begun, and outputs each spread.
  std::vector<size_t> sums() const {
    const std::lock_guard lock(mutex_);
    return sums_;
  }
  std::vector<size_t> allreduces() const {
    const std::lock_guard lock(mutex_);
    return allreduces_;
  }
  std::vector<size_t> spreads() const {
    const std::lock_guard lock(mutex_);
    return spreads_;
  }

  std::string name() const override { return "a slow GPU"; }
  std::string way() const override { return "by tests"; }
  bool under_mps() const override { return false; }
  Status start() override { return {}; }
  tl::expected<std::shared_ptr<const void>, Status> enter() override {
    ++entered;
    return std::shared_ptr<const void>(this, [](const void*) { --entered; });
  }
  // By the calling thread.
  static inline thread_local int entered = 0;
  size_t count() const override { return count_; }
  std::array<std::byte, 16> uuid(size_t) const override { return {}; }
  bool lend_dmabufs() const override { return lends_dmabufs_; }
  void let_lend_dmabufs(bool let) { lends_dmabufs_ = let; }
  bool reaches(size_t, std::span<const transport::GpuRange>) const override {
    const std::lock_guard lock(mutex_);
    return !apart_;
  }
  tl::expected<std::shared_ptr<const transport::OpenGpuMemory>, Status> allocate(
      size_t gpu, uint64_t bytes) override {
    std::unique_lock lock(mutex_);
    memory_comes_.wait(lock, [this] { return !keeps_memory_; });
    if (full_.contains(gpu)) {
      return tl::unexpected(
          Status(Code::kUnavailable, "GPU " + std::to_string(gpu) + " has no memory left"));
    }
    auto& own = own_.emplace_back(std::make_unique<std::vector<float>>(bytes / sizeof(float)));
    const auto free = [this](const Memory* memory) {
      if (busy()) freed_at_work_ = true;
      while (settles_ && hangs()) std::this_thread::yield();
      delete memory;
    };
    auto* const memory = new Memory(own.get());
    memory->lies_on(gpu);
    return std::shared_ptr<const Memory>(memory, free);
  }
  tl::expected<std::shared_ptr<const transport::OpenGpuMemory>, Status> open(
      const transport::GpuShare&) override {
    return tl::unexpected(Status(Code::kUnavailable, "not here"));
  }
  tl::expected<std::unique_ptr<transport::Registration>, Status> make_ready(
      std::span<std::byte> memory, std::optional<size_t> /*by*/) override {
    std::unique_lock lock(mutex_);
    memory_comes_.wait(lock, [this] { return !keeps_pins_; });
    if (!pins_) return tl::unexpected(Status(Code::kUnavailable, "it pins nothing"));
    pinned_.insert(memory.data());
    return nullptr;
  }
  bool has_pinned(const std::byte* memory) const {
    const std::lock_guard lock(mutex_);
    return pinned_.contains(memory);
  }

  Status begin(const Sum& sum, uint64_t ticket) override {
    const std::lock_guard lock(mutex_);
    if (refuses()) return refused();
    if (apart_ && sum.inputs.size() > 1)
      return {Code::kUnavailable, "they do not reach each other"};
    sums_.push_back(sum.inputs.size());
    std::vector<const void*> inputs;
    for (const transport::GpuRange& range : sum.inputs) inputs.push_back(address(range));
    const std::vector<double> factors(sum.factors.begin(), sum.factors.end());
    put({ticket, [sum, inputs, factors]() -> Found {
           const size_t bytes = sum.count * size_of(sum.dtype);
           if (inputs.size() == 1 && factors.empty()) {
             std::memcpy(sum.out, inputs[0], bytes);
             return std::nullopt;
           }
           transport::fold(sum.dtype, sum.op, inputs, sum.out, sum.count, 0, {factors});
           return transport::sum_findings(sum.dtype, sum.out, inputs, sum.count);
         }});
    return {};
  }
  Status begin(const Allreduce& all, uint64_t ticket) override {
    const std::lock_guard lock(mutex_);
    if (refuses()) return refused();
    if (apart_ && all.inputs.size() > 1)
      return {Code::kUnavailable, "they do not reach each other"};
    allreduces_.push_back(all.inputs.size());
    std::vector<const void*> inputs;
    std::vector<std::byte*> outputs;
    for (const transport::GpuRange& range : all.inputs) inputs.push_back(address(range));
    for (const transport::GpuRange& range : all.outputs) outputs.push_back(address(range));
    const std::vector<double> factors(all.factors.begin(), all.factors.end());
    put({ticket, [all, inputs, outputs, factors] {
           std::vector<std::byte> result(all.count * size_of(all.dtype));
           transport::fold(all.dtype, all.op, inputs, result.data(), all.count, all.divisor,
                           {factors, all.factor});
           Found found = transport::sum_findings(all.dtype, result.data(), inputs, all.count);
           for (std::byte* to : outputs) std::memcpy(to, result.data(), result.size());
           return found;
         }});
    return {};
  }
  Status begin(const Spread& spread, uint64_t ticket) override {
    const std::lock_guard lock(mutex_);
    if (refuses()) return refused();
    spreads_.push_back(spread.outputs.size());
    std::vector<std::byte*> outputs;
    for (const transport::GpuRange& range : spread.outputs) outputs.push_back(address(range));
    put({ticket, [spread, outputs] {
           for (std::byte* to : outputs) std::memcpy(to, spread.from, spread.bytes);
           return Found();
         }});
    return {};
  }
  void take_ended(std::vector<Ended>* ended) override {
    const std::lock_guard lock(mutex_);
    for (; !work_.empty() && (allowed_ > 0 || !failure_.empty()); work_.pop_front()) {
      const auto& [ticket, act] = work_.front();
      if (failure_.empty()) {
        Found found = act();
        allowed_ -= allowed_ == SIZE_MAX ? 0 : 1;
        ended->push_back({ticket, {}, std::move(found)});
      } else {
        ended->push_back({ticket, {Code::kInternal, failure_}});
      }
    }
  }
  bool busy() const override {
    const std::lock_guard lock(mutex_);
    return !work_.empty();
  }

 private:
  using Found = std::optional<Nonfinite>;
  struct Work {
    uint64_t ticket = 0;
    std::function<Found()> act;
  };
  bool hangs() const {
    const std::lock_guard lock(mutex_);
    return !work_.empty() && allowed_ == 0;
  }
  static Status refused() { return {Code::kUnavailable, "it takes no more"}; }
  bool refuses() {
    if (begins_ == 0) return true;
    begins_ -= begins_ == SIZE_MAX ? 0 : 1;
    return false;
  }
  void put(Work work) {
    work_.push_back(std::move(work));
    most_ = std::max(most_, work_.size());
  }
  static std::byte* address(const transport::GpuRange& range) {
    return static_cast<const Memory*>(range.memory)->at(range.offset);
  }

  mutable std::mutex mutex_;
  std::deque<Work> work_;
  size_t allowed_ = SIZE_MAX;
  size_t begins_ = SIZE_MAX;
  std::string failure_;
  bool apart_ = false;
  bool pins_ = true;
  bool keeps_memory_ = false;
  bool keeps_pins_ = false;
  std::atomic<size_t> count_ = 1;
  std::set<size_t> full_;
  std::condition_variable memory_comes_;
  std::atomic<bool> freed_at_work_ = false;
  std::atomic<bool> settles_ = false;
  bool lends_dmabufs_ = true;
  size_t most_ = 0;
  std::set<const std::byte*> pinned_;
  std::vector<size_t> sums_;
  std::vector<size_t> allreduces_;
  std::vector<size_t> spreads_;
  std::vector<std::unique_ptr<std::vector<float>>> own_;  // the daemon's
};

}  // namespace gradring::daemon
