#include "transport/cuda/communicators.h"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <thread>

#include "transport/cuda/launch_lock.h"

namespace gradring::transport::cuda {
namespace {

// NCCL looks at the whole machine first.
constexpr auto kMadeWithin = std::chrono::seconds(60);
// It may set up a way when it is first gone, and load a kernel.
constexpr auto kFirstCalledWithin = std::chrono::seconds(10);
// After that a call takes microseconds; and whoever makes it is not to be missed by other nodes.
constexpr auto kCalledWithin = std::chrono::seconds(1);
// It waits for kernels that have been told to end, and frees what they had.
constexpr auto kAbortedWithin = std::chrono::seconds(10);

// By nccl.h: ncclDataType_t; -1: none, or one that is not summed as the host does it.
int number_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::kInt8:
      return 0;
    case Dtype::kUint8:
      return 1;
    case Dtype::kInt32:
      return 2;
    case Dtype::kUint32:
      return 3;
    case Dtype::kInt64:
      return 4;
    case Dtype::kUint64:
      return 5;
    case Dtype::kFloat32:
      return 7;
    case Dtype::kFloat64:
      return 8;
    default:
      return -1;
  }
}

// ncclRedOp_t; -1: none. An average is divided later, where its sum is.
int number_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAverage:
      return 0;
    case ReduceOp::kProduct:
      return 1;
    case ReduceOp::kMax:
      return 2;
    case ReduceOp::kMin:
      return 3;
    default:
      return -1;
  }
}

}  // namespace

bool Communicators::takes(Dtype dtype, ReduceOp op) {
  const bool compares = op == ReduceOp::kMin || op == ReduceOp::kMax;
  return number_of(dtype) >= 0 && number_of(op) >= 0 && !(compares && is_float(dtype));
}

Communicators::Communicators(const Nccl& nccl, const std::vector<std::shared_ptr<Gpu>>& gpus)
    : nccl_(nccl) {
  for (const auto& gpu : gpus) ranks_.push_back({gpu});
}

tl::expected<std::unique_ptr<Communicators>, Status> Communicators::make(
    const std::vector<std::shared_ptr<Gpu>>& gpus) {
  const auto found = nccl();
  if (!found) return tl::unexpected(Status(Code::kUnavailable, found.error()));
  std::unique_ptr<Communicators> made(new Communicators(**found, gpus));
  Status status = made->allocate();
  if (status.ok()) status = made->open();
  if (status.ok()) status = made->warm_up();
  if (!status.ok()) return tl::unexpected(std::move(status));
  made->tried_out_ = true;
  return made;
}

// Aborted even where all is well: any other end waits for all ranks, one after the other. What
// NCCL may still work in stays, as do the GPUs, which the thread that aborts has as well.
Communicators::~Communicators() {
  abort();
  if (!let_go()) return;
  for (const Rank& rank : ranks_) {
    if (!rank.gpu->rest()) continue;  // a driver would wait for it, and it for ever
    const auto lock = lock_launches();
    const Gpu::Current current(*rank.gpu);
    if (rank.part != 0 && current.result() == Driver::kSuccess) rank.gpu->driver().free(rank.part);
  }
}

Status Communicators::allocate() {
  const auto lock = lock_launches();
  const uint64_t bytes = kPartBytes + 2 * size() * kWideBytes;
  for (Rank& rank : ranks_) {
    const Gpu::Current current(*rank.gpu);
    auto result = current.result();
    if (result == Driver::kSuccess) result = rank.gpu->driver().allocate(&rank.part, bytes);
    if (result == Driver::kSuccess) continue;
    rank.part = 0;
    return {Code::kUnavailable, rank.gpu->words("has no memory left for NCCL", result) +
                                    fmt::format(". Leave {} MiB of it to the daemon", bytes >> 20)};
  }
  return {};
}

Status Communicators::open() {
  Nccl::UniqueId id{};
  if (const auto result = nccl_.unique_id(&id); result != Nccl::kSuccess) {
    return refuse("does not start", result);
  }
  Nccl::Config config;
  return together("makes no communicators", 0, [&](Rank& rank) {
    const auto number = static_cast<int>(&rank - ranks_.data());
    return nccl_.init_rank(&rank.comm, static_cast<int>(size()), id, number, &config);
  });
}

// Once each way, so that no op is the first to go it.
Status Communicators::warm_up() {
  for (const uint64_t bytes : kTriedBytes) {
    if (Status status = try_out(bytes); !status.ok()) return status;
  }
  const auto rests = [](const Rank& rank) { return rank.gpu->rest(); };
  if (std::all_of(ranks_.begin(), ranks_.end(), rests)) return fault();
  abort();
  return {Code::kUnavailable, name() + " does not end its first sum among the daemon's GPUs"};
}

Status Communicators::try_out(uint64_t bytes) {
  const uint64_t share = std::max<uint64_t>(bytes / sizeof(float) / size(), 1);
  Status status = reduce_scatter(Dtype::kFloat32, ReduceOp::kSum, share);
  return status.ok() ? all_gather(Dtype::kFloat32, share) : status;
}

Status Communicators::reduce_scatter(Dtype dtype, ReduceOp op, uint64_t share) {
  const uint64_t bytes = share * size_of(dtype);
  return together("begins no sum", bytes, [&](Rank& rank) {
    const auto number = static_cast<uint64_t>(&rank - ranks_.data());
    return nccl_.reduce_scatter(std::bit_cast<const void*>(rank.part),
                                std::bit_cast<void*>(rank.part + number * bytes), share,
                                number_of(dtype), number_of(op), rank.comm, rank.gpu->stream());
  });
}

// What is moved has no type of its own: any of its width will do.
Status Communicators::all_gather(Dtype dtype, uint64_t share) {
  const uint64_t bytes = share * size_of(dtype);
  return together("spreads no result", bytes, [&](Rank& rank) {
    const auto number = static_cast<uint64_t>(&rank - ranks_.data());
    return nccl_.all_gather(std::bit_cast<const void*>(rank.part + number * bytes),
                            std::bit_cast<void*>(rank.part), bytes, number_of(Dtype::kUint8),
                            rank.comm, rank.gpu->stream());
  });
}

template <typename Call>
Status Communicators::together(const char* what, uint64_t bytes, const Call& call) {
  const bool first = called_.emplace(what, std::bit_width(bytes)).second;
  const auto patience = !tried_out_ ? kMadeWithin : first ? kFirstCalledWithin : kCalledWithin;
  const auto lock = lock_launches();
  auto result = nccl_.group_start();
  for (Rank& rank : ranks_) {
    const Gpu::Current current(*rank.gpu);
    if (current.result() != Driver::kSuccess) {
      nccl_.group_end();
      return {Code::kUnavailable,
              rank.gpu->words("cannot be entered by the daemon", current.result())};
    }
    if (result == Nccl::kSuccess || result == Nccl::kInProgress) result = call(rank);
  }
  const auto ended = nccl_.group_end();
  const bool called = result == Nccl::kSuccess || result == Nccl::kInProgress;
  if (called) result = ended;
  if (result == Nccl::kInProgress) return settle(what, patience);
  return result == Nccl::kSuccess ? Status() : refuse(what, result);
}

Status Communicators::settle(const char* what, std::chrono::seconds patience) {
  const auto until = std::chrono::steady_clock::now() + patience;
  for (const Rank& rank : ranks_) {
    for (;;) {
      Nccl::Result error = Nccl::kSuccess;
      auto result = nccl_.error_of(rank.comm, &error);
      if (result == Nccl::kSuccess) result = error;
      if (result == Nccl::kSuccess) break;
      if (result != Nccl::kInProgress) return refuse(what, result);
      if (std::chrono::steady_clock::now() > until) {
        return {Code::kUnavailable,
                fmt::format("{} {} within {} s", name(), what, patience.count())};
      }
      std::this_thread::yield();
    }
  }
  return {};
}

Status Communicators::fault() {
  for (const Rank& rank : ranks_) {
    Nccl::Result error = Nccl::kSuccess;
    if (rank.comm == nullptr) continue;
    auto result = nccl_.error_of(rank.comm, &error);
    if (result == Nccl::kSuccess) result = error;
    if (result != Nccl::kSuccess && result != Nccl::kInProgress) {
      return refuse("has failed on one of the daemon's GPUs", result);
    }
  }
  return {};
}

void Communicators::abort() {
  std::vector<Rank> aborted;
  for (Rank& rank : ranks_) {
    if (rank.comm != nullptr) aborted.push_back({rank.gpu, std::exchange(rank.comm, nullptr)});
  }
  if (aborted.empty()) return;
  std::promise<void> over;
  aborting_ = over.get_future();
  std::thread([&nccl = nccl_, aborted = std::move(aborted), over = std::move(over)]() mutable {
    pthread_setname_np(pthread_self(), "gr-nccl-end");
    for (const Rank& rank : aborted) {
      const Gpu::Current current(*rank.gpu);
      nccl.abort(rank.comm);
    }
    aborted.clear();  // whoever is told may let go of the GPUs last, and not this thread
    over.set_value();
  }).detach();
}

bool Communicators::let_go() const {
  return !aborting_.valid() || aborting_.wait_for(kAbortedWithin) == std::future_status::ready;
}

Status Communicators::refuse(const char* what, Nccl::Result result) const {
  const char* const words = nccl_.words_of(result);
  return {Code::kUnavailable,
          fmt::format("{} {}: {}. NCCL_DEBUG=WARN in gradringd's environment tells more", name(),
                      what, words != nullptr ? words : "for no reason that it tells")};
}

}  // namespace gradring::transport::cuda
