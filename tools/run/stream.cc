#include "tools/run/stream.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>

namespace gradring::tools {
namespace {

// A rank that writes as fast as it is read must keep neither signals nor other ranks waiting.
constexpr int kTurns = 4;

}  // namespace

std::string time_now() {
  using std::chrono::milliseconds;
  const auto now = std::chrono::system_clock::now();
  const auto since = std::chrono::duration_cast<milliseconds>(now.time_since_epoch()).count();
  const std::time_t seconds = since / 1000;
  return fmt::format("{:%Y-%m-%d %H:%M:%S}.{:03} ", fmt::localtime(seconds), since % 1000);
}

tl::expected<void, std::string> Stream::save_to(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
  if (!error) {
    file_.reset(std::fopen(path.c_str(), "we"));
    if (file_ == nullptr) error = {errno, std::generic_category()};
  }
  if (error) return tl::unexpected(fmt::format("cannot write {}: {}", path, error.message()));
  if (std::setvbuf(file_.get(), nullptr, _IONBF, 0) != 0) {
    return tl::unexpected(fmt::format("cannot write {} as it comes", path));
  }
  path_ = path;
  return {};
}

void Stream::save(std::string_view bytes) {
  if (file_ == nullptr) return;
  if (std::fwrite(bytes.data(), 1, bytes.size(), file_.get()) == bytes.size()) return;
  failed_ = path_;
  file_.reset();
}

void Stream::drain(int* fd, bool last) {
  std::array<char, 16384> bytes;
  for (int turn = 0; *fd >= 0 && (last || turn < kTurns); ++turn) {
    const ssize_t got = read(*fd, bytes.data(), bytes.size());
    if (got > 0) {
      const std::string_view read_now(bytes.data(), static_cast<size_t>(got));
      save(read_now);
      to_->write(tagger_.feed(read_now));
      continue;
    }
    if (got < 0 && errno == EINTR) continue;
    if (got == 0 || last) {
      to_->write(tagger_.flush());
      close(*fd);
      *fd = -1;
    }
    return;
  }
}

}  // namespace gradring::tools
