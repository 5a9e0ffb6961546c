#include "transport/cuda/traces.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

namespace gradring::transport::cuda {

void Watch::put(FoldArguments* arguments, uint64_t first) const {
  std::array<uint8_t, kGpuInputsMax> all;
  std::iota(all.begin(), all.end(), uint8_t{0});
  put(arguments, first, std::span(all).first(arguments->num_inputs));
}

void Watch::put(FoldArguments* arguments, uint64_t first, std::span<const uint8_t> numbers) const {
  arguments->trace = trace;
  arguments->raised = raised;
  arguments->element = first;
  arguments->num_traced = static_cast<uint32_t>(numbers.size());
  std::copy(numbers.begin(), numbers.end(), arguments->numbers);
}

Driver::Result Traces::make(const Driver& driver, Driver::Stream stream) {
  host_ = std::make_unique<OfHost>();
  auto result = driver.register_host(host_.get(), sizeof(OfHost), Driver::kPortableAndMapped);
  pinned_ = result == Driver::kSuccess;
  if (pinned_) result = driver.host_pointer(&words_, host_->raised.data(), 0);
  constexpr size_t kBytes = sizeof(OfHost::fetched);
  if (result == Driver::kSuccess) result = driver.allocate(&traces_, kBytes);
  if (result != Driver::kSuccess) {
    traces_ = 0;
    return result;
  }
  return driver.copy_to_device(traces_, host_->fetched.data(), kBytes, stream);
}

void Traces::end(const Driver& driver) {
  if (traces_ != 0) driver.free(std::exchange(traces_, 0));
  if (std::exchange(pinned_, false)) driver.unregister_host(host_.get());
  host_.reset();
}

Driver::Result Traces::fetch(const Driver& driver, Driver::Stream stream, uint32_t number) const {
  const auto result =
      driver.copy_to_host(&host_->fetched[number], at(number), sizeof(FoldTrace), stream);
  if (result != Driver::kSuccess) return result;
  return driver.copy_to_device(at(number), &host_->empty, sizeof(FoldTrace), stream);
}

Watch Traces::watch(uint32_t number) const {
  return {std::bit_cast<FoldTrace*>(at(number)),
          std::bit_cast<uint32_t*>(words_ + number * sizeof(uint32_t))};
}

// The GPU has written it, and not this program.
bool Traces::raised(uint32_t number) const {
  return static_cast<const volatile uint32_t&>(host_->raised[number]) != 0;
}

Gpus::Nonfinite Traces::take(uint32_t number, size_t inputs) {
  host_->raised[number] = 0;
  const FoldTrace& trace = host_->fetched[number];
  Gpus::Nonfinite found{~trace.first, {}};
  for (size_t r = 0; r < inputs; ++r) {
    const uint64_t mark = ~trace.first_of[r];
    Gpus::Nonfinite::Input& input = found.inputs.emplace_back();
    if (trace.many[r] != 0) input = {trace.many[r], mark / 2, mark % 2 == 0};
  }
  return found;
}

void add(std::optional<Gpus::Nonfinite>* to, std::optional<Gpus::Nonfinite> more) {
  if (!more) return;
  if (!*to) {
    *to = std::move(more);
    return;
  }
  (*to)->first = std::min((*to)->first, more->first);
  for (size_t i = 0; i < more->inputs.size(); ++i) {
    Gpus::Nonfinite::Input& input = (*to)->inputs[i];  // of one GPU alone
    if (more->inputs[i].many != 0) input = more->inputs[i];
  }
}

}  // namespace gradring::transport::cuda
