#include "daemon/control/peers/name_lookups.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "daemon/clock.h"
#include "daemon/core/time.h"
#include "daemon/fd.h"

namespace gradring::daemon {
namespace {

// More names than these that nobody answers for keep others waiting.
constexpr size_t kThreadsMost = 16;

// An answer that nobody has fetched may be an address that the name has no more.
constexpr core::Time kFresh = 10 * core::kSecond;

using Question = std::pair<std::string, bool>;

// The system may show an address of IPv4 as one of IPv6.
std::string numeric(const addrinfo& one) {
  if (one.ai_family == AF_INET6) {
    const in6_addr& v6 = reinterpret_cast<const sockaddr_in6*>(one.ai_addr)->sin6_addr;
    if (IN6_IS_ADDR_V4MAPPED(&v6)) {
      return fmt::format("{}.{}.{}.{}", v6.s6_addr[12], v6.s6_addr[13], v6.s6_addr[14],
                         v6.s6_addr[15]);
    }
  }
  std::array<char, NI_MAXHOST> host{};
  const int error = getnameinfo(one.ai_addr, one.ai_addrlen, host.data(), host.size(), nullptr, 0,
                                NI_NUMERICHOST);
  return error == 0 ? host.data() : "";
}

}  // namespace

struct NameLookups::Shared {
  struct State {
    std::optional<Answer> answer;  // nothing yet
    core::Time at = 0;             // when it came
    bool stale(core::Time now) const { return answer && now - at >= kFresh; }
  };

  Ask ask;
  Fd news;
  std::mutex mutex;  // of all below
  std::map<Question, State> states;
  std::deque<Question> waiting;
  size_t threads = 0;
  core::Time tidied = 0;  // of answers that nobody has fetched

  void answer(const Question& question, Answer answer) {
    states[question] = {std::move(answer), monotonic_now()};
    const uint64_t one = 1;
    [[maybe_unused]] const auto written = write(news.get(), &one, sizeof one);
  }

  void run() {
    std::unique_lock<std::mutex> lock(mutex);
    while (!waiting.empty()) {
      const Question question = std::move(waiting.front());
      waiting.pop_front();
      lock.unlock();
      Answer found = ask(question.first, question.second);
      lock.lock();
      answer(question, std::move(found));
    }
    --threads;
  }
};

std::string NameLookups::unanswered(const std::string& name) {
  return fmt::format("the name {} cannot be looked up: no name server answers", name);
}

NameLookups::Answer NameLookups::ask(const std::string& name, bool by_ipv6) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_family = by_ipv6 ? AF_INET6 : AF_INET;
  if (by_ipv6) hints.ai_flags = AI_V4MAPPED;
  addrinfo* first = nullptr;
  const int error = getaddrinfo(name.c_str(), nullptr, &hints, &first);
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> all(error == 0 ? first : nullptr,
                                                           freeaddrinfo);
  Answer answer;
  if (all) answer.host = numeric(*all);
  if (error == EAI_AGAIN) {
    answer.fault = unanswered(name);
  } else if (answer.host.empty()) {
    answer.fault = fmt::format("the name {} cannot be looked up: {}", name,
                               error == EAI_SYSTEM ? std::strerror(errno) : gai_strerror(error));
  }
  return answer;
}

NameLookups::NameLookups(Ask ask) : shared_(std::make_shared<Shared>()) {
  shared_->ask = std::move(ask);
  shared_->news.reset(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
}

NameLookups::~NameLookups() {
  const std::lock_guard<std::mutex> lock(shared_->mutex);
  shared_->waiting.clear();
}

std::optional<NameLookups::Answer> NameLookups::look_up(const std::string& name, bool by_ipv6) {
  const std::lock_guard<std::mutex> lock(shared_->mutex);
  const core::Time now = monotonic_now();
  if (now - shared_->tidied >= kFresh) {
    shared_->tidied = now;
    std::erase_if(shared_->states, [now](const auto& entry) { return entry.second.stale(now); });
  }
  const Question question{name, by_ipv6};
  const auto known = shared_->states.find(question);
  if (known != shared_->states.end() && !known->second.stale(now)) {
    if (!known->second.answer) return std::nullopt;
    auto answer = std::move(known->second.answer);
    shared_->states.erase(known);
    return answer;
  }
  shared_->states[question] = {};
  shared_->waiting.push_back(question);
  if (shared_->threads >= kThreadsMost) return std::nullopt;
  try {
    std::thread([shared = shared_] {
      pthread_setname_np(pthread_self(), "gr-names");
      shared->run();
    }).detach();
    ++shared_->threads;
  } catch (const std::system_error& error) {
    if (shared_->threads > 0) return std::nullopt;  // they come to it
    shared_->waiting.pop_back();
    shared_->answer(question, {"", fmt::format("the name {} cannot be looked up: no thread: {}",
                                               name, error.what())});
  }
  return std::nullopt;
}

int NameLookups::event_fd() const { return shared_->news.get(); }

void NameLookups::hear() {
  uint64_t count = 0;
  [[maybe_unused]] const auto got = read(shared_->news.get(), &count, sizeof count);
}

}  // namespace gradring::daemon
