#include "tools/ctl/top/frame.h"

#include <fmt/format.h>

#include <algorithm>

#include "tools/common/size.h"
#include "tools/common/text.h"

namespace gradring::tools::top {
namespace {

using Lines = std::vector<Line>;

constexpr const char* kKeys[][2] = {
    {"q", "quit; so does Ctrl-C"},
    {"s, right, left", "sort the jobs by the next column, or by the one before"},
    {"r", "reverse their order"},
    {"/", "show only jobs whose name has what follows; Enter keeps it, Escape shows all"},
    {"up, down", "select a job"},
    {"Enter", "its ranks, which up and down scroll, and back"},
    {"n", "this node, all nodes, or the next of its peers"},
    {"p", "pause, and go on"},
    {"h, ?", "this"},
};

constexpr const char* kMeanings[] = {
    "GB/s: 10^9 bytes a second that each rank has summed or moved; bus GB/s: the same times what a "
    "ring does with each byte, 2(n-1)/n for an allreduce (as nccl-tests).",
    "exposed: the part of the ranks' steps in which they wait for gradients that are under way.",
    "straggler: the rank that others wait for most, and by how much in the middle one of its late "
    "steps.",
    "oldest op: for how long it has been open, and the first rank that has not submitted it.",
    "rtt: a question to the peer's daemon and back, by the control network.",
};

void add_wrapped(const std::string& text, size_t width, size_t most, Look look, Lines* lines) {
  for (const std::string& line : wrapped(text, width, most)) lines->push_back({{line, look}});
}

std::string amount(uint64_t value, const std::string& unit) {
  return unit == "bytes" ? format_bytes(value) : std::to_string(value);
}

Line title_of(const Model& model, const View& view) {
  Line line = {{"gradring", Look::kTitle}};
  if (model.here.empty()) {
    line.push_back({"  asking the daemon"});
  } else if (view.choice.all) {
    const auto ready = std::ranges::count(model.nodes, "ready", &Node::state);
    const size_t nodes = model.nodes.size() + model.silent;
    line.push_back({fmt::format("  {}, {} ready", counted(nodes, "node"), ready)});
    if (model.silent > 0) line.push_back({fmt::format(", {} silent", model.silent), Look::kBad});
  } else if (!model.nodes.empty()) {
    const Node& node = model.nodes.front();
    line.push_back({"  node "});
    line.push_back({printable(node.node), Look::kTitle});
    line.push_back({" "});
    line.push_back({printable(node.state), node.state == "ready" ? Look::kGood : Look::kBad});
    line.push_back(
        {fmt::format(", up {}, {}", format_duration(node.uptime_ms), printable(node.version))});
  }
  if (view.paused) line.push_back({"  paused", Look::kBad});
  if (model.silence) {
    line.push_back({fmt::format("  no answer since {} s", model.silence->ms / 1000), Look::kBad});
  }
  return line;
}

// Limits of this node, or of the one that was chosen; as many in a line as there is room for.
Lines limits_of(const Model& model, size_t width) {
  const auto own = std::ranges::find(model.nodes, model.here, &Node::node);
  const auto node = own == model.nodes.end() ? model.nodes.begin() : own;
  if (node == model.nodes.end()) return {};
  Lines lines;
  size_t used = width;
  for (const Limit& limit : node->limits) {
    const std::string name = printable(limit.name) + " ";
    const bool full = limit.cap > 0 && limit.used >= limit.cap;
    const std::string value = fmt::format("{}/{}", amount(limit.used, limit.unit),
                                          limit.cap == 0 ? "none" : amount(limit.cap, limit.unit));
    const size_t needed = width_of(name) + width_of(value);
    if (lines.empty() || used + 2 + needed > width) {
      lines.emplace_back();
      used = 0;
    } else {
      lines.back().push_back({"  "});
      used += 2;
    }
    lines.back().push_back({name, Look::kFaint});
    lines.back().push_back({value, full ? Look::kBad : Look::kPlain});
    used += needed;
  }
  return lines;
}

// `most`: lines of limits.
Lines top_of(const Model& model, const View& view, size_t width, size_t most) {
  Lines lines = {title_of(model, view)};
  if (model.silence) add_wrapped(printable(model.silence->why), width, 2, Look::kBad, &lines);
  Lines limits = limits_of(model, width);
  limits.resize(std::min(limits.size(), most));
  for (Line& line : limits) lines.push_back(std::move(line));
  for (const std::string& problem : model.problems) {
    add_wrapped("! " + problem, width, 2, Look::kBad, &lines);
  }
  for (const std::string& more : model.left_out) add_wrapped(more, width, 2, Look::kFaint, &lines);
  lines.emplace_back();
  return lines;
}

// What the table has no room for.
Lines details_of(const Job& job, size_t width) {
  Lines lines;
  // Of a job that is over nobody knows any more where it was.
  const std::string where = job.nodes == 0 ? "" : " on " + counted(job.nodes, "node");
  add_wrapped(
      fmt::format("{}: {}, {}{}, epoch {}, policy {}{}", printable(job.name), printable(job.state),
                  counted(job.size, "rank"), where, job.epoch, printable(job.policy),
                  job.explanation.empty() ? "" : ": " + printable(job.explanation)),
      width, 2, Look::kPlain, &lines);
  if (job.straggler) {
    add_wrapped("straggler: " + describe(*job.straggler), width, 2, Look::kPlain, &lines);
  }
  if (job.oldest) {
    add_wrapped("oldest op: " + describe(*job.oldest), width, 2, Look::kPlain, &lines);
  }
  return lines;
}

// Rows of a table, the headings above them, in so many lines; what does not fit is counted.
void add_rows(const Lines& rows, size_t first, size_t room, Lines* lines) {
  if (room == 0 || rows.empty()) return;
  lines->push_back(rows.front());
  const size_t count = rows.size() - 1;
  first = std::min(first, count);
  const bool all = count - first < room;
  const size_t shown = all ? count - first : room - std::min<size_t>(room, 2);
  for (size_t i = 0; i < shown; ++i) lines->push_back(rows[1 + first + i]);
  if (!all && room > 1) {
    lines->push_back({{fmt::format("… {} more", count - first - shown), Look::kFaint}});
  }
}

// So that the selected one is seen.
size_t first_job(const Model& model, const View& view, size_t room) {
  const auto jobs = jobs_shown(model, view);
  const auto at =
      static_cast<size_t>(std::ranges::find(jobs, selected_job(model, view)) - jobs.begin());
  const size_t seen = room > 2 ? room - 2 : 1;
  return jobs.size() < room || at < seen ? 0 : at + 1 - seen;
}

// The jobs and, below them, links or ranks, in so many lines.
Lines middle_of(const Model& model, const View& view, size_t width, size_t room) {
  const Job* const job = selected_job(model, view);
  const Lines jobs = jobs_grid(model, view, width).lines(width);
  Lines details = job == nullptr ? Lines() : details_of(*job, width);
  const bool ranks = view.ranks && job != nullptr;
  const Lines below = (ranks ? ranks_grid(*job) : links_grid(model, view)).lines(width);

  // Each may have what it needs; where that is too much, what is below has at least a third.
  const size_t gaps = 1;
  if (details.size() + gaps + 4 > room) details.clear();
  const size_t both = room - std::min(room, details.size() + gaps);
  const size_t least_below = std::min(below.size(), both / 3);
  const size_t for_jobs = std::min(std::max<size_t>(jobs.size(), 2), both - least_below);

  Lines lines;
  add_rows(jobs, first_job(model, view, for_jobs), for_jobs, &lines);
  if (jobs.size() == 1 && for_jobs > 1) {
    lines.push_back({{view.filter.empty() ? "no jobs" : "no such job", Look::kFaint}});
  }
  lines.insert(lines.end(), details.begin(), details.end());
  lines.emplace_back();
  if (below.size() == 1 && !ranks) {
    lines.push_back({{"no peers: jobs stay on this node", Look::kFaint}});
  } else {
    add_rows(below, ranks ? view.scroll : 0, both - for_jobs, &lines);
  }
  return lines;
}

Lines help_of(size_t width) {
  Lines lines = {{{"gradring", Look::kTitle}, {"  gradringctl top"}}, {}};
  for (const auto& [key, meaning] : kKeys) {
    lines.push_back({{fmt::format("  {:<16}", key), Look::kTitle}, {meaning}});
  }
  lines.emplace_back();
  for (const char* meaning : kMeanings) add_wrapped(meaning, width, 3, Look::kPlain, &lines);
  return lines;
}

Line bottom_of(const View& view) {
  if (view.help) return {{"any key: back", Look::kFaint}};
  if (view.typing) return {{"show jobs with: "}, {printable(view.filter) + "_", Look::kTitle}};
  Line line = {
      {"q quit  s sort  r reverse  / filter  n node  p pause  enter ranks  h help", Look::kFaint}};
  if (!view.filter.empty()) {
    line.insert(line.begin(), {"jobs with \"" + printable(view.filter) + "\"  ", Look::kTitle});
  }
  return line;
}

}  // namespace

std::vector<Line> frame_of(const Model& model, const View& view, const Size& size) {
  Lines lines;
  if (size.height == 0) return lines;
  const size_t room = size.height - 1;
  if (view.help) {
    lines = help_of(size.width);
  } else {
    // Of a low screen not all of it.
    lines = top_of(model, view, size.width, size.height / 6);
    if (lines.size() < room && !model.here.empty()) {
      for (Line& line : middle_of(model, view, size.width, room - lines.size())) {
        lines.push_back(std::move(line));
      }
    }
  }
  lines.resize(room);
  lines.push_back(bottom_of(view));
  for (Line& line : lines) line = cut(line, size.width);
  return lines;
}

std::string text_of(const std::vector<Line>& frame) {
  std::string text;
  for (const Line& line : frame) {
    for (const Span& span : line) text += span.text;
    text.erase(text.find_last_not_of(' ') + 1);
    text += '\n';
  }
  while (text.ends_with("\n\n")) text.pop_back();
  return text;
}

}  // namespace gradring::tools::top
