#include "daemon/records/tuning_store.h"

#include <fmt/format.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <utility>

#include "daemon/tuning_text.h"
#include "record.pb.h"

namespace gradring::daemon {
namespace {

// Of whoever has more kinds of jobs than this, the oldest are measured again.
constexpr int kRecordsMax = 64;
constexpr size_t kFileBytesMax = 4 << 20;  // whatever is larger was not written by us

// The library would print to the daemon's standard error by itself.
class FirstFault final : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line, int column, const std::string& message) override {
    if (text_.empty()) text_ = fmt::format("line {}:{}: {}", line + 1, column + 1, message);
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

wire::TuningFile read(const std::string& path) {
  wire::TuningFile file;
  std::ifstream stream(path, std::ios::binary);
  if (!stream) return file;  // none yet
  std::string text(kFileBytesMax + 1, '\0');
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(stream.gcount()));
  FirstFault fault;
  google::protobuf::TextFormat::Parser parser;
  parser.RecordErrorsTo(&fault);
  if (text.size() <= kFileBytesMax && parser.ParseFromString(text, &file)) return file;
  spdlog::warn("tuning-file {} is not used: {}; it will be written anew", path,
               text.size() > kFileBytesMax ? "too large" : fault.text());
  return {};
}

void write(const wire::TuningFile& file, const std::string& path) {
  std::string text;
  google::protobuf::TextFormat::PrintToString(file, &text);
  const std::string next = path + ".new";
  {
    std::ofstream stream(next, std::ios::binary | std::ios::trunc);
    stream << "# Tables that gradringd has found (docs/tuning.md).\n" << text;
    stream.flush();
    if (stream && std::rename(next.c_str(), path.c_str()) == 0) return;
  }
  spdlog::warn("tuning-file {} cannot be written, and later jobs will search again: {}", path,
               std::strerror(errno));
}

bool is_for(const wire::TuningRecord& record, const TunedFor& on) {
  const auto same = [](const wire::TuningRecord::Node& a, const TunedFor::Node& b) {
    return a.name() == b.name && a.ranks() == b.ranks && a.lanes() == b.lanes;
  };
  return record.slice_bytes() == on.slice_bytes && record.version() == on.version &&
         std::equal(record.nodes().begin(), record.nodes().end(), on.nodes.begin(), on.nodes.end(),
                    same);
}

wire::TuningRecord record_of(const TunedFor& on, const KnownTable& known) {
  wire::TuningRecord record;
  for (const TunedFor::Node& node : on.nodes) {
    wire::TuningRecord::Node* to = record.add_nodes();
    to->set_name(node.name);
    to->set_ranks(node.ranks);
    to->set_lanes(node.lanes);
  }
  record.set_slice_bytes(on.slice_bytes);
  record.set_version(on.version);
  record.set_table(to_text(known.table));
  for (const uint32_t size_class : known.searched) record.add_searched(name_of_size(size_class));
  return record;
}

std::optional<KnownTable> known_of(const wire::TuningRecord& record) {
  const auto table = parse_tuning(record.table());
  if (!table) return std::nullopt;
  KnownTable known{*table, {}};
  for (uint32_t c = 0; c < core::kSizeClasses; ++c) {
    const auto& names = record.searched();
    if (std::find(names.begin(), names.end(), name_of_size(c)) != names.end()) {
      known.searched.insert(c);
    }
  }
  return known;
}

}  // namespace

std::optional<KnownTable> TuningStore::find(const TunedFor& on) const {
  const wire::TuningFile file = read(path_);
  const auto& found = file.found();
  const auto it = std::find_if(found.rbegin(), found.rend(),
                               [&](const auto& record) { return is_for(record, on); });
  return it == found.rend() ? std::nullopt : known_of(*it);
}

void TuningStore::keep(const TunedFor& on, const KnownTable& known) {
  wire::TuningFile file = read(path_);
  auto& found = *file.mutable_found();
  found.erase(std::remove_if(found.begin(), found.end(),
                             [&](const auto& record) { return is_for(record, on); }),
              found.end());
  *found.Add() = record_of(on, known);
  while (found.size() > 1 &&
         (found.size() > kRecordsMax || file.ByteSizeLong() > kFileBytesMax / 4)) {
    found.erase(found.begin());
  }
  write(file, path_);
}

}  // namespace gradring::daemon
