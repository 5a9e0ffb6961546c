#include <algorithm>

#include "client/src/communicator.h"

// What an op's buffers lie in: memory that is known, or a stage.
namespace gradring::client {

Status Communicator::lend(std::unique_lock<std::mutex>& lock, const gradring_op& op, bool overlap,
                          Request* request) {
  const Extent& extent = request->extent;
  const auto* const input = static_cast<const std::byte*>(op.input);
  const auto* const output = static_cast<const std::byte*>(op.output);
  if (overlap && needs_stage(input) && needs_stage(output)) {
    const std::byte* const first = std::min(input, output);
    const std::byte* const end = std::max(input + extent.input, output + extent.output);
    const auto both = stage(lock, first, static_cast<uint64_t>(end - first));
    if (!both) return both.error();
    request->input = Loan(Place{*both, static_cast<uint64_t>(input - first)});
    request->output = Loan(Place{*both, static_cast<uint64_t>(output - first)});
    return {};
  }
  if (extent.input != 0) {
    const auto from = place(lock, input, extent.input, "input");
    if (!from) return from.error();
    request->input = Loan(*from);
  }
  if (extent.output != 0) {
    const auto to = place(lock, output, extent.output, "output");
    if (!to) return to.error();
    request->output = Loan(*to);
  }
  return {};
}

bool Communicator::needs_stage(const void* memory) {
  return segments_.around(memory) == nullptr && GpuMemory::is_of_a_gpu(memory);
}

tl::expected<Place, Status> Communicator::place(std::unique_lock<std::mutex>& lock,
                                                const void* memory, uint64_t bytes,
                                                std::string_view what) {
  auto found = segments_.find(memory, bytes, what);
  if (found || !needs_stage(memory)) return found;
  const auto staged = stage(lock, memory, bytes);
  if (!staged) return tl::unexpected(staged.error());
  return Place{*staged, 0};
}

// What nobody registered, of a GPU: some pinned memory of ours stands in for it.
tl::expected<Segment*, Status> Communicator::stage(std::unique_lock<std::mutex>& lock,
                                                   const void* memory, uint64_t bytes) {
  const uint64_t capacity = Stages::capacity_for(bytes);
  Segment* stage = stages_.idle(capacity, memory);
  if (stage == nullptr) {
    give_back_stages(lock, Stages::kIdleMost);
    auto made = make_segment(lock, GpuMemory::shadow_bytes(capacity));
    if (!made && made.error().code() == Code::kResourceExhausted) {
      give_back_stages(lock, 0);
      made = make_segment(lock, GpuMemory::shadow_bytes(capacity));
    }
    if (!made) return tl::unexpected(made.error());
    auto gpu = GpuMemory::of(memory, capacity, made->mapping);
    if (!gpu) {
      static_cast<void>(free_segment(lock, made->id));
      return tl::unexpected(gpu.error());
    }
    made->gpu = std::move(*gpu);
    made->bytes = capacity;
    made->staged = true;
    stage = &stages_.insert(std::move(*made));
  }
  // The user's, of which nothing is ever read or written by that type.
  stage->base = static_cast<std::byte*>(const_cast<void*>(memory));
  return stage;
}

void Communicator::give_back_stages(std::unique_lock<std::mutex>& lock, uint64_t idle_most) {
  while (auto idle = stages_.take_idle_beyond(idle_most)) {
    const uint64_t id = idle->id;
    lock.unlock();
    idle.reset();  // waits until the GPU has copied the last result
    lock.lock();
    static_cast<void>(free_segment(lock, id));  // if it cannot be, it ends with the session
  }
}

}  // namespace gradring::client
