#include <algorithm>
#include <iterator>
#include <utility>

#include "client/src/communicator/communicator.h"
#include "client/src/gpu/awaited_words.h"

// What an op's buffers lie in: memory that is known, or a stage.
namespace gradring::client {

Status Communicator::lend(std::unique_lock<std::mutex>& lock, const gradring_op& op, bool overlap,
                          Request* request) {
  const Extent& extent = request->extent;
  const auto* const input = static_cast<const std::byte*>(op.input);
  const auto* const output = static_cast<const std::byte*>(op.output);
  if (overlap && needs_stage(input) && (input == output || needs_stage(output))) {
    const std::byte* const first = std::min(input, output);
    const std::byte* const end = std::max(input + extent.input, output + extent.output);
    const auto both =
        gpu_place(lock, first, static_cast<uint64_t>(end - first), request->suits_gpus());
    if (!both) return both.error();
    const auto [segment, offset] = *both;
    request->input = Loan(Place{segment, offset + static_cast<uint64_t>(input - first)});
    request->output = Loan(Place{segment, offset + static_cast<uint64_t>(output - first)});
    return {};
  }
  if (extent.input != 0) {
    const bool there = request->suits_gpus() && request->gives_to_gpus();
    auto from = place(lock, input, extent.input, "input", there);
    if (!from) return from.error();
    Given given{from->offset, extent.input,
                request->is_summed_in_place() && from->segment->in_place()};
    if (!from->segment->may_give(given)) {
      const auto apart = stage(lock, input, extent.input, there);
      if (!apart) return apart.error();
      from = Place{*apart, 0};
      given = {0, extent.input, false};
    }
    request->input = Loan(*from, given);
  }
  if (extent.output != 0) {
    const bool there = request->suits_gpus() && request->takes_from_gpus();
    const auto to = place(lock, output, extent.output, "output", there);
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
                                                std::string_view what, bool there) {
  auto found = segments_.find(memory, bytes, what);
  if (found || !needs_stage(memory)) return found;
  return gpu_place(lock, memory, bytes, there);
}

// Of what nobody registered: `there`, where the daemon's GPUs have a part in the op.
tl::expected<Place, Status> Communicator::gpu_place(std::unique_lock<std::mutex>& lock,
                                                    const void* memory, uint64_t bytes,
                                                    bool there) {
  if (there) {
    if (const auto shared = shared_place(lock, memory, bytes)) return *shared;
  }
  const auto staged = stage(lock, memory, bytes, there);
  if (!staged) return tl::unexpected(staged.error());
  return Place{*staged, 0};
}

// What nobody registered, of a GPU: some pinned memory of ours stands in for it; and some of the
// GPU's too, where the daemon's GPUs have a part in the op there.
tl::expected<Segment*, Status> Communicator::stage(std::unique_lock<std::mutex>& lock,
                                                   const void* memory, uint64_t bytes, bool there) {
  const uint64_t capacity = Stages::capacity_for(bytes);
  const bool wants_block = there && opens_ && session_.sums_on_gpus();
  Segment* stage = wants_block ? stages_.idle(capacity, memory, true) : nullptr;
  std::shared_ptr<const GpuBlock> block;
  if (stage == nullptr && wants_block) block = make_block(lock, memory, capacity);
  if (stage == nullptr && block == nullptr) stage = stages_.idle(capacity, memory, false);
  if (stage == nullptr) {
    auto made = make_stage(lock, memory, capacity);
    if (!made) {
      drop(lock, std::move(block));
      return tl::unexpected(made.error());
    }
    // Refused once is refused always: the log of the daemon says why.
    if (block != nullptr) {
      opens_ = let_daemon_open(lock, *made, block->data(), capacity, &block->pages());
    }
    made->opened = block != nullptr && opens_;
    if (made->opened) {
      made->block = std::move(block);
    } else if (block != nullptr) {
      drop(lock, std::move(block));
    }
    stage = &stages_.insert(std::move(*made));
  }
  // The user's, of which nothing is ever read or written by that type.
  stage->base = static_cast<std::byte*>(const_cast<void*>(memory));
  return stage;
}

tl::expected<Segment, Status> Communicator::make_stage(std::unique_lock<std::mutex>& lock,
                                                       const void* memory, uint64_t capacity) {
  auto made = make_shadow(lock, memory, capacity);
  if (made) made->staged = true;
  return made;
}

// What follows so much memory of a GPU, in memory of the host.
tl::expected<Segment, Status> Communicator::make_shadow(std::unique_lock<std::mutex>& lock,
                                                        const void* memory, uint64_t bytes) {
  give_back_stages(lock, Stages::kIdleMost);
  auto made = make_segment(lock, GpuMemory::shadow_bytes(bytes));
  if (!made && made.error().code() == Code::kResourceExhausted) {
    give_back_stages(lock, 0);
    made = make_segment(lock, GpuMemory::shadow_bytes(bytes));
  }
  if (!made) return made;
  if (Status followed = follow_gpu(lock, memory, bytes, &*made); !followed.ok()) {
    return tl::unexpected(followed);
  }
  made->bytes = bytes;
  return made;
}

// Null: this process has as many as it may, or the GPU no room.
std::shared_ptr<const GpuBlock> Communicator::make_block(std::unique_lock<std::mutex>& lock,
                                                         const void* memory, uint64_t capacity) {
  const auto made = [&] {
    lock.unlock();  // the driver may take its time
    auto block = GpuBlock::beside(memory, capacity, settings_.gpu_stage_bytes);
    lock.lock();
    return block;
  };
  auto block = made();
  while (block == nullptr) {
    auto idle = stages_.take_long_idle_block();
    if (!idle) break;
    give_back_stage(lock, std::move(*idle));
    block = made();
  }
  return block;
}

void Communicator::give_back_stages(std::unique_lock<std::mutex>& lock, uint64_t idle_most) {
  while (auto idle = stages_.take_idle_beyond(idle_most)) {
    give_back_stage(lock, std::move(*idle));
  }
}

void Communicator::give_back_stage(std::unique_lock<std::mutex>& lock, Segment stage) {
  static_cast<void>(free_segment(lock, stage.id));  // if it cannot be, it ends with the session
  leaving_.push_back({nullptr, std::move(stage)});
  let_leave(lock);
}

void Communicator::let_leave(std::unique_lock<std::mutex>& lock) {
  if (leaving_.empty()) return;
  auto leaving = std::exchange(leaving_, {});
  lock.unlock();
  AwaitedWords::get().unless_any([&leaving] { leaving.clear(); });
  lock.lock();
  std::move(leaving.begin(), leaving.end(), std::back_inserter(leaving_));
}

// Memory that another process has open is to be closed there before it goes.
void Communicator::close_opened(std::unique_lock<std::mutex>& lock, TimePoint deadline) {
  std::vector<uint64_t> open = stages_.ids_of_those_with_blocks();
  for (const auto& more : {shares_.ids(), segments_.ids_of_those_opened()}) {
    open.insert(open.end(), more.begin(), more.end());
  }
  for (const uint64_t id : open) {
    if (session_.lost()) return;
    wire::ClientMessage message;
    message.mutable_free()->set_segment(id);
    static_cast<void>(
        session_.call(lock, std::move(message), wire::DaemonMessage::kFreed, deadline));
  }
}

}  // namespace gradring::client
