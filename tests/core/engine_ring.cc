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

View ring_view(uint32_t nodes, uint32_t ranks_per_node, const std::string& policy) {
  View view;
  view.job = "train";
  view.incarnation = {7};
  view.epoch = 1;
  view.size = nodes * ranks_per_node;
  view.policy = policy;
  for (uint32_t node = 0; node < nodes; ++node) {
    Member member{name_of_node(node), {}};
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

Signature join() {
  Signature signature;
  signature.collective = Collective::kJoin;
  signature.dtype = Dtype::kFloat32;
  signature.op = ReduceOp::kSum;
  signature.count = 1;
  return signature;
}
Signature join_point() {
  Signature signature;
  signature.collective = Collective::kJoinPoint;
  return signature;
}

Values values_of(uint32_t rank, uint64_t count, uint64_t op) {
  Random random((op << 32 | rank) + 1);
  Values values(count);
  for (float& value : values) {
    const float mantissa = static_cast<float>(random.below(2000)) - 1000.0f;
    value = std::ldexp(mantissa, static_cast<int>(random.below(16)) - 8);
  }
  return values;
}

Values ring_sum(const View& view, uint64_t count, uint64_t k, uint32_t slice_floats) {
  const auto n = static_cast<uint32_t>(view.members.size());
  std::map<uint32_t, Values> inputs;
  for (const Member& member : view.members) {
    for (const RankInfo& info : member.ranks) inputs[info.rank] = values_of(info.rank, count, k);
  }
  Values sum(count);
  for (uint64_t i = 0; i < count; ++i) {
    const auto start = static_cast<uint32_t>(i / slice_floats % n);
    for (uint32_t hop = 0; hop < n; ++hop) {
      const std::vector<RankInfo>& ranks = view.members[(start + hop) % n].ranks;
      float node = inputs[ranks[0].rank][i];
      for (size_t r = 1; r < ranks.size(); ++r) node += inputs[ranks[r].rank][i];
      sum[i] = hop == 0 ? node : sum[i] + node;
    }
  }
  return sum;
}

Ring::Ring(uint32_t nodes, uint32_t ranks_per_node, const EngineOptions& options,
           const std::string& policy)
    : view_(ring_view(nodes, ranks_per_node, policy)), options_(options) {
  for (uint32_t me = 0; me < nodes; ++me) nodes_.push_back(std::make_unique<Node>(this, me));
}

Ring::~Ring() = default;

JobEngine& Ring::engine(uint32_t node) { return nodes_[node]->engine; }

const std::vector<Failure>& Ring::failures(uint32_t node) const { return nodes_[node]->failures; }

const std::vector<Failure>& Ring::condemnations(uint32_t node) const {
  return nodes_[node]->condemnations;
}

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
  const Extent extent = extent_of(signature, rank, rank);
  const size_t inputs = std::max<uint64_t>(extent.input / sizeof(float), signature.count);
  if (input.empty()) input.resize(inputs);
  Account account;
  account.ticket = {rank, next_ticket_++};
  account.input = account.output = memory_.size();
  memory_.push_back(std::move(input));
  if (place == Place::kApart) {
    account.output = memory_.size();
    const bool blocks = needs_all_ranks(signature.collective);
    memory_.emplace_back(blocks ? extent.output / sizeof(float) : signature.count, -1.0f);
  }
  accounts_[account.ticket.number] = account;
  const Status status = engine_of_rank(rank).submit({rank,
                                                     account.ticket.number,
                                                     key,
                                                     name,
                                                     signature,
                                                     {account.input, 0},
                                                     {account.output, 0},
                                                     rank,
                                                     1,
                                                     priority,
                                                     input_here},
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
    const bool blocks = needs_all_ranks(signature.collective);
    const uint64_t bytes = blocks ? extent_of(signature, rank, rank).input : signature.bytes();
    const Values input = values_of(rank, bytes / sizeof(float), key.sequence);
    tickets.push_back(submit(rank, key, signature, input, place));
  }
  return tickets;
}

void Ring::leave(uint32_t rank) {
  Failure failure{Cause::kTrainerLeft, {}};
  failure.blame.rank = rank;
  engine_of_rank(rank).leave(rank, failure);
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
  if (!nodes_[node]->alive) return;
  nodes_[node]->engine.pump(budget);
  check_slots();
}

// The connection holds back what is of an epoch that the receiver has not heard of.
bool Ring::of_later_epoch(uint32_t to, const Frame& frame) const {
  return nodes_[to]->alive && frame.epoch > nodes_[to]->engine.view().epoch;
}

bool Ring::deliver(uint32_t from, uint32_t to) {
  const auto& parcels = link(from, to);
  if (parcels.empty() || of_later_epoch(to, parcels.front().frame)) return false;
  deliver_at(from, to, 0);
  return true;
}

bool Ring::deliver_first(uint32_t from, uint32_t to, FrameType type) {
  const auto& parcels = link(from, to);
  for (size_t i = 0; i < parcels.size(); ++i) {
    if (parcels[i].frame.type != type || of_later_epoch(to, parcels[i].frame)) continue;
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
  if (nodes_[to]->alive) nodes_[to]->arrive(from, parcel);
  if (parcel.lent && nodes_[from]->alive) nodes_[from]->sent(parcel);
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

// Slices keep their order, as on a connection; what has no payload may go another way.
std::vector<size_t> Ring::deliverable(uint32_t from, uint32_t to) const {
  std::vector<size_t> list;
  const auto it = links_.find({from, to});
  if (it == links_.end() || held_.count({from, to}) > 0) return list;
  bool slice = false;
  for (size_t i = 0; i < it->second.size(); ++i) {
    const Frame& frame = it->second[i].frame;
    const bool later_slice = frame.type == FrameType::kSlice && std::exchange(slice, true);
    if (!later_slice && !of_later_epoch(to, frame)) list.push_back(i);
  }
  return list;
}

bool Ring::step(Random* random) {
  std::vector<std::pair<uint32_t, uint32_t>> busy;
  for (const auto& [ends, parcels] : links_) {
    if (!deliverable(ends.first, ends.second).empty()) busy.push_back(ends);
  }
  if (!busy.empty()) {
    const auto [from, to] = busy[random->below(busy.size())];
    const std::vector<size_t> list = deliverable(from, to);
    deliver_at(from, to, list[random->below(list.size())]);
    pump(static_cast<uint32_t>(random->below(nodes())), 1);
    return true;
  }
  uint32_t worked = 0;
  for (const auto& node : nodes_) worked += node->alive ? node->engine.pump(1) : 0;
  check_slots();
  return worked > 0 || std::any_of(links_.begin(), links_.end(), [this](const auto& entry) {
           return !deliverable(entry.first.first, entry.first.second).empty();
         });
}

void Ring::run_shuffled(uint64_t seed) {
  Random random(seed);
  while (step(&random)) {
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
  nodes_[to]->arrive(from, {frame, Values(payload_of(frame) / sizeof(float)), std::nullopt});
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
  size_t slices = 0;
  size_t members = 0;
  for (const auto& node : nodes_) {
    const JobEngine& here = node->engine;
    if (!node->alive || here.view().members.size() == 1) continue;
    const auto n = static_cast<uint32_t>(here.view().members.size());
    const std::string& before = here.view().members[(here.me() + n - 1) % n].node;
    const std::string& self = here.view().members[here.me()].node;
    const std::deque<Parcel>& arriving = link(number_of_node(before), number_of_node(self));
    size_t sent = 0;
    size_t from_slots = 0;
    for (const Parcel& p : arriving) {
      if (!p.lent || p.lent->kind == Staging::Kind::kUnit || p.frame.epoch != here.view().epoch)
        continue;
      sent += p.frame.slice.attempt <= 1 ? 1 : 0;  // another attempt has its slot already
      from_slots += p.lent->kind == Staging::Kind::kSlot ? 1 : 0;
    }
    if (here.frozen()) sent = from_slots = 0;  // is thrown away when it arrives
    const size_t used = here.slots_in_use() + sent;
    EXPECT_LE(used, options_.slots) << "node " << self << " is sent more than it has room for";
    slices += used - from_slots;
    ++members;
  }
  // A slot that waits for its confirmation alone becomes free by itself, and does not count.
  if (members == nodes() && nodes() > 1 && !options_.checksum) {
    EXPECT_LT(slices, size_t{options_.slots} * members) << "the ring is full";
  }
}

}  // namespace gradring::core
