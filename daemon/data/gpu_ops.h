#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "daemon/core/job_engine.h"
#include "daemon/data/gpu_orders.h"
#include "daemon/data/messages.h"

namespace gradring::daemon {

// The ops of a job whose buffers the daemon can reach on the node's GPUs. Where all of the node's
// ranks have such, GPUs sum their inputs, and the ring takes the sum from the host's memory of the
// first of them; there it leaves its results too, which GPUs then spread over all. So of each byte
// one copy leaves the GPUs and one comes back, however many ranks there are; and none where all
// ranks of the job are on this node. Where some have no such buffers, each one's is copied for
// itself. Of a reduce-scatter GPUs sum the inputs alone, since each rank gets something else; of an
// allgather they spread the result alone; but where all ranks of the job are on this node they do
// both, from one GPU to the other. Where the network reaches GPUs, slices of all of these go round
// the ring from there (GpuRing). Data thread only.
class GpuOps {
 public:
  using End = std::function<void(uint32_t rank, uint64_t ticket, const core::Outcome& outcome)>;
  // `failed`: a GPU did not do what it was to do; nothing of this job can go on.
  using Failed = std::function<void(const std::string& why)>;
  GpuOps(GpuOrders* orders, End end, Failed failed)
      : orders_(orders), end_(std::move(end)), failed_(std::move(failed)) {}

  // Slices may go round the ring on these GPUs from now on.
  void let_ride(std::vector<bool> gpus) { ride_on_ = std::move(gpus); }

  // Before the engine knows of it: with nothing of its input there.
  void add(const Submit& submit);
  // GPUs have still something to do for the op that had this key before: where a job grows, keys
  // begin anew.
  bool holds(const OpKey& key) const;
  // The engine would not have it.
  void drop(const OpKey& key, uint32_t rank, uint64_t ticket);

  // Whose host memory stands for that of all ranks here: `input` for what they give, if it is not
  // null, and its output for what they get, if it takes that. `alone`: one rank gives something, so
  // that this is its input as it is, and no sum of inputs that have been multiplied by their
  // factors.
  struct Leader {
    uint32_t rank = kNoRank;
    const std::byte* input = nullptr;
    bool takes = false;
    bool alone = false;

    bool takes_for(uint32_t local) const { return takes && local != rank; }
  };
  // Null: each rank's stands for itself.
  const Leader* leader_of(const OpKey& key) const;
  // Its sums are made on the GPUs alone: no memory of the host has any part in it.
  bool stays_there(const OpKey& key) const;
  // Its slices go round the ring on GPUs.
  bool rides(const OpKey& key) const;
  // Of a slice of such an op: what ranks here give to it, with their factors, and where its result
  // goes.
  void inputs_of(const core::Op& op, uint32_t slice, std::vector<transport::GpuRange>* to,
                 std::vector<double>* factors) const;
  void outputs_of(const core::Op& op, uint32_t slice, std::vector<transport::GpuRange>* to) const;
  // The GPU that works on a slice of it.
  uint32_t gpu_of(const OpKey& key, uint32_t slice) const;
  // Slices of such may be worked on: no epoch is about to end.
  bool may_ride_on() const;
  // An op that has ended here has nothing that could be counted as under way.
  bool counts(const OpKey& key) const { return ops_.contains(key); }
  void ride_began(const GpuWork& work);

  // Begins what can be begun: sums of what is ready, and what is final goes to the GPUs.
  void look(core::JobEngine* engine);
  // From now on nothing is begun that overwrites inputs before the engine knows of its end: an
  // epoch is to end. True: nothing of that kind is under way.
  bool come_to_rest();
  void on_ended(const GpuWork& work, const Status& status, core::JobEngine* engine);
  // Of a sum that has just ended: where it begins in the inputs, and whose those are.
  struct Summed {
    uint64_t offset = 0;  // bytes
    std::vector<uint32_t> ranks;
  };
  Summed summed_by(const GpuWork& work, const core::Op& op) const;
  // The engine is done with this rank's part. False: it is none of these. Else the end is told once
  // GPUs have let go of its memory, with its result where it is a good one.
  bool hold_end(const OpKey& key, uint32_t rank, uint64_t ticket, const core::Outcome& outcome);
  // A GPU did not do, or would not begin, what it was to do: no op ends well from now on.
  void fail(const Status& status);
  // Whether so long nothing has ended of what GPUs do for an op that is over, or has no good end
  // any more. To be asked now and then.
  bool hang(core::Time now, core::Time within);
  // They will end nothing any more: nor does any op wait for that, though its memory stays lent.
  void give_up(const Status& why);
  bool gave_up() const { return gave_up_; }
  // Its memory is given nothing any more. Unless it is readable, nothing is read there either, as
  // where its GPU is lost: what was not summed by now is summed in the next epoch, without it.
  void leave(uint32_t rank, bool readable, core::JobEngine* engine);
  // Between freeze() and adopt(): sums with inputs that count no more are made anew. Whatever may
  // begin, may again.
  void end_epoch(core::JobEngine* engine);

  // Ops of this rank whose input is not all here.
  uint32_t coming_of(uint32_t rank) const;
  bool empty() const { return ops_.empty(); }
  bool under_way() const;

 private:
  struct Rank {
    uint32_t rank = 0;
    uint64_t ticket = 0;
    double prescale = 1;
    transport::GpuRange input, output;
    const std::byte* host_input = nullptr;
    std::byte* host_output = nullptr;
    bool gone = false;
    bool unreadable = false;
    std::optional<core::Outcome> outcome = {};  // to be told
    bool told = false;

    bool is(uint32_t number, uint64_t of) const { return rank == number && ticket == of; }
  };
  // A part of the input.
  struct Run {
    uint64_t first = 0;  // in the input
    uint64_t bytes = 0;
    uint64_t to = 0;            // in the output
    uint32_t target = kNoRank;  // whose; of all
    bool here = false;
  };
  // What comes to one place of the host's memory.
  struct Source {
    std::vector<size_t> ranks;  // of the op's, in this order
    std::vector<Run> runs;      // from the beginning on
    uint32_t begun = 0;         // of them
    uint32_t under_way = 0;
  };
  enum class Way : uint8_t {
    kEach,      // each rank's input comes to its own host memory, and its result from there
    kTogether,  // their sum to the leader's, and all results from there
    kThere,     // from GPU to GPU
    kRing,      // likewise, and by the ring to GPUs of other nodes
  };
  struct OnGpu {
    Dtype dtype = Dtype::kFloat32;
    ReduceOp op = ReduceOp::kSum;
    Collective collective = Collective::kAllreduce;
    bool sums = false;      // inputs of its ranks
    bool spreads = false;   // their results
    bool gathers = false;   // both, of an allgather: each input is for itself
    bool scatters = false;  // both, of a reduce-scatter: each result is for itself
    uint64_t bytes = 0;     // of the results
    uint64_t part_bytes = 0;
    std::vector<Rank> ranks;
    bool begun = false;
    bool begun_before = false;
    Way way = Way::kEach;
    uint32_t divisor = 0;
    double factor = 1;
    Leader leader;
    std::vector<Source> sources;
    uint32_t final_slices = 0;   // from the first on
    uint64_t final_bytes = 0;    // in them
    uint64_t may_spread = 0;     // of those
    uint64_t spread = 0;         // of those, given to the GPUs
    uint32_t spreading = 0;      // spreads under way
    uint32_t under_way = 0;      // of all kinds
    bool ended = false;          // for some rank: nothing is summed any more
    core::Time still_since = 0;  // over, and nothing under way has ended since; 0: not looked yet
  };
  using Ops = std::map<OpKey, OnGpu>;

  // What is begun at once, of each op and each way: a GPU always has something to do, and the
  // driver never so much that it would make us wait. Of a run the GPU makes pieces
  // (transport/cuda).
  static constexpr uint32_t kRunsAtOnce = 4;
  static constexpr uint64_t kRunBytesMost = uint64_t{64} << 20;
  static transport::GpuRange from(const transport::GpuRange& range, uint64_t bytes) {
    return {range.memory, range.offset + bytes};
  }

  static void look_at_buffers(OnGpu& on);
  static bool takes(const Rank& rank, const Run& run);
  static bool is_lost(const OnGpu& on, const Source& source);
  static uint64_t run_bytes_of(const OnGpu& on);
  static std::vector<Run> runs_of(const OnGpu& on, const Source& source, const core::Op& op);
  static bool waits_for_loss(const OnGpu& on, const core::Op& op);
  static bool left_out(const core::Op& op);
  bool fits_ring(const OnGpu& on, const core::Op& op) const;
  Way way_for(const OnGpu& on, const core::Op& op, const core::JobEngine& engine) const;
  void begin(OnGpu& on, const core::Op& op, const core::JobEngine& engine);
  Status begin(OnGpu& on, const core::Op& op, Way way);
  static std::vector<uint32_t> ranks_that_give(const core::Op& op);
  static void ride(OnGpu& on, const OpKey& key, core::JobEngine* engine);
  void choose_sources(OnGpu& on, const core::Op& op) const;
  Status begin_more(const OpKey& key, OnGpu& on);
  Status begin_run(const OnGpu& on, const Source& source, const Run& run, const GpuWork& work);
  void count_final(OnGpu& on, const core::Op& op) const;
  void spread_more(const OpKey& key, OnGpu& on);
  Status spread_over(const OpKey& key, OnGpu& on, const std::byte* from,
                     const std::vector<size_t>& ranks, uint64_t bytes);
  void tell(const OnGpu& on, const Source& source, const OpKey& key, core::JobEngine* engine) const;
  void tell_ends(OnGpu& on) const;
  void settle(Ops::iterator at);

  GpuOrders* const orders_;
  const End end_;
  const Failed failed_;
  std::vector<bool> ride_on_;
  std::string why_failed_;  // a GPU; empty: none has
  bool gave_up_ = false;
  bool resting_ = false;
  Ops ops_;
  std::vector<transport::GpuRange> ranges_;   // kept for its capacity
  std::vector<double> factors_;               // likewise
  std::vector<transport::GpuRange> outputs_;  // likewise
};

}  // namespace gradring::daemon
