#include "tests/differential/run.h"

#include <algorithm>
#include <deque>
#include <iterator>
#include <map>
#include <thread>
#include <tuple>
#include <utility>

namespace gradring::differential {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kPollPause = std::chrono::microseconds(50);
constexpr uint64_t kTogetherMax = 5;

gradring_result empty_result() {
  gradring_result result{};
  result.struct_size = sizeof result;
  return result;
}

}  // namespace

Run::Run(const Program& program, const Communicator& world, const std::vector<uint32_t>& nodes,
         const NodeSums& node_sums, std::chrono::milliseconds patience, Arenas& arenas)
    : program_(program),
      world_(world),
      nodes_(nodes),
      node_sums_(node_sums),
      patience_(patience),
      arenas_(arenas),
      random_(core::Random(program.seed).next() + static_cast<uint64_t>(world.rank())),
      groups_(program.groups.size()),
      digests_(program.groups.size()) {}

std::vector<std::string> Run::finish() {
  Tasks late;
  for (uint32_t phase = 0; phase < program_.phases; ++phase) {
    make_groups(phase);
    Tasks tasks = make_tasks(phase);
    submit(shuffled_by_stream(tasks));
    const auto is_late = [](const Task* task) { return task->op().late; };
    std::ranges::copy_if(tasks, std::back_inserter(late), is_late);
    std::erase_if(tasks, is_late);
    wait_for(std::move(tasks));
  }
  wait_for(std::move(late));
  for (uint32_t group = 0; group < groups_.size(); ++group) {
    if (groups_[group].comm) compare_digests(group);
  }
  for (uint32_t group = 0; group < groups_.size(); ++group) {
    if (groups_[group].comm) leave(group);
  }
  return std::move(faults_);
}

// All ranks make them in one order, so that none waits for another in a circle.
void Run::make_groups(uint32_t phase) {
  for (uint32_t i = 0; i < groups_.size(); ++i) {
    const Group& group = program_.groups[i];
    const auto own = std::ranges::find(group.ranks, static_cast<uint32_t>(world_.rank()));
    if (group.phase != phase || own == group.ranks.end()) continue;
    groups_[i].rank = static_cast<uint32_t>(own - group.ranks.begin());
    if (i == 0) {
      groups_[i].comm = program_.in_world ? world_ : world_.group(group.ranks);
      continue;
    }
    std::vector<uint32_t> within;
    for (const uint32_t rank : group.ranks) {
      const auto& all = program_.groups[0].ranks;
      within.push_back(static_cast<uint32_t>(std::ranges::find(all, rank) - all.begin()));
    }
    groups_[i].comm = groups_[0].comm->group(within);
  }
}

Run::Tasks Run::make_tasks(uint32_t phase) {
  Tasks tasks;
  for (const Op& op : program_.ops) {
    const Member& member = groups_[op.group];
    if (op.phase != phase || !member.comm || !takes_part(op, member.rank)) continue;
    tasks_.push_back(std::make_unique<Task>(program_, op, member.rank, arenas_));
    tasks.push_back(tasks_.back().get());
  }
  return tasks;
}

// Ops that are matched by their order keep it; all others mix, and do so in another way on each
// rank.
Run::Tasks Run::shuffled_by_stream(const Tasks& tasks) {
  if (program_.in_order) return tasks;
  std::map<std::tuple<uint32_t, std::string, uint32_t, uint32_t>, std::deque<Task*>> streams;
  for (Task* task : tasks) {
    const Op& op = task->op();
    const uint32_t from = task->is_far() ? op.root : 0, to = task->is_far() ? op.to : 0;
    streams[{op.group, op.name, from, to}].push_back(task);
  }
  Tasks order;
  while (!streams.empty()) {
    const auto next =
        std::next(streams.begin(), static_cast<ptrdiff_t>(random_.below(streams.size())));
    order.push_back(next->second.front());
    next->second.pop_front();
    if (next->second.empty()) streams.erase(next);
  }
  return order;
}

void Run::submit(const Tasks& tasks) {
  for (size_t i = 0; i < tasks.size();) {
    const Communicator& comm = comm_of(*tasks[i]);
    if (program_.tries_refused) try_refused(comm, tasks[i]->described());
    const uint64_t most = tasks[i]->is_far() ? 1 : 1 + random_.below(kTogetherMax);
    std::vector<gradring_op> together;
    for (size_t j = i; j < tasks.size() && together.size() < most; ++j) {
      if (tasks[j]->is_far() != tasks[i]->is_far() || &comm_of(*tasks[j]) != &comm) break;
      together.push_back(tasks[j]->described());
    }
    std::vector<gradring_request> requests(together.size());
    const gradring_code code =
        together.size() == 1
            ? gradring_submit(comm.handle(), together.data(), requests.data())
            : gradring_submit_all(comm.handle(), together.data(),
                                  static_cast<uint32_t>(together.size()), requests.data());
    if (code != GRADRING_OK) give_up(tasks[i]->op(), code);
    for (const gradring_request request : requests) tasks[i++]->request = request;
  }
}

// Nobody else must hear of it.
void Run::try_refused(const Communicator& comm, const gradring_op& like) {
  if (like.collective == GRADRING_SEND || like.collective == GRADRING_RECV) return;
  std::vector<gradring_op> ops(2, like);
  ops[1].collective = GRADRING_REDUCE;
  ops[1].root = static_cast<uint32_t>(comm.size());
  std::vector<gradring_request> requests(ops.size());
  if (gradring_submit_all(comm.handle(), ops.data(), 2, requests.data()) != GRADRING_ERR_INVALID) {
    faults_.push_back(place() + "a reduce to a rank that is not there was not refused");
  }
}

void Run::wait_for(Tasks tasks) {
  for (size_t i = tasks.size(); i > 0; --i) {
    std::swap(tasks[i - 1], tasks[random_.below(i)]);
    gradring_result result = empty_result();
    const gradring_code code = wait(comm_of(*tasks[i - 1]), *tasks[i - 1], &result);
    end(*tasks[i - 1], code, result);
  }
}

gradring_code Run::wait(const Communicator& comm, Task& task, gradring_result* result) {
  if (const Arena* const to = task.waits_by()) {
    const gradring_code code =
        gradring_wait_on_stream(comm.handle(), task.request, to->stream(), patience_.count());
    if (code != GRADRING_OK) return code;
    const gradring_code ended =
        gradring_wait(comm.handle(), task.request, patience_.count(), result);
    to->wait_for_stream();
    return ended;
  }
  if (!task.manner().polls) {
    return gradring_wait(comm.handle(), task.request, patience_.count(), result);
  }
  const auto until = Clock::now() + patience_;
  int done = 0;
  while (done == 0) {
    const gradring_code code = gradring_test(comm.handle(), task.request, &done, result);
    if (done != 0 || code != GRADRING_OK) return code;
    if (Clock::now() > until) return gradring_wait(comm.handle(), task.request, 0, result);
    std::this_thread::sleep_for(kPollPause);
  }
  return GRADRING_OK;
}

void Run::end(Task& task, gradring_code code, const gradring_result& result) {
  const Op& op = task.op();
  if (op.oddity != Oddity::kNone) {
    if (code != GRADRING_ERR_FAILED || result.cause != GRADRING_CAUSE_MISMATCH) {
      if (code == GRADRING_ERR_DEADLINE) give_up(op, code);
      return complain(op, "must fail as a mismatch and ended with code " + std::to_string(code) +
                              ", cause " + std::to_string(result.cause));
    }
    const std::string fault = task.fault_after_failure();
    if (!fault.empty()) complain(op, fault);
    return;
  }
  if (code != GRADRING_OK) give_up(op, code);
  if (result.verdict != GRADRING_VERDICT_OK) {
    complain(op, "ended with verdict " + std::to_string(result.verdict));
  }
  const std::string fault =
      task.fault(Reference(program_, op, nodes_of(op.group), node_sums_of(op.group)));
  if (!fault.empty()) complain(op, fault);
  if (op.collective == GRADRING_ALLREDUCE) {
    digests_[op.group].push_back({op.number, task.digest()});
  }
}

void Run::must_end(const Communicator& comm, const gradring_op& op) {
  gradring_request request = 0;
  check(gradring_submit(comm.handle(), &op, &request));
  check(gradring_wait(comm.handle(), request, patience_.count(), nullptr));
}

// An allreduce is the same on all ranks, also where it may be one of several sums.
void Run::compare_digests(uint32_t group) {
  const Communicator& comm = *groups_[group].comm;
  std::vector<Digest>& digests = digests_[group];
  if (digests.empty()) return;
  std::ranges::sort(digests, {}, &Digest::op);
  const size_t n = digests.size(), size = program_.groups[group].ranks.size();
  auto mine = comm.allocate<uint64_t>(n), all = comm.allocate<uint64_t>(n * size);
  for (size_t i = 0; i < n; ++i) mine[i] = digests[i].hash;
  gradring_op exchange{};
  exchange.struct_size = sizeof exchange;
  exchange.collective = GRADRING_ALLGATHER;
  exchange.dtype = GRADRING_UINT64;
  exchange.count = n;
  exchange.input = mine.data();
  exchange.output = all.data();
  must_end(comm, exchange);
  for (size_t i = 0; i < n * size; ++i) {
    const Digest& own = digests[i % n];
    if (all[i] == own.hash) continue;
    complain(program_.ops[own.op], "has other bits than on rank " + std::to_string(i / n));
  }
}

// Nobody leaves while another is at work.
void Run::leave(uint32_t group) {
  Communicator& comm = *groups_[group].comm;
  gradring_op barrier{};
  barrier.struct_size = sizeof barrier;
  barrier.collective = GRADRING_BARRIER;
  must_end(comm, barrier);
  if (program_.ends_by_join) comm.join_point();
  if (group != 0) groups_[group].comm.reset();
}

std::vector<uint32_t> Run::nodes_of(uint32_t group) const {
  std::vector<uint32_t> nodes;
  for (const uint32_t rank : program_.groups[group].ranks) nodes.push_back(nodes_[rank]);
  return nodes;
}

NodeSums Run::node_sums_of(uint32_t group) const {
  NodeSums sums{node_sums_.may_be, {}};
  if (node_sums_.gpus.empty()) return sums;
  for (const uint32_t rank : program_.groups[group].ranks) {
    sums.gpus.push_back(node_sums_.gpus[rank]);
  }
  return sums;
}

std::string Run::place() const {
  return "seed " + std::to_string(program_.seed) + ", rank " + std::to_string(world_.rank()) +
         " of the world: ";
}

void Run::complain(const Op& op, const std::string& what) {
  faults_.push_back(place() + what + " (" + differential::describe(program_, op) + ", here rank " +
                    std::to_string(groups_[op.group].rank) + ")");
}

void Run::give_up(const Op& op, gradring_code code) {
  const std::string error = gradring_last_error();
  complain(op, "code " + std::to_string(code) + ", " + error);
  throw Error(code, faults_.back());
}

}  // namespace gradring::differential
