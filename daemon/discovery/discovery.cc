#include "daemon/discovery/discovery.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>

namespace gradring::daemon {
namespace {

// A cluster that starts comes together soon, one that stands costs its name servers little.
constexpr std::chrono::seconds kSoon{1};
constexpr std::chrono::seconds kLater{5};
constexpr int kSoonTimes = 60;

// A source, and what it said last.
class Asked {
 public:
  explicit Asked(PeerSource source) : source_(std::move(source)) {}

  void ask(const Variable& variable, const Addresses& listens) {
    AddressesOr answer = source_.kind == PeerSource::Kind::kFile  ? ask_file(source_, listens)
                         : source_.kind == PeerSource::Kind::kDns ? ask_dns(source_, listens)
                                                                  : ask_slurm(source_, variable);
    const std::string fault = answer ? "" : answer.error();
    if (answer) last_ = std::move(*answer);
    if (fault == std::exchange(fault_, fault)) return;
    if (fault.empty()) {
      spdlog::info("discover: {} answers again", source_.name);
    } else {
      spdlog::warn("discover: {}; the {} addresses that it gave before stay", fault, last_.size());
    }
  }
  const Addresses& last() const { return last_; }

 private:
  const PeerSource source_;
  Addresses last_;
  std::string fault_;
};

}  // namespace

struct Discovery::Shared {
  std::mutex mutex;
  std::condition_variable over;
  bool ended = false;
  Found found;

  // False: nobody listens any more.
  bool tell(const Addresses& addresses) {
    const std::lock_guard<std::mutex> lock(mutex);
    if (!ended) found(addresses);
    return !ended;
  }
  bool pause(std::chrono::seconds time) {
    std::unique_lock<std::mutex> lock(mutex);
    return !over.wait_for(lock, time, [this] { return ended; });
  }
};

Discovery::Discovery(std::vector<PeerSource> sources, Variable variable, Found found,
                     Addresses listens)
    : shared_(std::make_shared<Shared>()) {
  shared_->found = std::move(found);
  std::vector<Asked> asked(sources.begin(), sources.end());
  std::thread([shared = shared_, asked = std::move(asked), variable = std::move(variable),
               listens = std::move(listens)]() mutable {
    std::optional<Addresses> told;
    for (int times = 0;; times = std::min(times + 1, kSoonTimes)) {
      std::set<std::string> all;
      for (Asked& source : asked) {
        source.ask(variable, listens);
        all.insert(source.last().begin(), source.last().end());
      }
      Addresses addresses(all.begin(), all.end());
      if (told != addresses) {
        if (!shared->tell(addresses)) return;
        told = std::move(addresses);
        times = 0;
      }
      if (!shared->pause(times < kSoonTimes ? kSoon : kLater)) return;
    }
  }).detach();
}

Discovery::~Discovery() {
  const std::lock_guard<std::mutex> lock(shared_->mutex);
  shared_->ended = true;
  shared_->over.notify_all();
}

}  // namespace gradring::daemon
