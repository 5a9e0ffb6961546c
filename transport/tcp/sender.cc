#include "transport/tcp/sender.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

namespace gradring::transport {
namespace {

// Neither can fail: the counter stays small.
void ring(const Socket& event) {
  const uint64_t one = 1;
  [[maybe_unused]] const auto n = ::write(event.fd(), &one, sizeof one);
}
void silence(const Socket& event) {
  uint64_t count = 0;
  [[maybe_unused]] const auto n = ::read(event.fd(), &count, sizeof count);
}

}  // namespace

Status Sender::start() {
  for (Socket* event : {&news_, &bell_}) {
    *event = Socket(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    if (!*event) {
      return {Code::kResourceExhausted, fmt::format("eventfd: {}", std::strerror(errno))};
    }
  }
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& error) {
    return {Code::kResourceExhausted, fmt::format("no thread to send: {}", error.what())};
  }
  return {};
}

Sender::~Sender() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ending_ = true;
  }
  ring(bell_);
  thread_.join();
}

void Sender::hand_over(Number number, Outgoing* out, const Outgoing::Message& message) {
  bool wake = false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    Charge& charge = charges_.try_emplace(number, Charge{out, {}, State::kReady}).first->second;
    charge.next.push_back(message);
    // Where the kernel has no room it is the kernel that wakes.
    wake = charge.state == State::kReady && std::exchange(asleep_, false);
  }
  if (wake) ring(bell_);
}

void Sender::hear(std::vector<News>* news) {
  news->clear();
  silence(news_);
  const std::lock_guard<std::mutex> lock(mutex_);
  untold_.swap(*news);
}

void Sender::take_back(Number number, std::vector<Outgoing::Sent>* sent) {
  std::unique_lock<std::mutex> lock(mutex_);
  let_go_.wait(lock, [&] { return at_ != number; });
  if (const auto it = charges_.find(number); it != charges_.end()) {
    for (const Outgoing::Message& message : it->second.next) it->second.out->add(message);
    charges_.erase(it);
    // poll() holds what it waits for, and the kernel would not close it meanwhile.
    if (std::exchange(asleep_, false)) ring(bell_);
  }
  std::erase_if(untold_, [&](const News& news) {
    if (news.number != number) return false;
    if (news.status.ok()) sent->push_back(news.sent);
    return true;
  });
}

void Sender::run() {
  pthread_setname_np(pthread_self(), "gr-send");
  std::vector<Number> ready;  // memory for a round
  std::unique_lock<std::mutex> lock(mutex_);
  while (!ending_) {
    ready.clear();
    for (const auto& [number, charge] : charges_) {
      if (charge.state == State::kReady) ready.push_back(number);
    }
    for (const Number number : ready) give(&lock, number);
    if (ready.empty()) sleep(&lock);
  }
}

void Sender::give(std::unique_lock<std::mutex>* lock, Number number) {
  const auto it = charges_.find(number);
  if (it == charges_.end()) return;  // taken back meanwhile
  Charge& charge = it->second;
  Outgoing* const out = charge.out;
  for (const Outgoing::Message& message : charge.next) out->add(message);
  charge.next.clear();
  at_ = number;  // so that it is not taken back, and `charge` stays
  lock->unlock();
  sent_.clear();
  const Status status = out->give(&sent_);
  const bool full = out->waiting() != 0;
  lock->lock();
  at_ = 0;
  let_go_.notify_one();
  for (const Outgoing::Sent& one : sent_) tell({number, one, {}});
  if (!status.ok()) {
    charge.state = State::kBroken;
    tell({number, {}, status});
  } else if (full) {
    charge.state = State::kFull;
  } else if (charge.next.empty()) {
    charges_.erase(it);
  }
}

void Sender::sleep(std::unique_lock<std::mutex>* lock) {
  std::vector<pollfd> wakers{{bell_.fd(), POLLIN, 0}};
  std::vector<Number> full{0};
  for (const auto& [number, charge] : charges_) {
    if (charge.state != State::kFull) continue;
    wakers.push_back({charge.out->fd(), POLLOUT, 0});
    full.push_back(number);
  }
  asleep_ = true;
  lock->unlock();
  // No bound is wanted: whoever hands over, or ends this, rings.
  ::poll(wakers.data(), wakers.size(), -1);
  lock->lock();
  asleep_ = false;
  if (wakers.front().revents != 0) silence(bell_);
  for (size_t i = 1; i < wakers.size(); ++i) {
    const auto it = charges_.find(full[i]);
    if (wakers[i].revents == 0 || it == charges_.end()) continue;
    if (it->second.state == State::kFull) it->second.state = State::kReady;
  }
}

void Sender::tell(News news) {
  untold_.push_back(std::move(news));
  if (untold_.size() == 1) ring(news_);
}

}  // namespace gradring::transport
