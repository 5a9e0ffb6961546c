#pragma once

#include <chrono>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "transport/cuda/communicators.h"
#include "transport/cuda/gpu.h"
#include "transport/cuda/gpus.h"
#include "transport/cuda/launch_lock.h"
#include "transport/cuda/opened.h"
#include "transport/cuda/queue.h"
#include "transport/gpus.h"

namespace gradring::transport::cuda {

class Engine : public Gpus {
 public:
  Engine(std::vector<std::shared_ptr<Gpu>> gpus, const GpuSums& sums);
  ~Engine() override;

  std::string name() const override;
  std::string way() const override;
  bool under_mps() const override;
  Status fault() const override { return why_broken(); }
  Status start() override;
  tl::expected<std::shared_ptr<const void>, Status> enter() override;
  tl::expected<std::shared_ptr<const OpenGpuMemory>, Status> open(const GpuShare& share) override;
  tl::expected<std::shared_ptr<const OpenGpuMemory>, Status> allocate(size_t gpu,
                                                                      uint64_t bytes) override;
  size_t count() const override { return gpus_.size(); }
  std::array<std::byte, 16> uuid(size_t gpu) const override { return gpus_[gpu]->uuid(); }
  bool lend_dmabufs() const override;
  bool reaches(size_t gpu, std::span<const GpuRange> ranges) const override;
  tl::expected<std::unique_ptr<Registration>, Status> make_ready(std::span<std::byte> memory,
                                                                 std::optional<size_t> by) override;
  Status begin(const Sum& sum, uint64_t ticket) override;
  Status begin(const Allreduce& allreduce, uint64_t ticket) override;
  Status begin(const Spread& spread, uint64_t ticket) override;
  void take_ended(std::vector<Ended>* ended) override;
  bool busy() const override;

 private:
  Status start(size_t index);
  tl::expected<std::vector<size_t>, Status> started(std::optional<size_t> best);
  bool may_use_nccl() const;
  bool is_misled() const;
  void settle_way();
  // Bytes a second of an allreduce of all GPUs; 0: it does not work.
  double measure();
  double measure_once(std::span<const GpuRange> ranges);
  Status why_broken() const;
  void has_failed(const Gpu& gpu, Driver::Result result);
  void has_failed(const Status& why);
  Queue& queue_of(size_t index);
  // Who is to do it, where one GPU is; null: none can.
  Queue* queue_for(const Allreduce& all);
  Status begin_now(const Sum& sum, uint64_t ticket);
  Status begin_now(const Allreduce& all, uint64_t ticket);
  Status begin_now(const Spread& spread, uint64_t ticket);
  // What something that is to begin has need of.
  struct Wants {
    uint64_t gpus = 0;     // one of these, by their bits
    bool several = false;  // no, all of them
    bool jointly = false;  // and by NCCL
    Queue::Host host = {};
  };
  Wants wants(const Sum& sum) const;
  Wants wants(const Allreduce& all) const;
  Wants wants(const Spread& spread) const;
  // By their bits: those that fit() these, and all.
  uint64_t fitting(std::span<const GpuRange> ranges) const;
  uint64_t every_one() const;
  // Whether what is to begin may do so at once, but for what waits: nothing works in its memory of
  // the host on another GPU, none that may do it has as much as its driver takes, and, where all
  // GPUs do it at once, nobody has the driver for long. Then not until `launches` is let go of. On
  // their streams GPUs never wait for one another: one that fails would keep the others for ever.
  bool is_free(const Wants& needs, LaunchLock* launches) const;
  // It must come behind something that waits: on a GPU, or in memory of the host.
  bool is_behind_what_waits(const Wants& needs) const;
  void begin_waiting();
  // Whether it is a GPU that some of these lie on, and reaches all of them.
  bool fits(size_t index, std::span<const GpuRange> ranges) const;
  // Of the GPUs that fit the one that works in `host`, or in turn; null: there is none.
  Queue* choose(std::span<const GpuRange> ranges, const Queue::Host& host);
  struct Load {
    size_t traced = 0;  // inputs of a sum that is watched; 0: it is not
    size_t calls = 0;   // of the driver
  };
  Status put(Queue& queue, uint64_t ticket, const Queue::Host& host, const Load& load,
             const std::function<Driver::Result(const Watch&)>& enqueue);
  // The same on all GPUs, for one ticket.
  Status put_jointly(uint64_t ticket, const Queue::Host& host, const Load& load,
                     const std::function<Status(std::span<const Watch>)>& enqueue);
  // Each GPU takes what is for its own memory from the host.
  Status put_on_each(const Spread& spread, uint64_t ticket);
  // Has this, which ended on one GPU, ended on all of them? Then with what all have found.
  bool is_last(Queue::Ended* ended);
  void look_at_joint();

  const std::vector<std::shared_ptr<Gpu>> gpus_;
  const GpuSums sums_;

  std::mutex starting_;
  std::vector<std::shared_ptr<Openings>> openings_;  // null: not started

  mutable std::mutex breaking_;
  Status broken_;

  // Of the thread that begins.
  std::vector<std::unique_ptr<Queue>> queues_;  // null: nothing was begun there
  std::vector<Ended> ended_at_once_;
  struct Waiting {
    uint64_t ticket = 0;
    Wants wants;
    std::function<Status()> begin;
  };
  std::list<Waiting> waiting_;  // in the order in which they began
  size_t turn_ = 0;
  struct Joint {
    size_t left = 0;  // GPUs on which it is not over
    std::optional<std::chrono::steady_clock::time_point> since = {};  // NCCL does it
    std::optional<Nonfinite> nonfinite = {};
  };
  std::map<uint64_t, Joint> joint_;  // by ticket

  // Since start().
  std::string way_ = "by kernels that read each other's memory";
  std::unique_ptr<Communicators> all_;  // null: kernels do it
  // What GPUs that have not ended a measurement may still work on.
  using Left = std::vector<std::shared_ptr<const Allocated>>;
  std::unique_ptr<Left> left_;
};

}  // namespace gradring::transport::cuda
