#pragma once

#include <algorithm>
#include <cstddef>

#include "tests/core/engine_ring.h"

namespace gradring::core {

// The hands of one engine: staging memory, and a careful eye on the order of what it wants.
class Ring::Node : public EngineActions {
 public:
  Node(Ring* ring, uint32_t me)
      : engine(ring->view_, me, ring->options_, this),
        ring_(ring),
        me_(me),
        slots_(ring->options_.slots, Values(ring->options_.plan.slice_bytes_max / sizeof(float))),
        starts_(ring->options_.start_buffers, slots_.front()) {}

  float* at(Staging staging) {
    auto& memory = staging.kind == Staging::Kind::kSlot ? slots_ : starts_;
    return memory.at(staging.index).data();
  }

  void fold(const FoldOrder& order) override {
    const Plan& plan = order.op->plan;
    const size_t first = plan.offset_of(order.slice) / sizeof(float);
    const size_t count = plan.length_of(order.slice) / sizeof(float);
    float* to = at(order.at);
    bool empty = !order.onto_arrived;
    for (const auto& local : order.op->locals) {
      if (order.source == Fold::kRoot && local->rank != order.op->signature->root) continue;
      EXPECT_EQ(ring_->outcomes_.count(local->ticket), 0u) << "reads a buffer that was given back";
      const Values& from = ring_->memory_[local->input.segment];
      for (size_t i = 0; i < count; ++i) to[i] = empty ? from[first + i] : to[i] + from[first + i];
      empty = false;
    }
    EXPECT_FALSE(empty) << "nothing was folded";
    if (order.divisor == 0) return;
    for (size_t i = 0; i < count; ++i) to[i] /= static_cast<float>(order.divisor);
  }

  void deliver(const Op& op, uint32_t slice, Staging from) override {
    EXPECT_TRUE(delivered_.insert({op.key, slice}).second) << "a final value is written once";
    const size_t first = op.plan.offset_of(slice) / sizeof(float);
    const size_t count = op.plan.length_of(slice) / sizeof(float);
    for (const auto& local : op.locals) {
      EXPECT_EQ(ring_->outcomes_.count(local->ticket), 0u) << "writes a buffer that was given back";
      std::copy_n(
          at(from), count,
          ring_->memory_[local->output.segment].begin() + static_cast<std::ptrdiff_t>(first));
    }
  }

  void send(uint32_t member, const Frame& frame) override {
    EXPECT_NE(member, me_);
    EXPECT_NE(frame.type, FrameType::kSlice);
    ring_->link(me_, member).push_back({frame, {}, std::nullopt});
  }

  void send_slice(uint32_t member, const Frame& frame, Staging from) override {
    EXPECT_EQ(member, (me_ + 1) % ring_->nodes());
    EXPECT_TRUE(lent_.insert(from).second) << "lends memory that is lent already";
    const float* begin = at(from);
    ring_->link(me_, member)
        .push_back({frame, Values(begin, begin + frame.slice.length / sizeof(float)), from});
  }

  void complete(uint32_t rank, uint64_t ticket, const Outcome& outcome) override {
    const Account& account = ring_->accounts_.at(ticket);
    EXPECT_EQ(account.ticket.rank, rank);
    EXPECT_TRUE(ring_->outcomes_.emplace(ticket, outcome).second) << "a submission ends once";
    ring_->results_[ticket] = ring_->memory_[account.output];
  }

  void fail_job(const Failure& failure) override { failures.push_back(failure); }

  void arrive(uint32_t from, const Parcel& parcel) {
    if (parcel.frame.type != FrameType::kSlice) {
      return engine.on_frame(from, parcel.frame, ring_->now);
    }
    const auto slot = engine.on_slice(from, parcel.frame);
    if (!slot) return;
    std::copy(parcel.payload.begin(), parcel.payload.end(), at({Staging::Kind::kSlot, *slot}));
    peak = std::max(peak, engine.slots_in_use());
    engine.on_slice_landed(*slot);
  }

  void sent(const Parcel& parcel) {
    EXPECT_TRUE(std::equal(parcel.payload.begin(), parcel.payload.end(), at(*parcel.lent)))
        << "wrote to memory that was lent";
    lent_.erase(*parcel.lent);
    engine.on_sent(*parcel.lent);
  }

  JobEngine engine;
  std::vector<Failure> failures;
  uint32_t peak = 0;

 private:
  Ring* const ring_;
  const uint32_t me_;
  std::vector<Values> slots_;
  std::vector<Values> starts_;
  std::set<Staging> lent_;
  std::set<std::pair<OpKey, uint32_t>> delivered_;
};

}  // namespace gradring::core
