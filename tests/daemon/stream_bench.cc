// What an op on a GPU's memory takes of the daemon: the trainer is this program, and its GPU a word
// that it writes and one that it looks at. Beside an op on the host's memory, in turns; after
// pauses in which a trainer would compute. For people: cmake --build DIR --target stream_bench
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "proto/stream_word.h"
#include "tests/daemon/live_daemon.h"
#include "tests/daemon/raw_rings.h"
#include "tests/daemon/raw_trainer.h"
#include "tests/daemon/ring_entry.h"

namespace {

using namespace gradring;
using namespace gradring::daemon;
using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;

constexpr int kRounds = 400;
constexpr uint64_t kWords = 8192;  // behind the buffer
constexpr auto kPatience = std::chrono::seconds(10);

// What a stream takes to copy so little and to say so, seen from the trainer's submission.
constexpr microseconds kCopies[] = {microseconds(0), microseconds(10), microseconds(25)};
constexpr microseconds kPauses[] = {microseconds(0), microseconds(70), microseconds(200),
                                    microseconds(2000)};

class Trainer {
 public:
  explicit Trainer(const LiveDaemon& daemon) : raw_(daemon.runtime_dir()) {
    form_job("job", {&raw_});
    rings_.emplace(raw_);
    memory_ = raw_.allocate(4 * kWords);
  }

  // Microseconds from the submission until the end is there to be read.
  double by_host(uint64_t bytes) {
    const auto start = Clock::now();
    rings_->put(entry(bytes));
    return us(start, [&] { return rings_->any(); });
  }
  // From the moment at which the stream has come to it until it may go on.
  double by_gpu(uint64_t bytes, microseconds copy) {
    RingSubmission op = entry(bytes);
    const StreamWord reached = word(0), ended = word(1);
    op.reached_segment = memory_.segment;
    op.reached_offset = kWords;
    op.ended_offset = kWords + 64;
    op.reached_value = op.ended_value = reached.value;
    const auto submitted = Clock::now();
    if (copy.count() == 0) reached.set();
    rings_->put(op);
    while (Clock::now() - submitted < copy) continue;
    const auto start = copy.count() == 0 ? submitted : Clock::now();
    reached.set();
    return us(start, [&] { return ended.has_come(); });
  }

 private:
  RingSubmission entry(uint64_t bytes) {
    RingSubmission op = ring_allreduce(memory_.segment, ++ticket_);
    op.key = {0, ticket_ - 1};
    op.count = bytes / sizeof(float);
    return op;
  }
  StreamWord word(uint32_t number) const {
    return {reinterpret_cast<uint32_t*>(memory_.data) + kWords / 4 + 16 * number,
            static_cast<uint32_t>(ticket_)};
  }
  template <typename Done>
  double us(Clock::time_point start, const Done& done) {
    while (!done() && Clock::now() - start < kPatience) continue;
    const std::chrono::duration<double, std::micro> taken = Clock::now() - start;
    rings_->end();
    return taken.count();
  }

  RawTrainer raw_;
  std::optional<RawRings> rings_;
  RawTrainer::Memory memory_;
  uint64_t ticket_ = 0;
};

// Both look on while they wait, and would keep each other waiting on one.
void go_to_processor(int number) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(number, &one);
  sched_setaffinity(0, sizeof one, &one);
}

double part(std::vector<double>& values, double of) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(of * static_cast<double>(values.size() - 1))];
}

}  // namespace

int main() {
  go_to_processor(1);  // the daemon inherits it
  const LiveDaemon daemon;
  go_to_processor(0);
  Trainer trainer(daemon);
  std::printf("one rank; medians of %d, us (and nine of ten)\n", kRounds);
  std::printf("%-8s %-10s %16s", "bytes", "pause, us", "host");
  for (const auto copy : kCopies) std::printf("   word after %3ld us", copy.count());
  std::printf("\n");
  for (const uint64_t bytes : {4, 4096}) {
    for (const auto pause : kPauses) {
      std::vector<double> host;
      std::map<microseconds, std::vector<double>> gpu;
      const auto rest = [pause] {
        if (pause > microseconds(100)) return std::this_thread::sleep_for(pause);
        for (const auto since = Clock::now(); Clock::now() - since < pause;) continue;
      };
      // Each a while in a row, since what a daemon did last decides how it waits.
      for (int block = 0; block < 4; ++block) {
        for (int i = 0; i < kRounds / 4; ++i) rest(), host.push_back(trainer.by_host(bytes));
        for (const auto copy : kCopies) {
          for (int i = 0; i < kRounds / 4; ++i)
            rest(), gpu[copy].push_back(trainer.by_gpu(bytes, copy));
        }
      }
      std::printf("%-8lu %-10ld %7.1f (%6.1f)", bytes, pause.count(), part(host, 0.5),
                  part(host, 0.9));
      for (auto& [copy, times] : gpu)
        std::printf("  %7.1f (%6.1f)", part(times, 0.5), part(times, 0.9));
      std::printf("\n");
      std::fflush(stdout);
    }
  }
}
