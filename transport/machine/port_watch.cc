#include "transport/machine/port_watch.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "transport/machine/port_sources.h"

namespace gradring::machine {
namespace {

constexpr std::array<const char*, kPortChanges> kChangeNames = {
    "down", "active", "gone", "addresses", "lid", "partitions", "subnet_manager", "reregistration"};

constexpr size_t kNewsMost = 256;  // that nobody takes
constexpr std::chrono::seconds kPatience{1};

int64_t monotonic_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

void signal_fd(int fd) {
  const uint64_t one = 1;
  [[maybe_unused]] const auto n = write(fd, &one, sizeof one);
}

void drain_fd(int fd) {
  uint64_t count = 0;
  [[maybe_unused]] const auto n = read(fd, &count, sizeof count);
}

}  // namespace

const char* name_of(PortChange change) { return kChangeNames.at(static_cast<size_t>(change)); }

double rate_of(const PortReading& reading, PortCounter counter) {
  const auto& from = reading.before[counter];
  const auto& to = reading.last[counter];
  if (reading.before_at == 0 || !from || !to || *to < *from) return 0;
  return static_cast<double>(*to - *from) * 1e9 /
         static_cast<double>(reading.last_at - reading.before_at);
}

struct PortWatch::Shared {
  Shared() : news_fd(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)), end_fd(eventfd(0, EFD_CLOEXEC)) {}
  ~Shared() {
    close(news_fd);
    close(end_fd);
  }
  const int news_fd, end_fd;
  std::mutex mutex;
  std::condition_variable over;
  bool ended = false;
  std::vector<PortNews> news;
  std::map<PortId, PortReading> readings;

  void tell(const PortId& port, PortChange change) {
    const std::lock_guard<std::mutex> lock(mutex);
    // A storm of the same is told once.
    if (!news.empty() && news.back().port == port && news.back().change == change) return;
    if (news.size() >= kNewsMost) news.erase(news.begin());
    news.push_back({port, change, monotonic_ns()});
    signal_fd(news_fd);
  }
  void read_counters();
  void run(const PortWatchOptions& options);
};

void PortWatch::Shared::read_counters() {
  for (const PortId& port : list_rdma_ports()) {
    const PortCounters counters = ask_port(port);
    const int64_t now = monotonic_ns();
    const std::lock_guard<std::mutex> lock(mutex);
    PortReading& reading = readings[port];
    if (reading.last_at == 0) {
      reading.first = counters;
    } else {
      reading.before = reading.last;
      reading.before_at = reading.last_at;
    }
    reading.last = counters;
    reading.last_at = now;
  }
}

void PortWatch::Shared::run(const PortWatchOptions& options) {
  const TellChange tell_change = [this](const PortId& port, PortChange to) { tell(port, to); };
  std::map<std::string, std::vector<uint32_t>> devices;
  std::vector<std::string> interfaces;
  for (const PortId& port : options.ports) {
    if (port.number == 0) {
      interfaces.push_back(port.device);
    } else {
      devices[port.device].push_back(port.number);
    }
  }
  LinkEvents links(std::move(interfaces), tell_change);
  links.look();
  std::vector<std::unique_ptr<DeviceEvents>> cards;
  for (auto& [name, ports] : devices) {
    cards.push_back(std::make_unique<DeviceEvents>(name, std::move(ports), tell_change));
  }
  std::vector<pollfd> items;
  int64_t due = 0;
  for (;;) {
    if (monotonic_ns() >= due) {
      for (const auto& card : cards) card->look();
      read_counters();
      due = monotonic_ns() + int64_t{options.period_ms} * 1'000'000;
    }
    items = {{end_fd, POLLIN, 0}, {links.fd(), POLLIN, 0}};  // poll() passes over -1
    for (const auto& card : cards) items.push_back({card->fd(), POLLIN, 0});
    bool any_rdma = !cards.empty();
    {
      const std::lock_guard<std::mutex> lock(mutex);
      any_rdma = any_rdma || !readings.empty();
    }
    const int64_t left = std::max<int64_t>(due - monotonic_ns(), 0) / 1'000'000 + 1;
    poll(items.data(), items.size(), any_rdma ? static_cast<int>(left) : -1);
    if (items[0].revents != 0) return;
    if (items[1].revents != 0) links.read();
    for (size_t i = 0; i < cards.size(); ++i) {
      const short what = items[i + 2].revents;
      if (what != 0) cards[i]->read((what & (POLLERR | POLLHUP | POLLNVAL)) != 0);
    }
  }
}

PortWatch::PortWatch(const PortWatchOptions& options) : shared_(std::make_shared<Shared>()) {
  std::thread([shared = shared_, options] {
    shared->run(options);
    const std::lock_guard<std::mutex> lock(shared->mutex);
    shared->ended = true;
    shared->over.notify_all();
  }).detach();
}

PortWatch::~PortWatch() {
  signal_fd(shared_->end_fd);
  std::unique_lock<std::mutex> lock(shared_->mutex);
  shared_->over.wait_for(lock, kPatience, [this] { return shared_->ended; });
}

int PortWatch::event_fd() const { return shared_->news_fd; }

std::vector<PortNews> PortWatch::take() {
  const std::lock_guard<std::mutex> lock(shared_->mutex);
  drain_fd(shared_->news_fd);
  return std::exchange(shared_->news, {});
}

std::map<PortId, PortReading> PortWatch::readings() const {
  const std::lock_guard<std::mutex> lock(shared_->mutex);
  return shared_->readings;
}

}  // namespace gradring::machine
