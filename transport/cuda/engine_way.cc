// Which way the engine makes sums of several GPUs.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <thread>

#include "transport/cuda/engine.h"

namespace gradring::transport::cuda {
namespace {

using Clock = std::chrono::steady_clock;

// As a job gives it: a gradient of some size, in parts.
constexpr uint64_t kMeasuredBytes = uint64_t{64} << 20;
constexpr uint64_t kMeasuredParts = 8;
constexpr int kMeasurements = 4;  // the best counts, and the first is slower
constexpr auto kMeasuredWithin = std::chrono::seconds(10);
// Kernels have the order of the host, and no library that may change: what is hardly faster is not
// worth another.
constexpr double kWorthIt = 1.1;

std::string rate_in_words(double bytes_a_second) {
  if (bytes_a_second == 0) return "which does not work";
  return fmt::format("{:.1f} GB/s", bytes_a_second / 1e9);
}

}  // namespace

// Of GPUs that a driver has connected, and whose data does not arrive.
bool Engine::is_misled() const {
  for (const auto& gpu : gpus_) {
    for (const auto& peer : gpus_) {
      if (gpu != peer && gpu->has_way_to(*peer) && !gpu->reaches(peer->bit())) return true;
    }
  }
  return false;
}

// With one GPU there is nothing to choose.
bool Engine::may_use_nccl() const {
  return sums_.by == GpuSumsBy::kNccl || (sums_.by == GpuSumsBy::kMeasured && gpus_.size() > 1);
}

void Engine::settle_way() {
  if (!may_use_nccl()) {
    if (sums_.by == GpuSumsBy::kMeasured) way_ = "by kernels, since there is one GPU alone";
    return;
  }
  if (is_misled() && std::getenv("NCCL_P2P_DISABLE") == nullptr) {
    way_ +=
        ", and not by NCCL, which would go where data is lost between these GPUs (see the log), "
        "unless NCCL_P2P_DISABLE=1 is in gradringd's environment";
    return;
  }
  auto made = Communicators::make(gpus_);
  if (!made) {
    way_ += ", and not by NCCL: " + made.error().message();
    return;
  }
  const std::string nccl = (*made)->name();
  if (sums_.by == GpuSumsBy::kNccl) {
    all_ = *std::move(made);
    way_ = "by " + nccl;
    return;
  }
  const double by_kernels = measure();
  all_ = *std::move(made);
  const double by_nccl = busy() ? 0 : measure();
  if (busy()) {
    way_ = "not at all until the daemon is started anew, since they hang";
    return;
  }
  const bool worth_it = by_nccl > by_kernels * kWorthIt;
  if (!worth_it) all_.reset();
  if (by_nccl == 0 && by_kernels > 0) {  // what failed is not used any more
    const std::lock_guard lock(breaking_);
    broken_ = {};
  }
  way_ = fmt::format("{}: {} MiB of float32 on each GPU by {} {}, by kernels {}",
                     worth_it ? "by " + nccl : way_, kMeasuredBytes >> 20, nccl,
                     rate_in_words(by_nccl), rate_in_words(by_kernels));
}

double Engine::measure() {
  std::vector<std::shared_ptr<const Allocated>> memory;
  std::vector<GpuRange> ranges;
  for (const auto& gpu : gpus_) {
    auto allocated = Allocated::make(gpu, kMeasuredBytes);
    if (!allocated) return 0;
    ranges.push_back({memory.emplace_back(*std::move(allocated)).get(), 0});
  }
  double best = 0;
  bool works = true;
  for (int i = 0; i < kMeasurements && works; ++i) {
    const double rate = measure_once(ranges);
    works = rate > 0;
    best = std::max(best, rate);
  }
  if (busy()) left_ = std::make_unique<Left>(std::move(memory));
  return works ? best : 0;
}

double Engine::measure_once(std::span<const GpuRange> ranges) {
  const auto start = Clock::now();
  constexpr uint64_t kPart = kMeasuredBytes / kMeasuredParts;
  std::vector<GpuRange> part(ranges.begin(), ranges.end());
  bool begun = true;
  for (uint64_t i = 0; i < kMeasuredParts && begun; ++i) {
    for (GpuRange& range : part) range.offset = i * kPart;
    const Gpus::Allreduce order{Dtype::kFloat32,      ReduceOp::kSum, part, part, 0,
                                kPart / sizeof(float)};
    begun = begin(order, i).ok();
  }
  std::vector<Ended> ended;
  const auto rest = [&](std::chrono::milliseconds within) {
    const auto until = Clock::now() + within;
    while (busy() && Clock::now() < until) {
      take_ended(&ended);
      std::this_thread::yield();
    }
    return !busy();
  };
  const auto patience = std::min<std::chrono::milliseconds>(sums_.patience, kMeasuredWithin);
  const bool in_time = rest(patience);
  if (!in_time) {
    has_failed({Code::kInternal,
                fmt::format("what the daemon measured its GPUs by did not end within {} s, and the "
                            "{} MiB for it stay taken of each",
                            patience.count() / 1e3, kMeasuredBytes >> 20)});
    if (all_ != nullptr) rest(patience);  // it was aborted
  }
  const auto is_well = [](const Ended& end) { return end.status.ok(); };
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  const bool well = begun && in_time && std::all_of(ended.begin(), ended.end(), is_well);
  return well ? static_cast<double>(kMeasuredBytes) / seconds : 0;
}

}  // namespace gradring::transport::cuda
