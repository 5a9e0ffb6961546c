#include "tests/scale/ring.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

namespace gradring::scale {
namespace {

core::View view_of(uint32_t members, uint32_t ranks) {
  core::View view;
  view.job = "scale";
  view.epoch = 1;
  view.size = members * ranks;
  view.policy = "fail";
  for (uint32_t member = 0; member < members; ++member) {
    view.members.push_back({"n" + std::to_string(member), {}});
    for (uint32_t local = 0; local < ranks; ++local) {
      view.members.back().ranks.push_back({member * ranks + local, local, 1, 0});
    }
  }
  return view;
}

Signature signature_of(uint64_t bytes, WireType wire) {
  Signature signature{Collective::kAllreduce, Dtype::kFloat32, ReduceOp::kSum, 0,
                      bytes / sizeof(float)};
  signature.wire = wire;
  return signature;
}

// The nearest size in which all members start as many slices, as a mirrored ring must have it, and
// the options that cut it so.
struct Even {
  uint64_t bytes = 0;
  core::EngineOptions options;
};
Even evenly(uint64_t bytes, WireType wire, uint32_t members, core::EngineOptions options) {
  constexpr uint64_t kAlign = 64;
  const Signature signature = signature_of(bytes, wire);
  const uint64_t slice = core::slice_bytes_for(signature, members, options.plan);
  const uint64_t rounds = std::max<uint64_t>(1, (bytes / slice + members - 1) / members);
  const uint64_t even = std::max<uint64_t>(1, (bytes / (rounds * members) + kAlign / 2) / kAlign);
  options.plan.slice_bytes_max = static_cast<uint32_t>(even * kAlign);
  options.plan.slice_bytes_min = options.plan.slice_bytes_max;
  options.plan.direct_members_max = options.plan.tree_max = 0;
  return {rounds * members * even * kAlign, options};
}

}  // namespace

bool goes_along_the_ring(const Setup& setup, uint64_t bytes) {
  const uint32_t members =
      setup.nodes * (setup.hierarchy ? 1 : static_cast<uint32_t>(setup.machine.ranks));
  const core::PlanOptions plan = setup.machine.engine().plan;
  const Signature signature = signature_of(bytes, setup.wire);
  return core::direct_layout(signature, members, plan).direct == core::Direct::kNo;
}

Ring::Ring(const Setup& setup, const Step& step)
    : setup_(setup),
      ranks_of_member_(setup.hierarchy ? static_cast<uint32_t>(setup.machine.ranks) : 1),
      members_of_node_(setup.hierarchy ? 1 : static_cast<uint32_t>(setup.machine.ranks)),
      mirror_(setup.nodes * members_of_node_,
              setup.mirrored ? members_of_node_ : setup.nodes * members_of_node_),
      step_(step) {
  const Machine& machine = setup_.machine;
  if (setup.mirrored && (machine.shared || setup.nodes < 2)) {
    throw std::invalid_argument("one node can stand only for others that have a computer each");
  }
  core::EngineOptions options = machine.engine();
  if (!setup.direct) options.plan.direct_members_max = options.plan.tree_max = 0;
  if (setup.mirrored) {
    const Even even = evenly(step.bucket_bytes, setup.wire, mirror_.members(), options);
    options = even.options;
    step_.bucket_bytes = even.bytes;
  }
  const core::View view = view_of(mirror_.members(), ranks_of_member_);
  const auto processors = static_cast<uint32_t>(machine.processors);
  World* const world = this;
  auto pool = std::make_shared<Processors>(processors);
  for (uint32_t member = mirror_.first(); member < mirror_.members(); ++member) {
    if (member % members_of_node_ == 0) {
      if (!machine.shared) pool = std::make_shared<Processors>(processors);
      hosts_.push_back(std::make_unique<Host>(machine, pool));
    }
    members_.push_back(
        std::make_unique<Member>(view, member, options, machine, hosts_.back().get(), world));
    trainers_.resize(trainers_.size() + ranks_of_member_, {members_.back().get()});
  }
}

Outcome Ring::run(uint32_t steps) {
  steps_ = steps + 1;
  std::optional<Outcome> warm;
  for (uint32_t rank = 0; rank < trainers_.size(); ++rank) begin(rank);
  while (!events_.empty() && trainers_.front().steps < steps_) {
    events_.step();
    if (!warm && trainers_.front().steps == 1) warm = so_far();
  }
  if (trainers_.front().steps < steps_) throw std::logic_error("a step never ended");
  const Outcome all = so_far();
  const double count = steps;
  const double lasted = all.step_ms - warm->step_ms;
  return {lasted / count, (all.busy_part - warm->busy_part) / lasted,
          (all.frames - warm->frames) / count, (all.bytes - warm->bytes) / count,
          (all.thinking_ms - warm->thinking_ms) / count};
}

// Sums since the beginning; of `busy_part`, milliseconds.
Outcome Ring::so_far() const {
  const Member& first = *members_.front();
  return {static_cast<double>(events_.now()) / 1e6, static_cast<double>(first.busy()) / 1e6,
          static_cast<double>(first.frames_sent()),
          static_cast<double>(first.engine().counters().payload_bytes_sent), first.thinking_ms()};
}

void Ring::begin(uint32_t rank) {
  Trainer& trainer = trainers_[rank];
  trainer.began = events_.now();
  trainer.open = static_cast<uint32_t>(step_.ready.size());
  for (const Time ready : step_.ready) {
    const Time copied = std::max(trainer.to_host, trainer.began + ready) +
                        took(static_cast<double>(step_.bucket_bytes), setup_.machine.device_gbs);
    trainer.to_host = copied;
    events_.at(copied, [this, rank] { submit(rank); });
  }
}

void Ring::submit(uint32_t rank) {
  Trainer& trainer = trainers_[rank];
  core::Submission submission;
  submission.rank = mirror_.first() * ranks_of_member_ + rank;
  submission.ticket = submission.key.sequence = trainer.submitted++;
  submission.signature = signature_of(step_.bucket_bytes, setup_.wire);
  trainer.member->submit(submission, events_.now());
}

void Ring::completed(Member*, Time at, uint32_t rank, uint64_t) {
  rank -= mirror_.first() * ranks_of_member_;
  Trainer& trainer = trainers_[rank];
  const Machine& machine = setup_.machine;
  const bool asleep = at - trainer.began > us(machine.look_on_us);
  const Time told = at + (asleep ? us(machine.wake_us) : 0);
  trainer.to_device = std::max(trainer.to_device, told) +
                      took(static_cast<double>(step_.bucket_bytes), machine.device_gbs);
  events_.at(std::max(trainer.to_device, trainer.began + step_.compute),
             [this, rank] { come_back(rank); });
}

void Ring::come_back(uint32_t rank) {
  Trainer& trainer = trainers_[rank];
  if (--trainer.open > 0) return;
  if (++trainer.steps < steps_) begin(rank);
}

void Ring::schedule_turn(Member* member, Time at) {
  events_.at(at, [this, member] { member->turn(events_.now()); });
}

bool Ring::is_local(const Member& from, uint32_t to) const {
  return from.number() / members_of_node_ == to / members_of_node_;
}

void Ring::post(Member* from, Time at, uint32_t to, const Frame& frame, double ahead,
                std::optional<core::Staging> lent) {
  events_.at(at, [=, this] { leave(from, to, frame, ahead, lent); });
}

void Ring::leave(Member* from, uint32_t to, const Frame& frame, double ahead,
                 std::optional<core::Staging> lent) {
  const Time now = events_.now();
  const uint32_t payload = payload_of(frame);
  if (is_local(*from, to)) {
    const Time there = now + us(setup_.machine.local_us);
    events_.at(there, [=, this] { arrive(from->number(), to, frame, true); });
    if (lent) events_.at(there, [=, this] { from->sent(*lent, events_.now()); });
    return;
  }
  Host& out = from->host();
  const double bytes = kFrameBytes + payload;
  const uint32_t lane = (frame.type == FrameType::kSlice ? frame.slice.lane : 0U) % out.lanes();
  const Time left = out.leave(now, to, lane, bytes - ahead, payload > 0);
  const Time began = std::max(now, left - out.line_time(bytes));
  Host& in = *hosts_[to % mirror_.window() / members_of_node_];
  events_.at(began, [=, this, &in] {
    const Time there = in.arrive(events_.now(), left, lane, bytes) +
                       (mirror_.is_for_the_tree(to, frame) ? word_takes() : 0);
    events_.at(there, [=, this] { arrive(from->number(), to, frame, false); });
  });
  if (lent) events_.at(left, [=, this] { from->sent(*lent, events_.now()); });
}

void Ring::arrive(uint32_t from, uint32_t to, const Frame& frame, bool local) {
  std::vector<std::pair<uint32_t, uint32_t>> ways = {{from, to}};
  if (mirror_.is_for_the_tree(to, frame)) {  // the word waits for all of them
    std::vector<std::pair<uint32_t, uint32_t>>& ready = ready_[frame.key];
    ready.emplace_back(from, to);
    if (ready.size() < mirror_.window()) return;
    ways = std::exchange(ready, {});
    ready_.erase(frame.key);
  }
  for (const auto& [sender, receiver] : ways) {
    for (const Mirror::Arrival& arrival : mirror_.of(sender, receiver, frame, ranks_of_member_)) {
      members_[arrival.to - mirror_.first()]->arrive({arrival.from, local, arrival.frame},
                                                     events_.now());
    }
  }
}

// From the READY of who has nobody below to the word of the first member, that all are ready: the
// hops after the first. On each one up a thread hears of all below it, on each one down it tells
// them.
Time Ring::word_takes() const {
  const Machine& machine = setup_.machine;
  const core::ReadyTree tree(mirror_.members(), mirror_.first());
  const double all = core::ReadyTree::kArity;
  const Time up = us(machine.latency_us + all * machine.receive_us + machine.send_us);
  const Time down = us(machine.latency_us + machine.receive_us + all * machine.send_us);
  return tree.levels() * (up + down) - up;
}

}  // namespace gradring::scale
