#include "transport/cuda/queue.h"

#include <algorithm>
#include <functional>

namespace gradring::transport::cuda {
namespace {

bool overlap(Queue::Host a, Queue::Host b) {
  const std::less<> before;
  return before(a.data(), b.data() + b.size()) && before(b.data(), a.data() + a.size());
}

}  // namespace

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

// Behind the last one of them, which is behind all others.
Driver::Result Queue::follow(const Queue& other, Host host) const {
  const auto last = std::find_if(other.work_.rbegin(), other.work_.rend(),
                                 [host](const Work& work) { return overlap(work.host, host); });
  if (last == other.work_.rend()) return Driver::kSuccess;
  return gpu_->driver().wait_for_event(gpu_->stream(), last->event, 0);
}

Driver::Result Queue::ask(bool all) const {
  if (all) return gpu_->driver().query_stream(gpu_->stream());
  return gpu_->driver().query_event(work_.front().event);
}

uint64_t Queue::pop() {
  const Work work = work_.front();
  work_.pop_front();
  spare_.push_back(work.event);
  return work.ticket;
}

}  // namespace gradring::transport::cuda
