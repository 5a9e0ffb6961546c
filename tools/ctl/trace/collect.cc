#include "tools/ctl/trace/collect.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

namespace gradring::tools {
namespace {

constexpr uint64_t kChunkBytes = 256 << 10;  // what a daemon gives at once
constexpr int kClockSamples = 8;

wire::Query flight_query(const std::string& node, bool trace, uint64_t offset, uint64_t bytes) {
  wire::Query query;
  query.set_what(wire::Query::FLIGHT);
  query.set_node(node);
  query.mutable_flight()->set_trace(trace);
  query.mutable_flight()->set_offset(offset);
  query.mutable_flight()->set_bytes(bytes);
  return query;
}

// A daemon's file, read through it.
class FarFile {
 public:
  FarFile(Questions* questions, std::string node, bool trace)
      : questions_(questions), node_(std::move(node)), trace_(trace) {}

  // Without its data.
  tl::expected<wire::FlightReport, Status> about() {
    const Reply reply = questions_->ask(flight_query(node_, trace_, 0, 0));
    if (!reply) return tl::unexpected(reply.error());
    return reply->flight();
  }

  bool read_at(uint64_t offset, std::span<std::byte> to,
               const std::function<void(uint64_t)>& read) {
    while (!to.empty()) {
      const uint64_t bytes = std::min<uint64_t>(to.size(), kChunkBytes);
      const Reply reply = questions_->ask(flight_query(node_, trace_, offset, bytes));
      if (!reply) fault_ = reply.error();
      if (!reply || reply->flight().data().size() != bytes) return false;
      std::memcpy(to.data(), reply->flight().data().data(), bytes);
      to = to.subspan(bytes);
      offset += bytes;
      read(bytes);
    }
    return true;
  }

  const Status& fault() const { return fault_; }

 private:
  Questions* questions_;
  const std::string node_;
  const bool trace_;
  Status fault_;
};

// By node; none of this one. `nodes`: that answered; `missing`: why others did not. Nobody is
// waited for again.
tl::expected<std::map<std::string, std::vector<ClockSample>>, Status> compare_clocks(
    Questions& questions, std::vector<std::string>* nodes, std::vector<Status>* missing) {
  std::vector<std::string> gone;
  auto all = all_nodes(questions, &gone);
  if (!all) return tl::unexpected(all.error());
  for (std::string& why : gone) missing->emplace_back(Code::kUnavailable, std::move(why));
  *nodes = std::move(*all);
  wire::Query query;
  query.set_what(wire::Query::STATUS);
  std::map<std::string, std::vector<ClockSample>> samples;
  for (int i = 0; i < kClockSamples; ++i) {
    const auto replies = ask_nodes(questions, *nodes, query);
    if (!replies.front().reply) return tl::unexpected(replies.front().reply.error());
    nodes->clear();
    for (const NodeReply& one : replies) {
      if (!one.reply) {
        missing->push_back(one.reply.error());
        continue;
      }
      nodes->push_back(one.node);
      if (one.reply->forwarded_at() == 0) continue;
      samples[one.node].push_back(
          {one.reply->forwarded_at(), one.reply->answered_at(), one.reply->returned_at()});
    }
  }
  return samples;
}

}  // namespace

int64_t behind(const std::vector<ClockSample>& samples) {
  const auto round_trip = [](const ClockSample& s) { return s.returned - s.asked; };
  const ClockSample& best = *std::ranges::min_element(samples, {}, round_trip);
  return best.asked + round_trip(best) / 2 - best.answered;
}

tl::expected<Collected, Status> collect(Questions& questions, bool trace,
                                        const Progress& progress) {
  Collected collected;
  std::vector<std::string> nodes;
  const auto clocks = compare_clocks(questions, &nodes, &collected.missing);
  if (!clocks) return tl::unexpected(clocks.error());
  struct Part {
    std::string node;
    FarFile file;
    wire::FlightReport about;
    bool at_rest = false;
  };
  std::vector<Part> parts;
  Status first;
  uint64_t all = 0;
  for (size_t i = 0; i < nodes.size(); ++i) {
    FarFile file(&questions, i == 0 ? std::string() : nodes[i], trace);
    const auto about = file.about();
    if (!about) {
      if (first.ok()) first = about.error();
      collected.missing.push_back(about.error());
      continue;
    }
    const bool at_rest = trace && !about->tracing();
    all += about->file_bytes() * (at_rest ? 1 : 3);  // as read_flight() looks at it
    parts.push_back({nodes[i], std::move(file), *about, at_rest});
  }
  // A daemon that was started anew has no trace; those of the others are worth reading.
  if (parts.empty()) return tl::unexpected(first);
  uint64_t done = 0;
  for (Part& part : parts) {
    const auto read_at = [&](uint64_t offset, std::span<std::byte> to) {
      return part.file.read_at(offset, to, [&](uint64_t bytes) { progress(done += bytes, all); });
    };
    auto life = read_flight(part.about.file_bytes(), read_at, part.at_rest);
    if (!life) {
      const std::string why = part.file.fault().ok() ? life.error() : part.file.fault().message();
      collected.missing.emplace_back(Code::kUnavailable,
                                     fmt::format("node {}: {}", part.node, why));
      continue;
    }
    const auto samples = clocks->find(part.node);
    const int64_t late = samples == clocks->end() ? 0 : behind(samples->second);
    const int64_t since = trace ? part.about.trace_since() : 0;
    collected.nodes.push_back({part.node, std::move(*life), late, since});
  }
  progress(all, all);
  return collected;
}

}  // namespace gradring::tools
