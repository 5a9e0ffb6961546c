#include "daemon/records/tuning_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>
#include <spdlog/spdlog.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <utility>

#include "daemon/fd.h"
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

// What becomes the file next. Whoever writes it has its lock, and nobody waits for that.
class NextFile {
 public:
  explicit NextFile(const std::string& path)
      : path_(path + ".new"),
        file_(open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644)),
        error_(file_ ? 0 : errno) {
    if (!file_) return;
    struct stat held {};
    struct stat named {};
    taken_ = (flock(file_.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) ||
             fstat(file_.get(), &held) != 0 || stat(path_.c_str(), &named) != 0 ||
             held.st_dev != named.st_dev || held.st_ino != named.st_ino;  // it is the file by now
  }
  bool taken() const { return taken_; }

  // 0 or errno.
  int become(const std::string& path, const std::string& text) {
    if (!file_) return error_;
    if (ftruncate(file_.get(), 0) != 0) return errno;
    errno = ENOSPC;  // where less is written than was asked for
    const ssize_t written = pwrite(file_.get(), text.data(), text.size(), 0);
    if (written != static_cast<ssize_t>(text.size())) return errno;
    return std::rename(path_.c_str(), path.c_str()) == 0 ? 0 : errno;
  }

 private:
  const std::string path_;
  Fd file_;
  const int error_;
  bool taken_ = false;
};

std::string text_of(const wire::TuningFile& file) {
  std::string text;
  google::protobuf::TextFormat::PrintToString(file, &text);
  return "# Tables that gradringd has found (docs/tuning.md).\n" + text;
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

std::optional<KnownTable> known_of(const wire::TuningRecord& record, const std::string& path) {
  const auto table = parse_tuning(record.table());
  if (!table) {
    spdlog::warn("tuning-file {}: a table is not used, and is searched for anew: {}", path,
                 table.error());
    return std::nullopt;
  }
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
  return it == found.rend() ? std::nullopt : known_of(*it, path_);
}

bool TuningStore::keep(const TunedFor& on, const KnownTable& known) {
  NextFile next(path_);
  if (next.taken()) return false;
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
  if (const int error = next.become(path_, text_of(file)); error != 0) {
    spdlog::warn("tuning-file {} cannot be written, and later jobs will search again: {}", path_,
                 std::strerror(error));
  }
  return true;
}

}  // namespace gradring::daemon
