#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <span>
#include <utility>

#include "tests/core/engine_ring.h"

namespace gradring::core {

inline std::string name_of_node(uint32_t node) {
  return std::string(1, static_cast<char>('a' + node));
}
inline uint32_t number_of_node(const std::string& name) {
  return static_cast<uint32_t>(name.at(0) - 'a');
}

// The hands of one engine: staging memory, and a careful eye on the order of what it wants.
class Ring::Node : public EngineActions {
 public:
  Node(Ring* ring, uint32_t me)
      : engine(ring->view_, me, ring->options_, this),
        ring_(ring),
        me_(me),
        slots_(ring->options_.slots, Values(ring->options_.plan.slice_bytes_max / sizeof(float))),
        starts_(ring->options_.start_buffers, slots_.front()) {}

  // Another life of its daemon.
  Node(Ring* ring, const Node& before)
      : engine(before.engine.view(), before.engine.me(), ring->options_, this),
        peak(before.peak),
        kept(before.kept),
        kept_ever(before.kept_ever),
        ring_(ring),
        me_(before.me_),
        slots_(before.slots_.size(), Values(before.slots_.front().size())),
        starts_(before.starts_.size(), slots_.front()),
        delivered_(before.delivered_) {
    EngineRecord record = before.engine.record();
    // As it is written down: of unequal blocks the submissions alone tell the lengths.
    for (auto& [key, op] : record.ops) {
      if (op.signature) op.signature->blocks = Blocks::told(op.signature->blocks.digest());
    }
    engine.restore(record);
  }

  float* at(Staging staging) {
    if (staging.kind == Staging::Kind::kUnit) {
      if (staging.index >= units_.size()) {
        units_.resize(staging.index + 1, Values(engine.unit_bytes() / sizeof(float)));
      }
      return units_[staging.index].data();
    }
    auto& memory = staging.kind == Staging::Kind::kSlot ? slots_ : starts_;
    return memory.at(staging.index).data();
  }

  void fold(const FoldOrder& order) override {
    const Plan& plan = order.op->plan;
    const Block block = plan.block_of(order.slice);
    const size_t first = plan.input_at(order.slice) / sizeof(float);
    const size_t count = plan.length_of(order.slice) / sizeof(float);
    float* to = at(order.at);
    const Values arrived(to, to + count);
    bool empty = true;
    for (const auto& local : order.op->locals) {
      if (!local || !local->counts) continue;  // of a rank that died before it submitted all
      if (order.source == Fold::kSource && local->rank != block.source) continue;
      EXPECT_EQ(ring_->outcomes_.count(local->ticket), 0u) << "reads a buffer that was given back";
      const Values& from = ring_->memory_[local->input.segment];
      for (size_t i = 0; i < count; ++i) to[i] = empty ? from[first + i] : to[i] + from[first + i];
      empty = false;
    }
    EXPECT_FALSE(empty) << "nothing was folded";
    for (size_t i = 0; i < count && order.onto_arrived; ++i) to[i] += arrived[i];
    const auto divisor = static_cast<float>(std::max(order.divisor, 1u));
    for (size_t i = 0; i < count; ++i) to[i] /= divisor;
    if (order.deliver) deliver(*order.op, order.slice, order.at);
  }

  void sum(const SumOrder& order) override {
    const size_t count = order.op->plan.length_of(order.slice) / sizeof(float);
    Values sum(count);
    for (size_t k = 0; k < order.parts.size(); ++k) {
      const float* part = at(order.parts[k]);
      for (size_t i = 0; i < count; ++i) sum[i] = k == 0 ? part[i] : sum[i] + part[i];
    }
    for (float& value : sum) value /= static_cast<float>(std::max(order.divisor, 1u));
    const Staging to = order.at.value_or(Staging{Staging::Kind::kUnit, engine.units()});
    EXPECT_EQ(lent_.count(to), 0u) << "writes to memory that is lent";
    std::copy(sum.begin(), sum.end(), at(to));
    if (!order.partial) deliver(*order.op, order.slice, to);
  }

  void deliver(const Op& op, uint32_t slice, Staging from) override {
    EXPECT_TRUE(delivered_.insert({op.key, slice}).second) << "a final value is written once";
    const Block block = op.plan.block_of(slice);
    const size_t first = op.plan.output_at(slice) / sizeof(float);
    const size_t count = op.plan.length_of(slice) / sizeof(float);
    for (const auto& local : op.locals) {
      if (!local || !block.goes_to(local->rank)) continue;
      EXPECT_EQ(ring_->outcomes_.count(local->ticket), 0u) << "writes a buffer that was given back";
      std::copy_n(
          at(from), count,
          ring_->memory_[local->output.segment].begin() + static_cast<std::ptrdiff_t>(first));
    }
  }

  std::optional<uint32_t> keep(const Op& op, uint32_t slice) override {
    if (kept.size() >= ring_->room) return std::nullopt;
    kept[kept_ever] = first_output(op, slice);
    return kept_ever++;
  }

  void drop(uint32_t copy) override { EXPECT_EQ(kept.erase(copy), 1u) << "dropped once"; }

  void fetch(const Op& op, uint32_t slice, Staging to) override {
    const auto copy = op.slices[slice].kept;
    const Values value = copy ? kept.at(*copy) : first_output(op, slice);
    std::copy(value.begin(), value.end(), at(to));
  }

  std::optional<ResultDigest> digest(const Op& op) override {
    std::optional<ResultDigest> digest;
    for (const auto& local : op.locals) {
      if (!local) continue;
      uint32_t sum = ring_->garbled.count({me_, local->rank}) > 0 ? 1 : 0;
      for (const float value : ring_->memory_[local->output.segment]) {
        sum = sum * 31 + std::bit_cast<uint32_t>(value);
      }
      if (!digest) digest = {sum, local->rank, std::nullopt};
      if (digest->crc32c != sum) digest->odd_rank = local->rank;
    }
    return digest;
  }

  void send(uint32_t member, const Frame& frame) override {
    EXPECT_NE(member, engine.me());
    EXPECT_NE(frame.type, FrameType::kSlice);
    EXPECT_FALSE(engine.frozen()) << "speaks after its report";
    post(member, {frame, {}, std::nullopt});
  }

  void send_slice(uint32_t member, const Frame& frame, Staging from) override {
    EXPECT_EQ(member, (engine.me() + 1) % engine.view().members.size());
    EXPECT_FALSE(engine.frozen()) << "sends after its report";
    EXPECT_EQ(lent_.count(from), 0u) << "lends memory that is lent already";
    lent_.insert(from);
    const std::span payload(at(from), frame.slice.length / sizeof(float));
    post(member, {frame, Values(payload.begin(), payload.end()), from});
  }

  void send_direct(uint32_t member, const Frame& frame, Staging from) override {
    EXPECT_NE(member, engine.me());
    EXPECT_FALSE(engine.frozen()) << "sends after its report";
    EXPECT_EQ(from.kind, Staging::Kind::kUnit);
    lent_.insert(from);
    units_sent_to.push_back(member);
    const std::span payload(at(from), payload_of(frame) / sizeof(float));
    post(member, {frame, Values(payload.begin(), payload.end()), from});
  }

  void moves(const Op&) override {}
  void complete(uint32_t rank, uint64_t ticket, const Outcome& outcome) override {
    const Account& account = ring_->accounts_.at(ticket);
    EXPECT_EQ(account.ticket.rank, rank);
    EXPECT_TRUE(ring_->outcomes_.emplace(ticket, outcome).second) << "a submission ends once";
    ring_->results_[ticket] = ring_->memory_[account.output];
  }

  void fail_job(const Failure& failure) override { failures.push_back(failure); }
  void absent(const Absence& absence) override { absences.push_back(absence); }
  void at_join_point() override { ++join_points; }
  void stand_in(uint32_t rank, const OpKey& key,
                const std::optional<Signature>& signature) override {
    asked.push_back({rank, key, signature});
  }
  void condemned(const Failure& failure) override { condemnations.push_back(failure); }

  void arrive(uint32_t from, const Parcel& parcel) {
    const auto member = engine.view().index_of(name_of_node(from));
    if (!member) {
      EXPECT_LT(parcel.frame.epoch, engine.view().epoch) << "speaks although it is no member";
      return;
    }
    if (is_direct(parcel.frame)) {
      const auto unit = engine.on_parcel(*member, parcel.frame);
      if (!unit) return;
      std::copy(parcel.payload.begin(), parcel.payload.end(), at({Staging::Kind::kUnit, *unit}));
      return engine.on_parcel_landed(*unit, ring_->now);
    }
    if (parcel.frame.type != FrameType::kSlice) {
      return engine.on_frame(*member, parcel.frame, ring_->now);
    }
    const auto slot = engine.on_slice(*member, parcel.frame);
    if (!slot) return;
    const Staging landing{Staging::Kind::kSlot, *slot};
    std::copy(parcel.payload.begin(), parcel.payload.end(), at(landing));
    peak = std::max(peak, engine.slots_in_use());
    if (ring_->damages && ring_->damages(from, me_, parcel.frame.slice)) {
      *at(landing) += 1e6f;
      return engine.on_slice_damaged(*slot);
    }
    engine.on_slice_landed(*slot);
  }

  void sent(const Parcel& parcel) {
    EXPECT_TRUE(std::equal(parcel.payload.begin(), parcel.payload.end(), at(*parcel.lent)))
        << "wrote to memory that was lent";
    lent_.erase(lent_.find(*parcel.lent));
    engine.on_sent(*parcel.lent);
  }

  // The beginning of a slice arrives, and then its sender dies. The slot is not given back before
  // the next epoch: the transport takes its time.
  void tear(uint32_t from, const Parcel& parcel) {
    const auto member = engine.view().index_of(name_of_node(from));
    if (member && is_direct(parcel.frame)) {
      const auto unit = engine.on_parcel(*member, parcel.frame);
      if (unit) torn_units_.push_back(*unit);
      return;
    }
    const auto slot = member ? engine.on_slice(*member, parcel.frame) : std::nullopt;
    if (slot) torn_.push_back(*slot);
  }

  void adopt(const Proposal& proposal) {
    report.reset();
    if (proposal.view.grown == proposal.view.epoch) delivered_.clear();  // keys begin anew
    engine.adopt(proposal);
    for (const uint32_t slot : std::exchange(torn_, {})) engine.on_slice_aborted(slot);
    for (const uint32_t unit : std::exchange(torn_units_, {})) engine.on_parcel_aborted(unit);
  }

  JobEngine engine;
  bool alive = true;
  std::optional<Report> report;  // while frozen
  std::vector<Failure> failures;
  std::vector<Absence> absences;
  size_t join_points = 0;
  std::vector<Asked> asked;
  std::vector<Failure> condemnations;
  uint32_t peak = 0;
  std::map<uint32_t, Values> kept;
  uint32_t kept_ever = 0;  // copies, dropped ones as well
  std::vector<uint32_t> units_sent_to;

 private:
  void post(uint32_t member, Parcel parcel) {
    const uint32_t to = number_of_node(engine.view().members[member].node);
    // As it goes out: of unequal blocks the digest alone.
    for (Signature* told : {&parcel.frame.ready.signature, &parcel.frame.wanted.signature,
                            &parcel.frame.mismatch.a, &parcel.frame.mismatch.b}) {
      told->blocks = Blocks::told(told->blocks.digest());
    }
    ring_->link(me_, to).push_back(std::move(parcel));
  }

  Values first_output(const Op& op, uint32_t slice) const {
    const auto first = std::find_if(op.locals.begin(), op.locals.end(),
                                    [](const auto& local) { return local.has_value(); });
    EXPECT_EQ(ring_->outcomes_.count((*first)->ticket), 0u) << "reads a buffer that was given back";
    const Values& all = ring_->memory_[(*first)->output.segment];
    const auto begin =
        all.begin() + static_cast<std::ptrdiff_t>(op.plan.output_at(slice) / sizeof(float));
    return {begin, begin + static_cast<std::ptrdiff_t>(op.plan.length_of(slice) / sizeof(float))};
  }

  Ring* const ring_;
  const uint32_t me_;
  std::vector<Values> slots_;
  std::vector<Values> starts_;
  std::deque<Values> units_;
  std::multiset<Staging> lent_;
  std::set<std::pair<OpKey, uint32_t>> delivered_;
  std::vector<uint32_t> torn_;
  std::vector<uint32_t> torn_units_;
};

}  // namespace gradring::core
