#include "tools/ctl/top/watcher.h"

#include <chrono>
#include <utility>

namespace gradring::tools::top {
namespace {

constexpr std::chrono::seconds kSamplesEvery{1};
// Rates are those of so many seconds: daemons count four times a second, so that one second alone
// would make them jump by a quarter.
constexpr size_t kSamples = 4;

int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

tl::expected<Sample, Status> ask_anew(const std::string& runtime_dir, const Choice& choice,
                                      const Sample& before) {
  auto questions = Questions::open(runtime_dir);
  if (!questions) return tl::unexpected(questions.error());
  return take_sample(*questions, choice, before);
}

}  // namespace

Watcher::Watcher(std::string runtime_dir, Choice choice)
    : runtime_dir_(std::move(runtime_dir)),
      choice_(std::move(choice)),
      answered_ms_(now_ms()),
      thread_([this] { watch(); }) {}

Watcher::~Watcher() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void Watcher::choose(const Choice& choice) {
  {
    const std::lock_guard lock(mutex_);
    choice_ = choice;
  }
  wake_.notify_all();
}

Model Watcher::latest() const {
  const std::lock_guard lock(mutex_);
  Model model = model_;
  if (!silent_why_.empty()) {
    model.silence = {static_cast<uint64_t>(now_ms() - answered_ms_), silent_why_};
  }
  return model;
}

uint64_t Watcher::looks() const {
  const std::lock_guard lock(mutex_);
  return looks_;
}

void Watcher::watch() {
  std::unique_lock lock(mutex_);
  while (!over_) {
    const Choice choice = choice_;
    lock.unlock();
    look(choice);
    lock.lock();
    wake_.wait_for(lock, kSamplesEvery, [&] { return over_ || choice_ != choice; });
  }
}

void Watcher::look(const Choice& choice) {
  if (choice != seen_) samples_.clear();
  seen_ = choice;
  auto sample = ask_anew(runtime_dir_, choice, samples_.empty() ? Sample() : samples_.back());
  if (sample) {
    samples_.push_back(std::move(*sample));
    if (samples_.size() > kSamples) samples_.pop_front();
  }
  const std::lock_guard lock(mutex_);
  ++looks_;
  if (!sample) {
    silent_why_ = sample.error().message();
    return;
  }
  silent_why_.clear();
  answered_ms_ = now_ms();
  model_ = model_of(samples_.front(), samples_.back());
}

}  // namespace gradring::tools::top
