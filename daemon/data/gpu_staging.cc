#include "daemon/data/gpu_staging.h"

#include <algorithm>
#include <new>
#include <utility>

#include "proto/check.h"

namespace gradring::daemon {
namespace {

// GPUs may work with twice as many slices as there are slots, and as many may be pinned.
constexpr uint32_t kBuffersMore = 3;

// What a driver pins, and a card registers, are pages.
constexpr std::align_val_t kPage{4096};

}  // namespace

void GpuStaging::Freed::operator()(std::byte* memory) const { ::operator delete(memory, kPage); }

tl::expected<std::unique_ptr<GpuStaging>, Status> GpuStaging::create(transport::Gpus& gpus,
                                                                     uint32_t slots,
                                                                     uint32_t start_buffers,
                                                                     uint64_t slice_bytes) {
  std::unique_ptr<GpuStaging> staging(new GpuStaging(slots, start_buffers, slice_bytes));
  for (uint32_t gpu = 0; gpu < gpus.count(); ++gpu) {
    const SlotBuffers buffers(slots, kBuffersMore * slots, slots);
    OnGpu& on = staging->on_.emplace_back(buffers, buffers.count() + start_buffers);
    on.refused = make(gpus, gpu, on.writes.size() * slice_bytes, &on);
  }
  if (Status none = staging->refused_by_all(); !none.ok()) return tl::unexpected(std::move(none));
  return staging;
}

Status GpuStaging::make(transport::Gpus& gpus, uint32_t gpu, uint64_t bytes, OnGpu* on) {
  auto memory = gpus.allocate(gpu, bytes);
  if (!memory) return memory.error();
  std::unique_ptr<std::byte, Freed> host(
      static_cast<std::byte*>(::operator new(bytes, kPage, std::nothrow)));
  if (host == nullptr) return {Code::kResourceExhausted, "no memory for slices from GPUs"};
  auto pinned = gpus.make_ready({host.get(), bytes}, gpu);
  if (!pinned) return pinned.error();
  on->memory = *std::move(memory);
  on->host = std::move(host);
  on->pinned = *std::move(pinned);
  return {};
}

Status GpuStaging::make_ready(const Lanes& lanes) {
  for (OnGpu& on : on_) {
    if (on.refused.ok()) on.refused = make_ready(lanes, &on);
    if (!on.refused.ok()) on.ready.clear();
  }
  return refused_by_all();
}

Status GpuStaging::make_ready(const Lanes& lanes, OnGpu* on) const {
  const uint64_t bytes = on->writes.size() * slice_bytes_;
  for (const auto& lane : lanes) {
    auto there = lane->make_ready_on_gpu({on->memory->address(), bytes});
    if (!there) return there.error();
    on->ready.push_back(*std::move(there));
    auto here = lane->make_ready({on->host.get(), bytes});
    if (!here) return here.error();
    on->ready.push_back(*std::move(here));
  }
  return {};
}

Status GpuStaging::refused_by_all() const {
  const auto has = [](const OnGpu& on) { return on.refused.ok(); };
  return std::ranges::any_of(on_, has) ? Status() : on_.front().refused;
}

std::vector<bool> GpuStaging::gpus() const {
  std::vector<bool> gpus;
  for (const OnGpu& on : on_) gpus.push_back(on.refused.ok());
  return gpus;
}

std::string GpuStaging::lacking() const {
  std::string why;
  for (const OnGpu& on : on_) {
    if (!on.refused.ok()) why += (why.empty() ? "" : "; ") + on.refused.message();
  }
  return why;
}

void GpuStaging::leave_transports() {
  for (OnGpu& on : on_) on.ready.clear();
}

GpuStaging::Place GpuStaging::put(core::Staging at, uint32_t gpu, bool wanted) {
  OnGpu& on = on_[gpu];
  const bool slot = at.kind == core::Staging::Kind::kSlot;
  if (slot) on.slots.use_again(at.index, wanted);
  const uint32_t buffer = slot ? on.slots.of(at.index) : on.slots.count() + at.index;
  return *(place(at) = Place{gpu, buffer});
}

std::optional<GpuStaging::Place>& GpuStaging::place(core::Staging at) {
  GRADRING_CHECK(at.kind != core::Staging::Kind::kUnit, "units are the host's");
  return at.kind == core::Staging::Kind::kSlot ? slots_at_[at.index] : starts_at_[at.index];
}

std::optional<GpuStaging::Place> GpuStaging::place_of(core::Staging at) const {
  if (at.kind == core::Staging::Kind::kUnit) return std::nullopt;
  return at.kind == core::Staging::Kind::kSlot ? slots_at_[at.index] : starts_at_[at.index];
}

transport::GpuRange GpuStaging::range(Place place) const {
  return {on_[place.gpu].memory.get(), place.buffer * slice_bytes_};
}

std::byte* GpuStaging::address(Place place) const {
  return on_[place.gpu].memory->address() + place.buffer * slice_bytes_;
}

std::byte* GpuStaging::on_host(Place place) const {
  return on_[place.gpu].host.get() + place.buffer * slice_bytes_;
}

void GpuStaging::begin(Place place, Use use) {
  OnGpu& on = on_[place.gpu];
  if (place.buffer < on.slots.count()) on.slots.begin_use(place.buffer);
  if (use == Use::kWrites) ++on.writes[place.buffer];
  ++under_way_;
}

void GpuStaging::end(Place place, Use use) {
  OnGpu& on = on_[place.gpu];
  if (place.buffer < on.slots.count()) on.slots.end_use(place.buffer);
  if (use == Use::kWrites) --on.writes[place.buffer];
  --under_way_;
}

uint32_t GpuStaging::room() const {
  const auto least = std::min_element(on_.begin(), on_.end(), [](const auto& a, const auto& b) {
    return a.slots.room() < b.slots.room();
  });
  return least->slots.room();
}

void GpuStaging::holds(uint32_t slot, const SlotBuffers::Value& value) {
  on_[slots_at_[slot]->gpu].slots.holds(slot, value);
}

std::optional<GpuStaging::Place> GpuStaging::pin(const SlotBuffers::Value& value) {
  for (uint32_t gpu = 0; gpu < on_.size(); ++gpu) {
    if (const auto buffer = on_[gpu].slots.pin(value)) return Place{gpu, *buffer};
  }
  return std::nullopt;
}

}  // namespace gradring::daemon
