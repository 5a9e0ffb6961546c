#include "tests/core/engine_ring.h"

#include <algorithm>
#include <cmath>

#include "tests/core/engine_ring_node.h"

namespace gradring::core {

EngineOptions small_slices(uint32_t slots) {
  EngineOptions options;
  options.plan.slice_bytes_min = 64;
  options.plan.slice_bytes_max = 256;
  options.slots = slots;
  return options;
}

View ring_view(uint32_t nodes, uint32_t ranks_per_node) {
  View view;
  view.job = "train";
  view.incarnation = {7};
  view.epoch = 1;
  view.size = nodes * ranks_per_node;
  view.policy = "fail";
  for (uint32_t node = 0; node < nodes; ++node) {
    Member member{std::string(1, static_cast<char>('a' + node)), {}};
    for (uint32_t i = 0; i < ranks_per_node; ++i) {
      const uint32_t rank = node * ranks_per_node + i;
      member.ranks.push_back({rank, i, 1000 + int64_t{rank}, rank});
    }
    view.members.push_back(member);
  }
  return view;
}

OpKey op(uint64_t sequence) { return {0, sequence}; }

Signature sum_of(uint64_t count) {
  return {Collective::kAllreduce, Dtype::kFloat32, ReduceOp::kSum, 0, count};
}

Signature average_of(uint64_t count) {
  return {Collective::kAllreduce, Dtype::kFloat32, ReduceOp::kAverage, 0, count};
}

Signature broadcast_of(uint64_t count, uint32_t root) {
  return {Collective::kBroadcast, Dtype::kFloat32, ReduceOp::kNone, root, count};
}

Signature barrier() { return {}; }

Values values_of(uint32_t rank, uint64_t count, uint64_t op) {
  Random random((op << 32 | rank) + 1);
  Values values(count);
  for (float& value : values) {
    const float mantissa = static_cast<float>(random.below(2000)) - 1000.0f;
    value = std::ldexp(mantissa, static_cast<int>(random.below(16)) - 8);
  }
  return values;
}

Ring::Ring(uint32_t nodes, uint32_t ranks_per_node, const EngineOptions& options)
    : view_(ring_view(nodes, ranks_per_node)), options_(options) {
  for (uint32_t me = 0; me < nodes; ++me) nodes_.push_back(std::make_unique<Node>(this, me));
}

Ring::~Ring() = default;

JobEngine& Ring::engine(uint32_t node) { return nodes_[node]->engine; }

const std::vector<Failure>& Ring::failures(uint32_t node) const { return nodes_[node]->failures; }

uint32_t Ring::peak_slots(uint32_t node) const { return nodes_[node]->peak; }

size_t Ring::failures() const {
  size_t sum = 0;
  for (const auto& node : nodes_) sum += node->failures.size();
  return sum;
}

void Ring::fail_everywhere(const Failure& failure) {
  for (const auto& node : nodes_) node->engine.fail(failure);
}

Ticket Ring::submit(uint32_t rank, OpKey key, const Signature& signature, Values input, Place place,
                    const std::string& name) {
  if (input.empty()) input.resize(signature.count);
  Account account;
  account.ticket = {rank, next_ticket_++};
  account.input = account.output = memory_.size();
  memory_.push_back(std::move(input));
  if (place == Place::kApart) {
    account.output = memory_.size();
    memory_.emplace_back(signature.count, -1.0f);
  }
  accounts_[account.ticket.number] = account;
  const Status status = engine_of_rank(rank).submit(
      {rank, account.ticket.number, key, name, signature, {account.input, 0}, {account.output, 0}},
      now);
  EXPECT_TRUE(status.ok()) << status.message();
  return account.ticket;
}

Status Ring::refused(uint32_t rank, OpKey key, const Signature& signature) {
  Status status =
      engine_of_rank(rank).submit({rank, next_ticket_++, key, "", signature, {}, {}}, now);
  EXPECT_FALSE(status.ok()) << "was accepted";
  return status;
}

std::vector<Ticket> Ring::submit_all(OpKey key, const Signature& signature, Place place) {
  std::vector<Ticket> tickets;
  for (uint32_t rank = 0; rank < ranks(); ++rank) {
    tickets.push_back(
        submit(rank, key, signature, values_of(rank, signature.count, key.sequence), place));
  }
  return tickets;
}

Outcome Ring::outcome(Ticket ticket) const {
  const auto it = outcomes_.find(ticket.number);
  if (it != outcomes_.end()) return it->second;
  ADD_FAILURE() << "rank " << ticket.rank << "'s submission has not ended";
  return {Verdict::kNone, {}, 0, 0, 0};
}

const Values& Ring::result(Ticket ticket) const { return results_.at(ticket.number); }

bool Ring::all_ok(const std::vector<Ticket>& tickets) const {
  return std::all_of(tickets.begin(), tickets.end(), [this](Ticket ticket) {
    return ended(ticket) && outcome(ticket).verdict == Verdict::kOk;
  });
}

void Ring::pump(uint32_t node, uint32_t budget) {
  nodes_[node]->engine.pump(budget);
  check_slots();
}

bool Ring::deliver(uint32_t from, uint32_t to) {
  if (link(from, to).empty()) return false;
  deliver_at(from, to, 0);
  return true;
}

bool Ring::deliver_first(uint32_t from, uint32_t to, FrameType type) {
  const auto& parcels = link(from, to);
  for (size_t i = 0; i < parcels.size(); ++i) {
    if (parcels[i].frame.type != type) continue;
    deliver_at(from, to, i);
    return true;
  }
  return false;
}

void Ring::deliver_at(uint32_t from, uint32_t to, size_t index) {
  auto& parcels = link(from, to);
  const auto it = parcels.begin() + static_cast<std::ptrdiff_t>(index);
  const Parcel parcel = *it;
  parcels.erase(it);
  nodes_[to]->arrive(from, parcel);
  if (parcel.lent) nodes_[from]->sent(parcel);
  check_slots();
}

void Ring::run() {
  bool moved = true;
  while (moved) {
    moved = false;
    for (uint32_t node = 0; node < nodes(); ++node) pump(node);
    for (uint32_t from = 0; from < nodes(); ++from) {
      for (uint32_t to = 0; to < nodes(); ++to) {
        if (from != to && held_.count({from, to}) == 0) moved = deliver(from, to) || moved;
      }
    }
  }
}

void Ring::run_shuffled(uint64_t seed) {
  Random random(seed);
  while (true) {
    std::vector<std::pair<uint32_t, uint32_t>> busy;
    for (const auto& [ends, parcels] : links_) {
      if (!parcels.empty() && held_.count(ends) == 0) busy.push_back(ends);
    }
    if (busy.empty()) {
      uint32_t worked = 0;
      for (const auto& node : nodes_) worked += node->engine.pump(1);
      check_slots();
      const bool silent = std::all_of(links_.begin(), links_.end(), [this](const auto& entry) {
        return entry.second.empty() || held_.count(entry.first) > 0;
      });
      if (worked == 0 && silent) return;
      continue;
    }
    const auto [from, to] = busy[random.below(busy.size())];
    // Slices keep their order, as on a connection; what has no payload may go another way.
    const auto& parcels = link(from, to);
    size_t index = random.below(parcels.size());
    if (parcels[index].frame.type == FrameType::kSlice) {
      index = 0;
      while (parcels[index].frame.type != FrameType::kSlice) ++index;
    }
    deliver_at(from, to, index);
    pump(static_cast<uint32_t>(random.below(nodes())), 1);
  }
}

size_t Ring::under_way(uint32_t from, uint32_t to, FrameType type) const {
  const auto it = links_.find({from, to});
  if (it == links_.end()) return 0;
  return static_cast<size_t>(
      std::count_if(it->second.begin(), it->second.end(),
                    [type](const Parcel& parcel) { return parcel.frame.type == type; }));
}

size_t Ring::under_way(FrameType type) const {
  size_t sum = 0;
  for (const auto& [ends, parcels] : links_) sum += under_way(ends.first, ends.second, type);
  return sum;
}

Frame Ring::peek(uint32_t from, uint32_t to, FrameType type) const {
  const auto it = links_.find({from, to});
  if (it != links_.end()) {
    for (const Parcel& parcel : it->second) {
      if (parcel.frame.type == type) return parcel.frame;
    }
  }
  ADD_FAILURE() << "no such frame from " << from << " to " << to;
  return {};
}

void Ring::inject(uint32_t from, uint32_t to, const Frame& frame) {
  nodes_[to]->arrive(from, {frame, Values(frame.slice.length / sizeof(float)), std::nullopt});
  check_slots();
}

Frame Ring::frame(FrameType type, OpKey key) const {
  Frame frame;
  frame.type = type;
  frame.job = view_.incarnation;
  frame.epoch = view_.epoch;
  frame.key = key;
  return frame;
}

// Rule D2: no node is sent more than it has slots, and the slices of the ring leave one free. (A
// slice on its way from slot to slot has both for a moment; it is one slice.)
void Ring::check_slots() {
  if (nodes() == 1) return;
  size_t slices = 0;
  for (uint32_t to = 0; to < nodes(); ++to) {
    const std::deque<Parcel>& arriving = link((to + nodes() - 1) % nodes(), to);
    const auto sent = std::count_if(arriving.begin(), arriving.end(),
                                    [](const Parcel& parcel) { return parcel.lent.has_value(); });
    const auto from_slots = std::count_if(arriving.begin(), arriving.end(), [](const Parcel& p) {
      return p.lent && p.lent->kind == Staging::Kind::kSlot;
    });
    const size_t here = engine(to).slots_in_use() + static_cast<size_t>(sent);
    EXPECT_LE(here, options_.slots) << "node " << to << " is sent more than it has room for";
    slices += here - static_cast<size_t>(from_slots);
  }
  EXPECT_LT(slices, size_t{options_.slots} * nodes()) << "the ring is full";
}

}  // namespace gradring::core
