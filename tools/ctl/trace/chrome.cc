#include "tools/ctl/trace/chrome.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace gradring::tools {
namespace {

using Json = nlohmann::ordered_json;

// Perfetto takes no tid of more than 32 bits, and puts what has one into a track of its choice.
constexpr uint32_t kRowsOfATrack = 256;        // of a rank or lane, side by side
constexpr uint32_t kFirstLane = 1 << 22;       // above all ranks
constexpr uint32_t kGpus = 1 << 23;            // above all lanes
constexpr uint32_t kFurtherRows = 0xc0000000;  // above all of these: rows of whatever has more

std::string upper(std::string text) {
  std::ranges::transform(text, text.begin(),
                         [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return text;
}

class Writer {
 public:
  Writer(const Timeline& timeline, std::ostream& to) : timeline_(timeline), to_(to) {}

  void write() {
    find_bounds();
    to_ << "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"program\":\"gradring\"},\"traceEvents\":[";
    for (const OpSpan& op : timeline_.ops) write(op);
    for (const SliceSpan& slice : timeline_.slices) write(slice);
    for (const GpuSpan& span : timeline_.gpus) write(span);
    for (const Moment& moment : timeline_.moments) write(moment);
    to_ << "\n]}\n";
  }

 private:
  using Process = std::pair<std::string, std::string>;  // node, job

  struct Row {
    int64_t free_from = 0;
    uint64_t tid = 0;
  };

  void find_bounds() {
    first_ = std::numeric_limits<int64_t>::max();
    const auto see = [this](int64_t at) {
      if (at == 0) return;
      first_ = std::min(first_, at);
      last_ = std::max(last_, at);
    };
    const auto see_op = [&](const std::string& node, int64_t at) {
      see(at);
      int64_t& first =
          first_of_.try_emplace(node, std::numeric_limits<int64_t>::max()).first->second;
      if (at != 0) first = std::min(first, at);
    };
    for (const OpSpan& op : timeline_.ops) see_op(op.node, op.submitted), see_op(op.node, op.ended);
    for (const SliceSpan& slice : timeline_.slices) see_op(slice.node, slice.from), see(slice.to);
    for (const GpuSpan& span : timeline_.gpus) see_op(span.node, span.from), see(span.to);
    for (const Moment& moment : timeline_.moments) see(moment.at);
  }

  double us(int64_t at) const { return static_cast<double>(at - first_) / 1e3; }

  void put(const Json& event) {
    to_ << (any_ ? ",\n" : "\n")
        << event.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    any_ = true;
  }

  Json event(const char* phase, std::string name, uint64_t pid, uint64_t tid, int64_t at) const {
    return {{"ph", phase}, {"name", std::move(name)}, {"pid", pid}, {"tid", tid}, {"ts", us(at)}};
  }

  void name_it(const char* what, uint64_t pid, uint64_t tid, const std::string& name) {
    put({{"ph", "M"}, {"name", what}, {"pid", pid}, {"tid", tid}, {"args", {{"name", name}}}});
  }

  uint64_t pid_of(const std::string& node, const std::string& job) {
    const auto [it, made] = processes_.try_emplace({node, job}, processes_.size() + 1);
    if (made) {
      name_it("process_name", it->second, 0,
              job.empty() ? "node " + node : "job " + job + " on node " + node);
    }
    return it->second;
  }

  // The first row of the track that is free from `from` on: what is in one row must not overlap.
  uint64_t row_of(uint64_t pid, uint64_t track, int64_t from, int64_t to, const std::string& name) {
    std::vector<Row>& rows = rows_[{pid, track}];
    size_t row = 0;
    while (row < rows.size() && rows[row].free_from > from) ++row;
    if (row == rows.size()) {
      const uint64_t tid =
          row < kRowsOfATrack ? track * kRowsOfATrack + row + 1 : kFurtherRows + further_rows_++;
      rows.push_back({0, tid});
      name_it("thread_name", pid, tid, row == 0 ? name : name + " +" + std::to_string(row));
    }
    rows[row].free_from = to;
    return rows[row].tid;
  }

  void write(const OpSpan& op) {
    const int64_t from = op.submitted != 0 ? op.submitted : first_of_.at(op.node);
    const int64_t to = op.ended != 0 ? op.ended : last_;
    const uint64_t pid = pid_of(op.node, op.job);
    const uint64_t tid = row_of(pid, op.rank, from, to, "rank " + std::to_string(op.rank));
    const auto span = [&](const std::string& name, int64_t begin, int64_t end) {
      Json made = event("X", name, pid, tid, begin);
      made["dur"] = static_cast<double>(end - begin) / 1e3;
      return made;
    };
    Json whole = span(op.name, from, to);
    whole["cat"] = "op";
    whole["args"] = {{"collective", op.collective},
                     {"bytes", op.bytes},
                     {"end", op.ended != 0 ? op.end : "under way"}};
    if (op.failed) whole["cname"] = "terrible";
    put(whole);
    const std::string kind = upper(op.collective.empty() ? "op" : op.collective);
    const int64_t moved = op.moved != 0 ? std::clamp(op.moved, from, to) : to;
    if (op.submitted != 0) put(span("NEGOTIATE_" + kind, from, moved));
    if (moved < to) put(span(kind, moved, to));
    if (op.submitted == 0 || op.ended == 0) return;
    put(arrow("s", flow_of(op), pid, tid, from));
    Json end = arrow("f", flow_of(op), pid, tid, to);
    end["bp"] = "e";
    put(end);
    flows_.insert({{op.node, op.flow}, flow_of(op)});  // the first rank's leads to the slices
  }

  // One arrow for each rank's op.
  static uint64_t flow_of(const OpSpan& op) { return op.flow ^ (uint64_t{op.rank} << 40); }

  Json arrow(const char* phase, uint64_t flow, uint64_t pid, uint64_t tid, int64_t at) const {
    Json made = event(phase, "op", pid, tid, at);
    made["cat"] = "flow";
    made["id"] = fmt::format("{:#x}", flow);  // as a number it would be rounded
    return made;
  }

  void write(const SliceSpan& slice) {
    const uint64_t pid = pid_of(slice.node, slice.job);
    const int64_t to = std::max(slice.to, slice.from + 1);
    const uint64_t tid =
        row_of(pid, kFirstLane + slice.lane, slice.from, to, "lane " + std::to_string(slice.lane));
    Json made =
        event("X", slice.op + " slice " + std::to_string(slice.slice), pid, tid, slice.from);
    made["dur"] = static_cast<double>(to - slice.from) / 1e3;
    made["cat"] = "slice";
    made["args"] = {{"phase", slice.phase}, {"hop", slice.hop}};
    put(made);
    const auto flow = flows_.find({slice.node, slice.flow});
    if (flow != flows_.end()) put(arrow("t", flow->second, pid, tid, slice.from));
  }

  void write(const GpuSpan& span) {
    const uint64_t pid = pid_of(span.node, span.job);
    const int64_t to = std::max(span.to != 0 ? span.to : last_, span.from + 1);
    const uint64_t tid = row_of(pid, kGpus, span.from, to, "GPUs");
    Json made = event("X", span.op + " " + span.task, pid, tid, span.from);
    made["dur"] = static_cast<double>(to - span.from) / 1e3;
    made["cat"] = "gpu";
    made["args"] = {{"task", span.task}, {"bytes", span.bytes}};
    if (span.failed) made["cname"] = "terrible";
    put(made);
    const auto flow = flows_.find({span.node, span.flow});
    if (flow != flows_.end()) put(arrow("t", flow->second, pid, tid, span.from));
  }

  void write(const Moment& moment) {
    const uint64_t pid = pid_of(moment.node, moment.job);
    Json made = event("i", moment.text, pid, 0, moment.at);
    made["s"] = "p";
    made["cat"] = moment.bad ? "fault" : "event";
    if (moment.bad) made["cname"] = "terrible";
    put(made);
  }

  const Timeline& timeline_;
  std::ostream& to_;
  bool any_ = false;
  int64_t first_ = 0;
  int64_t last_ = 0;
  // Of a node's ops: it keeps less of them than of what happens to it, so one that began earlier is
  // shown from here on.
  std::map<std::string, int64_t> first_of_;
  std::map<Process, uint64_t> processes_;
  std::map<std::pair<uint64_t, uint64_t>, std::vector<Row>> rows_;  // by process and track
  uint64_t further_rows_ = 0;
  std::map<std::pair<std::string, uint64_t>, uint64_t> flows_;  // of a node's op: its arrow
};

}  // namespace

void write_chrome(const Timeline& timeline, std::ostream& to) { Writer(timeline, to).write(); }

}  // namespace gradring::tools
