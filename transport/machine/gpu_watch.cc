#include "transport/machine/gpu_watch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstring>

#include "transport/machine/gpu_records.h"

namespace gradring::machine {
namespace {

constexpr uint32_t kGpuMark = 0x67707531;
constexpr size_t kRecordsPerTurn = 64;
constexpr uint64_t kXidMost = 1'000'000;  // there are some 200

template <size_t kSize>
std::array<char, kSize> padded(const std::string& text) {
  std::array<char, kSize> bytes{};
  std::copy_n(text.begin(), std::min(text.size(), kSize - 1), bytes.begin());
  return bytes;
}

template <size_t kSize>
std::optional<std::string> text_in(const std::array<char, kSize>& bytes) {
  const auto* const end = std::find(bytes.begin(), bytes.end(), '\0');
  if (end == bytes.end()) return std::nullopt;
  return std::string(bytes.begin(), end);
}

bool is_uuid(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-' || c == '/';  // MIG of old drivers: MIG-GPU-.../1/0
  });
}

// In the child. It lives as long as the daemon does, so it must hold on to nothing that the daemon
// may let go of: sockets, memory of trainers, systemd's descriptors.
void keep_but(int to) {
  if (const int nowhere = open("/dev/null", O_RDWR); nowhere >= 0) {
    for (const int standard : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(nowhere, standard);
  }
  const auto number = static_cast<unsigned>(to);
  if (close_range(number + 1, ~0u, 0) != 0) {  // before Linux 5.9
    const auto most = std::min<long>(sysconf(_SC_OPEN_MAX), 1 << 16);
    for (int fd = to + 1; fd < most; ++fd) close(fd);
  }
  for (int fd = STDERR_FILENO + 1; fd < to; ++fd) close(fd);
}

int watch_and_tell(const std::string& library, int to) {
  prctl(PR_SET_NAME, "gradringd-gpus");
  keep_but(to);
  return tell_gpu_events(library, to) ? 0 : 1;
}

}  // namespace

GpuRecord record_of(const GpuNews& news) {
  GpuRecord record;
  record.mark = kGpuMark;
  record.kind = static_cast<uint16_t>(news.kind);
  record.fault = static_cast<uint16_t>(news.fault);
  record.xid = news.xid;
  record.gpu = padded<96>(news.gpu);
  record.part = padded<96>(news.part);
  record.pci = padded<32>(text_of(news.pci));
  return record;
}

std::optional<GpuNews> news_of(const GpuRecord& record) {
  const auto gpu = text_in(record.gpu), part = text_in(record.part), pci = text_in(record.pci);
  const bool sound = record.mark == kGpuMark &&
                     record.kind <= static_cast<uint16_t>(GpuNews::Kind::kFault) &&
                     record.fault < kGpuFaults && record.xid <= kXidMost && gpu && is_uuid(*gpu) &&
                     part && (part->empty() || is_uuid(*part)) && pci;
  if (!sound) return std::nullopt;
  GpuNews news;
  news.kind = static_cast<GpuNews::Kind>(record.kind);
  if (news.kind == GpuNews::Kind::kPart && part->empty()) return std::nullopt;
  const auto address = parse_pci(*pci);
  if (!address) return std::nullopt;
  news.fault = static_cast<GpuFault>(record.fault);
  news.xid = record.xid;
  news.gpu = *gpu;
  news.part = *part;
  news.pci = *address;
  return news;
}

void GpuWatch::start(const std::string& library) {
  fault_.clear();
  rest_.clear();
  const std::string wrong = child_.start([&](int to) { return watch_and_tell(library, to); });
  if (!wrong.empty()) fail(wrong);
}

std::vector<GpuNews> GpuWatch::take() {
  std::vector<GpuNews> news;
  if (over()) return news;
  std::array<std::byte, kRecordsPerTurn * sizeof(GpuRecord)> part{};
  const ssize_t count = ::read(fd(), part.data(), part.size());
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return news;
  if (count <= 0) {
    ended();
    return news;
  }
  rest_.insert(rest_.end(), part.begin(), part.begin() + count);
  size_t at = 0;
  for (; rest_.size() - at >= sizeof(GpuRecord); at += sizeof(GpuRecord)) {
    GpuRecord record;
    std::memcpy(&record, rest_.data() + at, sizeof record);
    auto one = news_of(record);
    if (!one) {
      fail("the process that watches them said what makes no sense");
      return news;
    }
    news.push_back(std::move(*one));
  }
  rest_.erase(rest_.begin(), rest_.begin() + static_cast<ptrdiff_t>(at));
  return news;
}

// The child has closed its end: it is gone, or about to be.
void GpuWatch::ended() {
  const std::optional<int> status = child_.status();
  if (!status) return fail("the process that watches them does not end");
  if (WIFSIGNALED(*status)) {
    return fail(fmt::format("the process that watches them ended by signal {} ({})",
                            WTERMSIG(*status), strsignal(WTERMSIG(*status))));
  }
  if (WEXITSTATUS(*status) != 0) return fail("NVML has stopped working");
  child_.end();
}

void GpuWatch::fail(const std::string& why) {
  child_.end();
  fault_ = why;
}

}  // namespace gradring::machine
