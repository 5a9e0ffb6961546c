#include "client/src/communicator/awaiting.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace gradring::client {
namespace {

// A sentence is to be read.
constexpr size_t kToldMost = 8;

std::string state_of(const wire::RankReport& rank) {
  const std::string& process = rank.process_state();
  if (process == "T" || process == "t") return "stopped";
  if (process == "Z" || process == "X") return "ended";
  if (process == "D") return "waiting for a device";
  return rank.state() == "GPU behind" ? "its GPU is behind" : "";
}

Awaiting::Rank told_of(const wire::RankReport& rank) {
  return {rank.rank(), rank.node(), rank.pid(), state_of(rank)};
}

void add_rank(const wire::JobReport& report, const wire::OpReport& op, uint32_t rank,
              Awaiting* to) {
  const auto& all = report.ranks();
  const auto known =
      std::ranges::find_if(all, [rank](const auto& one) { return one.rank() == rank; });
  to->ranks.push_back(known == all.end() ? Awaiting::Rank{rank, op.node(), 0, ""}
                                         : told_of(*known));
}

// Of a node with one rank it is that one.
void add_node(const wire::JobReport& report, const wire::OpReport& op, const std::string& node,
              Awaiting* to) {
  Awaiting::Node all{node, {}, op.waiting_subtrees()};
  std::vector<Awaiting::Rank> told;
  for (const auto& rank : report.ranks()) {
    if (rank.node() != node) continue;
    all.ranks.push_back(rank.rank());
    told.push_back(told_of(rank));
  }
  if (told.size() == 1 && !all.speaks_for_others) {
    to->ranks.push_back(std::move(told.front()));
  } else {
    std::ranges::sort(all.ranks);
    to->nodes.push_back(std::move(all));
  }
}

Awaiting awaiting_of(const wire::JobReport& report, const wire::OpReport& op) {
  Awaiting awaiting;
  for (const uint32_t rank : op.waiting_for()) add_rank(report, op, rank, &awaiting);
  for (const std::string& node : op.waiting_nodes()) add_node(report, op, node, &awaiting);
  std::ranges::sort(awaiting.ranks, {}, &Awaiting::Rank::rank);
  const bool all_there = awaiting.ranks.empty() && awaiting.nodes.empty();
  awaiting.what = all_there ? Awaiting::What::kData : Awaiting::What::kRanks;
  awaiting.slices_final = op.slices_final();
  awaiting.slices = op.slices();
  return awaiting;
}

std::string describe(const Awaiting::Rank& rank) {
  std::string about = rank.node.empty() ? "" : "node " + rank.node;
  if (rank.pid != 0) about += fmt::format("{}pid {}", about.empty() ? "" : ", ", rank.pid);
  if (!rank.state.empty()) about += ", " + rank.state;
  return fmt::format("rank {}{}", rank.rank, about.empty() ? "" : fmt::format(" ({})", about));
}

std::string listed(std::vector<std::string> words) {
  const size_t left = words.size() > kToldMost ? words.size() - kToldMost : 0;
  words.resize(words.size() - left);
  if (left > 0) words.push_back(fmt::format("{} more", left));
  std::string text;
  for (size_t i = 0; i < words.size(); ++i) {
    text += i == 0 ? "" : i + 1 == words.size() ? " and " : ", ";
    text += words[i];
  }
  return text;
}

// "rank 3", "ranks 8 to 15", "ranks 0, 2 and 4"; they are ascending.
std::string ranks_in_words(const std::vector<uint32_t>& ranks) {
  if (ranks.size() == 1) return fmt::format("rank {}", ranks.front());
  if (ranks.back() - ranks.front() + 1 == ranks.size()) {
    return fmt::format("ranks {} to {}", ranks.front(), ranks.back());
  }
  std::vector<std::string> words;
  for (const uint32_t rank : ranks) words.push_back(std::to_string(rank));
  return "ranks " + listed(std::move(words));
}

std::string describe(const Awaiting::Node& node) {
  const std::string ranks =
      node.ranks.empty() ? "" : fmt::format(" ({})", ranks_in_words(node.ranks));
  return fmt::format("a rank of node {}{}{}", node.node, ranks,
                     node.speaks_for_others ? " or of one that it speaks for" : "");
}

}  // namespace

bool Awaiting::may_miss(uint32_t rank) const {
  return std::ranges::any_of(ranks, [rank](const Rank& one) { return one.rank == rank; }) ||
         std::ranges::any_of(nodes, [rank](const Node& one) {
           return std::ranges::find(one.ranks, rank) != one.ranks.end();
         });
}

void Awaiting::renumber(const std::function<uint32_t(uint32_t)>& name_of) {
  for (Rank& one : ranks) one.rank = name_of(one.rank);
  for (Node& one : nodes) {
    for (uint32_t& rank : one.ranks) rank = name_of(rank);
    std::ranges::sort(one.ranks);
  }
}

Awaiting awaiting_from(const wire::JobReport& report, const OpKey& key) {
  const wire::OpReport* other = nullptr;
  for (const auto& op : report.ops()) {
    if (op.key().space() == key.space && op.key().sequence() == key.sequence) {
      return awaiting_of(report, op);
    }
    const bool waits = !op.waiting_for().empty() || !op.waiting_nodes().empty();
    if (waits && other == nullptr) other = &op;
  }
  // One of very many, or it has just ended.
  if (other != nullptr) {
    Awaiting awaiting = awaiting_of(report, *other);
    awaiting.other =
        other->name().empty() ? other->signature() : "'" + shown_name(other->name()) + "'";
    return awaiting;
  }
  Awaiting awaiting;
  for (const auto& rank : report.ranks()) {
    if (rank.state() == "not joined") awaiting.ranks.push_back({rank.rank(), "", 0, ""});
  }
  if (!awaiting.ranks.empty()) awaiting.what = Awaiting::What::kToJoin;
  return awaiting;
}

std::string describe(const Awaiting& awaiting) {
  std::vector<std::string> whom;
  for (const auto& rank : awaiting.ranks) whom.push_back(describe(rank));
  for (const auto& node : awaiting.nodes) whom.push_back(describe(node));
  std::string text;
  switch (awaiting.what) {
    case Awaiting::What::kNothingKnown:
      return "";
    case Awaiting::What::kRanks:
      text = "waits for " + listed(std::move(whom));
      break;
    case Awaiting::What::kToJoin:
      text = "waits for " + listed(std::move(whom)) + " to join";
      break;
    case Awaiting::What::kData:
      text = fmt::format("has been submitted by all, and its data is under way: {} of {} slices",
                         awaiting.slices_final, awaiting.slices);
      break;
  }
  if (awaiting.other.empty()) return text;
  return fmt::format("is still under way, and so is {}, which {}", awaiting.other, text);
}

}  // namespace gradring::client
