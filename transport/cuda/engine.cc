#include "transport/cuda/engine.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <utility>

#include "transport/cuda/launch_lock.h"
#include "transport/cuda/mapped.h"
#include "transport/cuda/peer_trial.h"

namespace gradring::transport::cuda {
namespace {

static_assert(kGpuInputsMax == kDeviceFoldInputsMax, "a kernel takes what a sum may have");

// Host memory that all GPUs may reach, those too that start later.
class Pinned : public Registration {
 public:
  Pinned(std::shared_ptr<const Gpu> gpu, void* memory) : gpu_(std::move(gpu)), memory_(memory) {}
  ~Pinned() override {
    const auto lock = lock_launches();
    const Gpu::Current current(*gpu_);
    if (current.result() == Driver::kSuccess) gpu_->driver().unregister_host(memory_);
  }
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;

 private:
  const std::shared_ptr<const Gpu> gpu_;  // in whose context it was pinned
  void* const memory_;
};

}  // namespace

Engine::Engine(std::vector<std::shared_ptr<Gpu>> gpus, const GpuSums& sums)
    : gpus_(std::move(gpus)), sums_(sums), openings_(gpus_.size()), queues_(gpus_.size()) {
  if (may_use_nccl()) launches_jointly() = true;
}

// Whoever lent memory to it may take it back afterwards.
Engine::~Engine() {
  const auto rests = [](const auto& queue) { return queue == nullptr || queue->gpu().rest(); };
  bool all_rest = std::all_of(queues_.begin(), queues_.end(), rests);
  if (!all_rest && all_ != nullptr) {
    all_.reset();  // what it has begun ends so
    all_rest = std::all_of(queues_.begin(), queues_.end(), rests);
  }
  if (!all_rest) static_cast<void>(left_.release());  // a driver would wait for it, and for ever
}

std::string Engine::name() const {
  std::vector<std::string> kinds;
  for (const auto& gpu : gpus_) {
    if (std::find(kinds.begin(), kinds.end(), gpu->name()) == kinds.end()) {
      kinds.push_back(gpu->name());
    }
  }
  return fmt::format("{} GPU{}, {}", gpus_.size(), gpus_.size() == 1 ? "" : "s",
                     fmt::join(kinds, " and "));
}

Status Engine::start() {
  const std::lock_guard lock(starting_);
  Status first;
  for (size_t i = 0; i < gpus_.size(); ++i) {
    Status status = start(i);
    if (first.ok()) first = std::move(status);
  }
  if (first.ok() && all_ == nullptr) settle_way();
  return first.ok() ? why_broken() : first;
}

// In the context of one of them, any that has started: UCX finds out by itself which one a piece of
// memory lies on, but not from nothing.
tl::expected<std::shared_ptr<const void>, Status> Engine::enter() {
  const auto able = started(std::nullopt);
  if (!able) return tl::unexpected(able.error());
  const Gpu& first = *gpus_[able->front()];
  auto current = std::make_shared<const Gpu::Current>(first);
  if (current->result() == Driver::kSuccess) return current;
  return tl::unexpected(Status(Code::kUnavailable,
                               first.words("cannot be entered by the daemon", current->result())));
}

std::string Engine::way() const { return way_; }

bool Engine::under_mps() const {
  return std::all_of(gpus_.begin(), gpus_.end(), [](const auto& gpu) { return gpu->under_mps(); });
}

// With starting_ held.
Status Engine::start(size_t index) {
  if (openings_[index] != nullptr) return {};
  Gpu& gpu = *gpus_[index];
  Status status = gpu.start(!may_use_nccl());
  if (!status.ok()) return status;
  auto opened = std::make_shared<Openings>(gpus_[index]);
  for (size_t i = 0; i < gpus_.size(); ++i) {
    if (openings_[i] == nullptr) continue;
    if (reach(gpus_[index], gpus_[i])) openings_[i]->let_in(gpus_[index]);
    if (reach(gpus_[i], gpus_[index])) opened->let_in(gpus_[i]);
  }
  openings_[index] = std::move(opened);
  return {};
}

tl::expected<std::shared_ptr<const OpenGpuMemory>, Status> Engine::open(const GpuShare& share) {
  if (Status broken = why_broken(); !broken.ok()) {
    return tl::unexpected(Status(Code::kUnavailable, broken.message()));
  }
  const auto found = std::find_if(gpus_.begin(), gpus_.end(),
                                  [&share](const auto& gpu) { return gpu->uuid() == share.gpu; });
  if (found == gpus_.end()) {
    return tl::unexpected(
        Status(Code::kInvalidArgument,
               fmt::format("{} is none of the daemon's ({}): let its container and its "
                           "CUDA_VISIBLE_DEVICES have every GPU that trainers here use",
                           in_words(share.gpu), name())));
  }
  const auto index = static_cast<size_t>(found - gpus_.begin());
  std::shared_ptr<Openings> openings;
  {
    const std::lock_guard lock(starting_);
    if (Status status = start(index); !status.ok()) return tl::unexpected(std::move(status));
    openings = openings_[index];
  }
  if (share.descriptor >= 0) return Mapped::make(gpus_[index], share, gpus_);
  return openings->open(share);
}

tl::expected<std::shared_ptr<const OpenGpuMemory>, Status> Engine::allocate(size_t gpu,
                                                                            uint64_t bytes) {
  if (Status broken = why_broken(); !broken.ok()) {
    return tl::unexpected(Status(Code::kUnavailable, broken.message()));
  }
  {
    const std::lock_guard lock(starting_);
    if (Status status = start(gpu); !status.ok()) return tl::unexpected(std::move(status));
  }
  return Allocated::make(gpus_[gpu], bytes);
}

bool Engine::lend_dmabufs() const {
  return std::all_of(gpus_.begin(), gpus_.end(),
                     [](const auto& gpu) { return gpu->lends_dmabufs(); });
}

bool Engine::reaches(size_t gpu, std::span<const GpuRange> ranges) const {
  return std::all_of(ranges.begin(), ranges.end(),
                     [&](const GpuRange& range) { return cuda::reaches(*gpus_[gpu], range); });
}

// Those that have their contexts already, if there are some; else the first. Where that is among
// them `best` comes first.
tl::expected<std::vector<size_t>, Status> Engine::started(std::optional<size_t> best) {
  const std::lock_guard lock(starting_);
  std::vector<size_t> started;
  for (size_t index = 0; index < gpus_.size(); ++index) {
    if (openings_[index] == nullptr) continue;
    started.insert(index == best ? started.begin() : started.end(), index);
  }
  if (!started.empty()) return started;
  if (Status status = start(0); !status.ok()) return tl::unexpected(std::move(status));
  return std::vector<size_t>{0};
}

tl::expected<std::unique_ptr<Registration>, Status> Engine::make_ready(std::span<std::byte> memory,
                                                                       std::optional<size_t> by) {
  if (Status broken = why_broken(); !broken.ok()) {
    return tl::unexpected(Status(Code::kUnavailable, broken.message()));
  }
  // What takes the time of pinning is that pages are not there yet; the driver would have whoever
  // calls it wait for that. Since Linux 5.14.
  ::madvise(memory.data(), memory.size(), MADV_POPULATE_WRITE);
  // Any will do, for all. Where one is lost others may not be.
  const auto able = started(by);
  if (!able) return tl::unexpected(able.error());
  Status refused;
  for (const size_t index : *able) {
    const Gpu& gpu = *gpus_[index];
    const Gpu::Current current(gpu);
    auto result = current.result();
    if (result == Driver::kSuccess) {
      const auto launches = lock_launches();
      result = gpu.driver().register_host(memory.data(), memory.size(), Driver::kPortableAndMapped);
    }
    if (result == Driver::kSuccess) return std::make_unique<Pinned>(gpus_[index], memory.data());
    if (!refused.ok()) continue;
    const std::string what =
        fmt::format("did not pin {} bytes of the daemon's memory", memory.size());
    refused = {Code::kUnavailable,
               gpu.words(what, result) + ". Leave that much of the host's memory to it"};
  }
  return tl::unexpected(std::move(refused));
}

Status Engine::why_broken() const {
  const std::lock_guard lock(breaking_);
  return broken_;
}

void Engine::has_failed(const Gpu& gpu, Driver::Result result) {
  has_failed({Code::kInternal, gpu.words("has failed", result)});
}

// The first one is the reason of all that follow.
void Engine::has_failed(const Status& why) {
  {
    const std::lock_guard lock(breaking_);
    if (!broken_.ok()) return;
    broken_ = {
        Code::kInternal,
        why.message() +
            ". The daemon uses no GPU any more until it is started anew; see nvidia-smi and the "
            "kernel's log for what it is"};
  }
  // NCCL's kernels on other GPUs would wait for it forever.
  if (all_ != nullptr) all_->abort();
}

bool Engine::is_last(Queue::Ended* ended) {
  const auto joint = joint_.find(ended->ticket);
  if (joint == joint_.end()) return true;
  add(&joint->second.nonfinite, std::move(ended->nonfinite));
  if (--joint->second.left > 0) return false;
  ended->nonfinite = std::move(joint->second.nonfinite);
  joint_.erase(joint);
  return true;
}

void Engine::look_at_joint() {
  Status fault = all_->fault();
  const auto late = std::chrono::steady_clock::now() - sums_.patience;
  const auto is_late = [late](const auto& entry) {
    return entry.second.since && *entry.second.since < late;
  };
  if (fault.ok() && std::any_of(joint_.begin(), joint_.end(), is_late)) {
    fault = {Code::kInternal,
             fmt::format("{} did not end within {} s what it had begun on the daemon's GPUs",
                         all_->name(), sums_.patience.count() / 1e3)};
  }
  if (!fault.ok()) has_failed(fault);
}

void Engine::take_ended(std::vector<Ended>* ended) {
  begin_waiting();
  for (Ended& one : std::exchange(ended_at_once_, {})) ended->push_back(std::move(one));
  if (all_ != nullptr && !joint_.empty()) look_at_joint();
  for (const auto& queue : queues_) {
    if (queue == nullptr || queue->empty()) continue;
    while (!queue->empty()) {
      // After a failure an event may never have been recorded: what counts then is that nothing
      // on the stream can touch the memory any more.
      Status broken = why_broken();
      auto result = queue->ask(!broken.ok());
      if (result == Driver::kNotReady) break;
      if (result != Driver::kSuccess) {
        has_failed(queue->gpu(), result);
        broken = why_broken();
      }
      if (broken.ok() && queue->has_found()) {
        result = queue->fetch();
        if (result == Driver::kSuccess) continue;
        has_failed(queue->gpu(), result);
        broken = why_broken();
      }
      Queue::Ended one = queue->pop(broken.ok());
      if (!is_last(&one)) continue;
      ended->push_back({one.ticket, std::move(broken), std::move(one.nonfinite)});
    }
  }
}

bool Engine::busy() const {
  const auto works = [](const auto& queue) { return queue != nullptr && !queue->empty(); };
  return !waiting_.empty() || !ended_at_once_.empty() ||
         std::any_of(queues_.begin(), queues_.end(), works);
}

}  // namespace gradring::transport::cuda
