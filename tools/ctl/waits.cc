#include "tools/ctl/waits.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "tools/common/text.h"

namespace gradring::tools {
namespace {

using Reports = std::vector<const wire::OpReport*>;

const wire::RankReport* find_rank(const wire::JobReport& report, uint32_t rank) {
  for (const auto& candidate : report.ranks()) {
    if (candidate.rank() == rank) return &candidate;
  }
  return nullptr;
}

Awaited awaited_rank(const wire::JobReport& report, uint32_t rank, const std::string& node) {
  Awaited who{.rank = rank, .node = node};
  if (const auto* known = find_rank(report, rank)) {
    who.pid = known->pid();
    who.process_state = known->process_state();
    who.quiet_ms = known->quiet_ms();
  }
  return who;
}

// A node that others wait for. One that answered, but not about this op, has no submission at all:
// every rank of it is awaited.
void add_node(const wire::JobReport& report, const std::string& node, std::vector<Awaited>* into) {
  const auto& silent = report.silent_nodes();
  if (std::find(silent.begin(), silent.end(), node) != silent.end()) {
    into->push_back({.is_rank = false, .node = node, .why = "does not answer"});
    return;
  }
  const size_t before = into->size();
  for (const auto& rank : report.ranks()) {
    if (rank.node() == node) into->push_back(awaited_rank(report, rank.rank(), node));
  }
  if (into->size() == before) {
    into->push_back({.is_rank = false, .node = node, .why = "has not begun the op"});
  }
}

OpenOp merge(const wire::JobReport& report, const Reports& parts) {
  const wire::OpReport& first = *parts.front();
  OpenOp op{.space = first.key().space(),
            .sequence = first.key().sequence(),
            .name = first.name(),
            .signature = first.signature(),
            .slices_final = first.slices_final(),
            .behind = first.node(),
            .slices = first.slices()};
  std::set<std::string> awaited_nodes;
  for (const auto* part : parts) {
    op.told.insert(part->node());
    if (op.name.empty()) op.name = part->name();  // known where a rank has submitted it alone
    op.age_ms = std::max(op.age_ms, part->age_ms());
    op.slices = std::max(op.slices, part->slices());
    if (part->slices_final() < op.slices_final) {
      op.slices_final = part->slices_final();
      op.behind = part->node();
    }
    for (const uint32_t rank : part->waiting_for()) {
      op.waiting_for.push_back(awaited_rank(report, rank, part->node()));
    }
    awaited_nodes.insert(part->waiting_nodes().begin(), part->waiting_nodes().end());
  }
  // A node that told about the op has named its late ranks itself; if it named none, its READY is
  // on the way.
  for (const auto& node : awaited_nodes) {
    if (!op.told.contains(node)) add_node(report, node, &op.waiting_for);
  }
  std::ranges::sort(op.waiting_for, {}, [](const Awaited& who) {
    return std::tuple(!who.is_rank, who.rank, who.node);
  });
  // A daemon that is mute may have said READY long ago: before a rank is blamed, ask it.
  if (!op.waiting_for.empty()) {
    const bool mute = std::ranges::all_of(op.waiting_for, [&report](const Awaited& who) {
      const auto& silent = report.silent_nodes();
      return std::find(silent.begin(), silent.end(), who.node) != silent.end();
    });
    op.waits_for = mute ? WaitsFor::kDaemon : WaitsFor::kSubmission;
  }
  return op;
}

bool has_submitted(const Awaited& who, const OpenOp& op) {
  return who.is_rank && op.told.contains(who.node) &&
         std::ranges::none_of(op.waiting_for, [&who](const Awaited& other) {
           return other.is_rank ? other.rank == who.rank : other.node == who.node;
         });
}

std::string title_of(const OpenOp& op) {
  std::string text = printable(op.signature);
  if (op.space == 0) return text + fmt::format(" (op {})", op.sequence);
  const std::string name = op.name.empty() ? "" : fmt::format("\"{}\", ", printable(op.name));
  return text + fmt::format(" ({}use {})", name, op.sequence);
}

std::string describe(const Awaited& who) {
  if (!who.is_rank) return fmt::format("node {} ({})", printable(who.node), who.why);
  std::string text = fmt::format("rank {} (node {}", who.rank, printable(who.node));
  if (who.pid != 0) text += fmt::format(", pid {}", who.pid);
  if (!who.process_state.empty()) {
    text += fmt::format(", state {}", describe_process_state(who.process_state));
  }
  return text + ")";
}

}  // namespace

const char* name_of(WaitsFor what) {
  switch (what) {
    case WaitsFor::kSubmission:
      return "submission";
    case WaitsFor::kDaemon:
      return "daemon";
    case WaitsFor::kData:
      return "data";
  }
  return "unknown";
}

std::vector<OpenOp> open_ops(const wire::JobReport& report) {
  std::map<std::pair<uint64_t, uint64_t>, Reports> by_key;
  for (const auto& op : report.ops())
    by_key[{op.key().space(), op.key().sequence()}].push_back(&op);
  std::vector<OpenOp> ops;
  for (const auto& [key, parts] : by_key) ops.push_back(merge(report, parts));
  std::ranges::stable_sort(ops, std::ranges::greater(), &OpenOp::age_ms);
  return ops;
}

std::string describe(const OpenOp& op) {
  std::string text = title_of(op) + ": ";
  const std::string age = format_duration(op.age_ms);
  if (op.waiting_for.empty()) {
    return text +
           fmt::format(
               "all have submitted it; its data is under way for {}, {} of {} final at node {}",
               age, op.slices_final, counted(op.slices, "slice"), printable(op.behind));
  }
  text += fmt::format("waiting {} for ", age);
  for (size_t i = 0; i < op.waiting_for.size(); ++i) {
    if (i > 0) text += i + 1 == op.waiting_for.size() ? " and " : ", ";
    text += describe(op.waiting_for[i]);
  }
  return text;
}

std::string describe_crossing(const OpenOp& op, const std::vector<OpenOp>& others) {
  for (const OpenOp& other : others) {
    for (const Awaited& one : op.waiting_for) {
      if (!has_submitted(one, other)) continue;
      const auto in_turn = std::ranges::find_if(
          other.waiting_for, [&op](const Awaited& who) { return has_submitted(who, op); });
      if (in_turn == other.waiting_for.end()) continue;
      return fmt::format(
          "but rank {} waits for {} in its turn, in {}: do all ranks submit the same ops, by the "
          "same names and in the same order?",
          one.rank, describe(*in_turn), title_of(other));
    }
  }
  return "";
}

}  // namespace gradring::tools
