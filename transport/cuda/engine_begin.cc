// What the engine begins, and on which of its GPUs.
#include <algorithm>
#include <array>
#include <chrono>
#include <iterator>
#include <utility>

#include "transport/cuda/check.h"
#include "transport/cuda/engine.h"
#include "transport/cuda/enqueue.h"
#include "transport/cuda/joint.h"
#include "transport/cuda/opened.h"

namespace gradring::transport::cuda {
namespace {

Status cannot_reach() {
  return {
      Code::kUnavailable,
      "no GPU among those of a sum can reach the memory of all others: see what nvidia-smi topo "
      "-p2p r says, or sum on the host"};
}

Queue::Host host_of(const Gpus::Sum& sum) {
  return {{sum.out, sum.count * size_of(sum.dtype)}, true};
}

Queue::Host host_of(const Gpus::Spread& spread) { return {{spread.from, spread.bytes}, false}; }

// What outlives the order.
template <typename T>
std::vector<T> own_of(std::span<const T> of) {
  return {of.begin(), of.end()};
}

}  // namespace

Queue& Engine::queue_of(size_t index) {
  if (queues_[index] == nullptr) queues_[index] = std::make_unique<Queue>(gpus_[index]);
  return *queues_[index];
}

bool Engine::fits(size_t index, std::span<const GpuRange> ranges) const {
  const auto is_there = [&](const GpuRange& range) { return &gpu_of(range) == gpus_[index].get(); };
  return std::any_of(ranges.begin(), ranges.end(), is_there) && reaches(index, ranges);
}

Queue* Engine::choose(std::span<const GpuRange> ranges, const Queue::Host& host) {
  std::array<size_t, kGpusMax> fit{};
  size_t many = 0;
  for (size_t i = 0; i < gpus_.size(); ++i) {
    if (!fits(i, ranges)) continue;
    if (queues_[i] != nullptr && queues_[i]->is_before(host)) return queues_[i].get();
    fit[many++] = i;
  }
  if (many == 0) return nullptr;
  return &queue_of(fit[turn_++ % many]);
}

Queue* Engine::queue_for(const Allreduce& all) {
  std::vector<GpuRange> ranges(all.inputs.begin(), all.inputs.end());
  ranges.insert(ranges.end(), all.outputs.begin(), all.outputs.end());
  if (!all.on) return choose(ranges, {});
  return reaches(*all.on, ranges) ? &queue_of(*all.on) : nullptr;
}

Status Engine::begin(const Sum& sum, uint64_t ticket) {
  Status status = check(sum);
  if (!status.ok()) return status;
  if (status = why_broken(); !status.ok()) return {Code::kUnavailable, status.message()};
  if (sum.count == 0) {
    ended_at_once_.push_back({ticket, {}});
    return {};
  }
  const Wants needs = wants(sum);
  if (needs.gpus == 0) return cannot_reach();
  LaunchLock launches;
  if (!is_behind_what_waits(needs) && is_free(needs, &launches)) return begin_now(sum, ticket);
  waiting_.push_back({ticket, needs,
                      [this, ticket, own = sum, inputs = own_of(sum.inputs),
                       factors = own_of(sum.factors)]() mutable {
                        own.inputs = inputs;
                        own.factors = factors;
                        return begin_now(own, ticket);
                      }});
  return {};
}

Status Engine::begin_now(const Sum& sum, uint64_t ticket) {
  const Queue::Host host = host_of(sum);
  if (all_ != nullptr && takes(*all_, sum)) {
    return put_jointly(ticket, host, {traced(sum), calls_of(sum)},
                       [&](auto watches) { return enqueue_jointly(*all_, sum, watches); });
  }
  Queue* const queue = choose(sum.inputs, host);
  if (queue == nullptr) return cannot_reach();
  return put(*queue, ticket, host, {traced(sum), calls_of(sum)},
             [&](const Watch& watch) { return enqueue(queue->gpu(), sum, watch); });
}

Status Engine::begin(const Allreduce& all, uint64_t ticket) {
  Status status = check(all);
  if (!status.ok()) return status;
  if (status = why_broken(); !status.ok()) return {Code::kUnavailable, status.message()};
  if (all.count == 0) {
    ended_at_once_.push_back({ticket, {}});
    return {};
  }
  const Wants needs = wants(all);
  if (needs.gpus == 0) return cannot_reach();
  LaunchLock launches;
  if (!is_behind_what_waits(needs) && is_free(needs, &launches)) return begin_now(all, ticket);
  waiting_.push_back({ticket, needs,
                      [this, ticket, own = all, inputs = own_of(all.inputs),
                       outputs = own_of(all.outputs), factors = own_of(all.factors)]() mutable {
                        own.inputs = inputs;
                        own.outputs = outputs;
                        own.factors = factors;
                        return begin_now(own, ticket);
                      }});
  return {};
}

Status Engine::begin_now(const Allreduce& all, uint64_t ticket) {
  if (all_ != nullptr && !all.on && takes(*all_, all)) {
    return put_jointly(ticket, {}, {traced(all), calls_of(all)},
                       [&](auto watches) { return enqueue_jointly(*all_, all, watches); });
  }
  Queue* const queue = queue_for(all);
  if (queue == nullptr) return cannot_reach();
  return put(*queue, ticket, {}, {traced(all), calls_of(all)},
             [&](const Watch& watch) { return enqueue(queue->gpu(), all, watch); });
}

Status Engine::begin(const Spread& spread, uint64_t ticket) {
  Status status = check(spread);
  if (!status.ok()) return status;
  if (status = why_broken(); !status.ok()) return {Code::kUnavailable, status.message()};
  if (spread.bytes == 0 || spread.outputs.empty()) {
    ended_at_once_.push_back({ticket, {}});
    return {};
  }
  const Wants needs = wants(spread);
  LaunchLock launches;
  if (!is_behind_what_waits(needs) && is_free(needs, &launches)) return begin_now(spread, ticket);
  waiting_.push_back(
      {ticket, needs, [this, ticket, own = spread, outputs = own_of(spread.outputs)]() mutable {
         own.outputs = outputs;
         return begin_now(own, ticket);
       }});
  return {};
}

Status Engine::begin_now(const Spread& spread, uint64_t ticket) {
  const Queue::Host host = host_of(spread);
  if (all_ != nullptr && takes(*all_, spread)) {
    return put_jointly(ticket, host, {0, calls_of(spread)},
                       [&](auto) { return enqueue_jointly(*all_, spread); });
  }
  Queue* const queue = choose(spread.outputs, host);
  if (queue == nullptr) return put_on_each(spread, ticket);
  return put(*queue, ticket, host, {0, calls_of(spread)},
             [&](const Watch&) { return enqueue(queue->gpu(), spread); });
}

uint64_t Engine::fitting(std::span<const GpuRange> ranges) const {
  uint64_t fit = 0;
  for (size_t i = 0; i < gpus_.size(); ++i) fit |= fits(i, ranges) ? gpus_[i]->bit() : 0;
  return fit;
}

Engine::Wants Engine::wants(const Sum& sum) const {
  if (all_ != nullptr && takes(*all_, sum)) return {every_one(), true, true, host_of(sum)};
  return {fitting(sum.inputs), false, false, host_of(sum)};
}

Engine::Wants Engine::wants(const Allreduce& all) const {
  if (all_ != nullptr && !all.on && takes(*all_, all)) return {every_one(), true, true};
  std::vector<GpuRange> ranges = own_of(all.inputs);
  ranges.insert(ranges.end(), all.outputs.begin(), all.outputs.end());
  if (!all.on) return {fitting(ranges)};
  return {reaches(*all.on, ranges) ? gpus_[*all.on]->bit() : 0};
}

Engine::Wants Engine::wants(const Spread& spread) const {
  if (all_ != nullptr && takes(*all_, spread)) return {every_one(), true, true, host_of(spread)};
  const uint64_t fit = fitting(spread.outputs);
  if (fit != 0) return {fit, false, false, host_of(spread)};
  uint64_t owners = 0;  // put_on_each()
  for (const GpuRange& output : spread.outputs) owners |= gpu_of(output).bit();
  return {owners, true, false, host_of(spread)};
}

uint64_t Engine::every_one() const {
  uint64_t bits = 0;
  for (const auto& gpu : gpus_) bits |= gpu->bit();
  return bits;
}

bool Engine::is_free(const Wants& needs, LaunchLock* launches) const {
  size_t before = 0;
  for (size_t i = 0; i < queues_.size(); ++i) {
    if (queues_[i] == nullptr) continue;
    const bool may = (needs.gpus & gpus_[i]->bit()) != 0;
    if (may && queues_[i]->full()) return false;
    if (!queues_[i]->is_before(needs.host)) continue;
    if (needs.several || !may) return false;
    ++before;
  }
  if (needs.jointly) *launches = try_lock_launches();
  return before <= 1 && (!needs.jointly || launches->owns_lock());
}

bool Engine::is_behind_what_waits(const Wants& needs) const {
  return std::any_of(waiting_.begin(), waiting_.end(), [&needs](const Waiting& waiting) {
    return (waiting.wants.gpus & needs.gpus) != 0 || waiting.wants.host.collides_with(needs.host);
  });
}

// What waits keeps nobody who has need of neither its GPUs nor its memory of the host.
void Engine::begin_waiting() {
  if (waiting_.empty()) return;
  uint64_t kept = 0;  // GPUs for which something waits on
  const uint64_t all = every_one();
  Status status = why_broken();
  for (auto next = waiting_.begin(); next != waiting_.end() && kept != all;) {
    LaunchLock launches;
    const Wants& needs = next->wants;
    const auto collides = [&needs](const Waiting& waiting) {
      return waiting.wants.host.collides_with(needs.host);
    };
    const bool waits = (needs.gpus & kept) != 0 || std::any_of(waiting_.begin(), next, collides) ||
                       !is_free(needs, &launches);
    if (status.ok() && waits) {
      kept |= needs.gpus;
      ++next;
      continue;
    }
    const Waiting one = std::move(*next);
    next = waiting_.erase(next);
    Status begun = status.ok() ? one.begin() : status;
    if (!begun.ok()) ended_at_once_.push_back({one.ticket, std::move(begun)});
    status = why_broken();
  }
}

Status Engine::put(Queue& queue, uint64_t ticket, const Queue::Host& host, const Load& load,
                   const std::function<Driver::Result(const Watch&)>& enqueue) {
  const Gpu& gpu = queue.gpu();
  const Gpu::Current current(gpu);
  Driver::Event event = nullptr;
  auto result = current.result();
  if (result == Driver::kSuccess) result = queue.take_event(&event);
  if (result != Driver::kSuccess) {
    return {Code::kUnavailable, gpu.words("takes no work of the daemon", result)};
  }
  const Queue::Trace trace = queue.take_trace(load.traced);
  result = enqueue(queue.watch(trace));
  if (result == Driver::kSuccess) result = gpu.driver().record_event(event, gpu.stream());
  // Some of it may be under way: it has begun, and will be told to have ended so.
  if (result != Driver::kSuccess) has_failed(gpu, result);
  queue.push(ticket, event, host, trace, load.calls);
  return {};
}

Status Engine::put_on_each(const Spread& spread, uint64_t ticket) {
  const Queue::Host host = host_of(spread);
  size_t begun = 0;
  for (const auto& gpu : gpus_) {
    std::vector<GpuRange> own;
    std::copy_if(spread.outputs.begin(), spread.outputs.end(), std::back_inserter(own),
                 [&gpu](const GpuRange& output) { return &gpu_of(output) == gpu.get(); });
    if (own.empty()) continue;
    const Spread part{spread.from, own, spread.bytes};
    Status status = put(queue_of(gpu->index()), ticket, host, {0, calls_of(part)},
                        [&](const Watch&) { return enqueue(*gpu, part); });
    if (status.ok()) {
      ++begun;
      continue;
    }
    if (begun == 0) return status;
    has_failed(status);  // and so ends what has begun
    break;
  }
  joint_[ticket] = {begun};
  return {};
}

Status Engine::put_jointly(uint64_t ticket, const Queue::Host& host, const Load& load,
                           const std::function<Status(std::span<const Watch>)>& enqueue) {
  std::vector<Driver::Event> events(gpus_.size());
  for (size_t i = 0; i < gpus_.size(); ++i) {
    const Gpu::Current current(*gpus_[i]);
    auto result = current.result();
    if (result == Driver::kSuccess) result = queue_of(i).take_event(&events[i]);
    if (result == Driver::kSuccess) continue;
    for (size_t taken = 0; taken < i; ++taken) queue_of(taken).give_back(events[taken]);
    return {Code::kUnavailable, gpus_[i]->words("takes no work of the daemon", result)};
  }
  // From here on some of it may be under way, as above.
  std::vector<Queue::Trace> traces;
  std::vector<Watch> watches;
  for (size_t i = 0; i < gpus_.size(); ++i) {
    traces.push_back(queue_of(i).take_trace(load.traced));
    watches.push_back(queue_of(i).watch(traces[i]));
  }
  Status status = enqueue(watches);
  if (!status.ok()) has_failed(status);
  for (size_t i = 0; i < gpus_.size(); ++i) {
    const Gpu::Current current(*gpus_[i]);
    const auto result = gpus_[i]->driver().record_event(events[i], gpus_[i]->stream());
    if (result != Driver::kSuccess) has_failed(*gpus_[i], result);
    queue_of(i).push(ticket, events[i], host, traces[i], load.calls);
  }
  joint_[ticket] = {gpus_.size(), std::chrono::steady_clock::now()};
  return {};
}

}  // namespace gradring::transport::cuda
