#include "transport/cuda/queue.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

namespace gradring::transport::cuda {
namespace {

// A GPU that has failed marks nothing any more.
constexpr auto kAskedEvery = std::chrono::milliseconds(10);

bool overlap(std::span<const std::byte> a, std::span<const std::byte> b) {
  const std::less<> before;
  return before(a.data(), b.data() + b.size()) && before(b.data(), a.data() + a.size());
}

}  // namespace

bool Queue::Host::collides_with(const Host& other) const {
  return (written || other.written) && overlap(memory, other.memory);
}

Queue::Queue(std::shared_ptr<Gpu> gpu) : gpu_(std::move(gpu)), spare_traces_(Traces::kMany) {
  std::iota(spare_traces_.begin(), spare_traces_.end(), 0u);
}

Queue::~Queue() {
  const Gpu::Current current(*gpu_);
  if (current.result() != Driver::kSuccess) return;
  for (const Work& work : work_) gpu_->driver().destroy_event(work.event);
  for (const Driver::Event event : spare_) gpu_->driver().destroy_event(event);
}

Driver::Result Queue::take_event(Driver::Event* event) {
  if (spare_.empty()) return gpu_->driver().create_event(event, Driver::kNoTiming);
  *event = spare_.back();
  spare_.pop_back();
  return Driver::kSuccess;
}

bool Queue::is_before(const Host& host) const {
  return std::any_of(work_.begin(), work_.end(),
                     [&host](const Work& work) { return work.host.collides_with(host); });
}

void Queue::push(Work work) {
  // The driver is asked when it takes long from here on.
  if (work_.empty()) asked_ = std::chrono::steady_clock::now();
  work.mark = gpu_->progress().mark(gpu_->driver(), gpu_->stream());
  work_.push_back(work);
  calls_ += work.calls;
}

Queue::Work Queue::take_oldest() {
  const Work work = work_.front();
  work_.pop_front();
  calls_ -= work.calls;
  return work;
}

// The stream marks what it has done, and the driver knows of what it never will.
Driver::Result Queue::ask(bool all) {
  const Work& oldest = work_.front();
  if (!all && oldest.mark) {
    if (gpu_->progress().has_come(*oldest.mark)) return Driver::kSuccess;
    const auto now = std::chrono::steady_clock::now();
    if (now < asked_ + kAskedEvery) return Driver::kNotReady;
    asked_ = now;
  }
  const Gpu::Current current(*gpu_);
  if (current.result() != Driver::kSuccess) return current.result();
  if (all) return gpu_->driver().query_stream(gpu_->stream());
  return gpu_->driver().query_event(oldest.event);
}

Queue::Trace Queue::take_trace(size_t inputs) {
  if (inputs == 0 || spare_traces_.empty()) return {};
  const uint32_t number = spare_traces_.back();
  spare_traces_.pop_back();
  return {number, inputs};
}

bool Queue::has_found() const {
  const Work& work = work_.front();
  return work.trace.number && !work.fetched && gpu_->traces().raised(*work.trace.number);
}

Driver::Result Queue::fetch() {
  const Gpu::Current current(*gpu_);
  if (current.result() != Driver::kSuccess) return current.result();
  Work work = work_.front();
  auto result = gpu_->traces().fetch(gpu_->driver(), gpu_->stream(), *work.trace.number);
  if (result == Driver::kSuccess) {
    result = gpu_->driver().record_event(work.event, gpu_->stream());
  }
  if (result != Driver::kSuccess) return result;
  take_oldest();
  work.fetched = true;
  work.host = {};  // nothing is done there any more
  push(work);
  return result;
}

Queue::Ended Queue::pop(bool well) {
  const Work work = take_oldest();
  spare_.push_back(work.event);
  Ended ended{work.ticket, {}};
  if (!work.trace.number) return ended;
  Traces& traces = gpu_->traces();
  // It may not have come, nor be empty again.
  if (!well && traces.raised(*work.trace.number)) return ended;
  spare_traces_.push_back(*work.trace.number);
  if (work.fetched) ended.nonfinite = traces.take(*work.trace.number, work.trace.inputs);
  return ended;
}

}  // namespace gradring::transport::cuda
