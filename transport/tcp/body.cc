#include "transport/tcp/body.h"

#include <sys/epoll.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "transport/tcp/constants.h"
#include "transport/tcp/wire.h"

namespace gradring::transport {

static_assert(kTcpSliceBytes / 4 + kPrefixBytes <= kBundleBytes);

std::string TcpTransport::name() const { return "tcp 1"; }

std::string TcpTransport::devices() const {
  std::string text;
  for (const std::string& device : options_.devices) text += (text.empty() ? "" : ", ") + device;
  return text + " (TCP)";
}

size_t TcpTransport::preferred_payload_bytes() const { return kTcpSliceBytes; }

int TcpTransport::progress(Events& events) {
  constexpr int kNews = 32;
  std::array<epoll_event, kNews> news;
  int work = notices_.tell(events) + accept_rest(&events);
  bool round_is_over = false;
  const int count = epoll_wait(epoll_.fd(), news.data(), kNews, 0);
  for (int i = 0; i < count; ++i) {
    const Number number = news[static_cast<size_t>(i)].data.u64;
    if (number == kNewsOfSender) {
      work += hear_of_sent();
    } else if (number == kPatience) {
      round_is_over = true;
    } else if (const auto listener = listeners_.find(number); listener != listeners_.end()) {
      if (accept_some(listener->second.fd(), &events)) crowded_.insert(number);
    } else if (links_.contains(number)) {
      on_news(number, (news[static_cast<size_t>(i)].events & EPOLLOUT) != 0);
    } else {
      work += take(number, &events);
    }
  }
  // Not before: news of an address that has just answered would be taken for that of the next.
  if (round_is_over) try_other_ways();
  return work + notices_.tell(events);
}

Status TcpTransport::watch(int fd, Number number, uint32_t what) {
  epoll_event event{};
  event.events = what;
  event.data.u64 = number;
  if (epoll_ctl(epoll_.fd(), EPOLL_CTL_ADD, fd, &event) == 0) return {};
  return {Code::kResourceExhausted,
          "the system lets no more sockets be watched: " + std::string(std::strerror(errno))};
}

}  // namespace gradring::transport
