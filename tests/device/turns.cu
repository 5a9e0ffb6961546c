#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "client/src/gpu/cuda_driver.h"
#include "tests/device/answers.h"
#include "tests/device/gpu_things.h"
#include "tests/device/other_process.h"
#include "tests/device/plain_kernels.cuh"
#include "tests/device/questions.h"
#include "tests/device/segment.h"
#include "tests/device/word.h"

namespace gradring::device {
namespace {

using client::CudaDriver;
using SteadyClock = std::chrono::steady_clock;

constexpr size_t kMi = 1 << 20;
constexpr size_t kPage = 4096;
constexpr int kTurns = 300;

// In a page that both processes have, pinned in each.
class Words {
 public:
  explicit Words(std::byte* page) : page_(page) {
    check(cudaHostRegister(page, kPage, cudaHostRegisterMapped), "cudaHostRegister");
  }
  ~Words() { cudaHostUnregister(page_); }
  Words(const Words&) = delete;
  Words& operator=(const Words&) = delete;

  Word begun() const { return Word::in(page_, 0); }  // the trainer's stream has come to the op
  Word over() const { return Word::in(page_, 1); }   // it may go on
  Word after() const { return Word::in(page_, 2); }  // it has gone on
  Word mark() const { return Word::in(page_, 3); }   // the daemon's stream has done its part

 private:
  std::byte* const page_;
};

struct Act {
  std::string name;
  std::function<void()> put;  // on the daemon's stream
};

class Daemon {
 public:
  std::vector<Act> acts() {
    const auto kernel = [this] { nothing<<<1, 1, 0, stream_.get()>>>(); };
    const auto fold = [this](size_t mib) {
      add<<<264, 512, 0, stream_.get()>>>(a_.floats(), b_.floats(), out_.floats(),
                                          mib * kMi / sizeof(float));
    };
    const auto down = [this](size_t mib) { copy(host_.get(), out_.get(), mib * kMi); };
    const auto up = [this](size_t mib) { copy(out_.get(), host_.get(), mib * kMi); };
    return {{"nothing", [] {}},
            {"1 MiB to the host", [=] { down(1); }},
            {"1 MiB to the GPU", [=] { up(1); }},
            {"an empty kernel", kernel},
            {"two empty kernels", [=] { kernel(), kernel(); }},
            {"a fold of 2 x 1 MiB", [=] { fold(1); }},
            {"a fold of 2 x 16 MiB", [=] { fold(16); }},
            {"a fold of 2 x 1 MiB, and to the host", [=] { fold(1), down(1); }},
            {"a copy of 1 MiB within the GPU", [=, this] { copy(out_.get(), a_.get(), kMi); }}};
  }
  void mark(const Word& word, uint32_t value) const {
    must(driver_with_words().write_word(stream_.get(), word.address, value, 0), "a mark");
  }

 private:
  void copy(void* to, const void* from, size_t bytes) const {
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_.get()), "cudaMemcpyAsync");
  }

  DeviceMemory a_{16 * kMi}, b_{16 * kMi}, out_{16 * kMi};
  PinnedMemory host_{kMi};
  Stream stream_{Stream::Priority::kHighest};
};

struct Place {
  pid_t pid;
  int fd;
};

}  // namespace

void ask_turns() {
  check(cudaFree(nullptr), "a context");
  const Segment segment(kPage);
  const Words words(segment.get());
  const Word begun = words.begun(), over = words.over(), done = words.mark();
  OtherProcess trainer("turner");
  const Place place{::getpid(), segment.fd()};
  trainer.tell(&place, sizeof place);
  Daemon daemon;
  uint32_t value = 0, mark = 0;
  for (const Act& act : daemon.acts()) {
    trainer.tell(&kTurns, sizeof kTurns);
    std::vector<double> took;
    for (int turn = 0; turn < kTurns; ++turn) {
      begun.await(++value);
      const auto start = SteadyClock::now();
      act.put();
      daemon.mark(done, ++mark);
      done.await(mark);
      took.push_back(std::chrono::duration<double, std::micro>(SteadyClock::now() - start).count());
      over.set(value);
    }
    Spread whole{};
    trainer.hear(&whole, sizeof whole);
    say(act.name, spread_of(took));
    say("  and the trainer's whole turn", whole);
  }
}

void be_a_turner() {
  check(cudaFree(nullptr), "a context");
  Place place{};
  if (!hear_from_parent(&place, sizeof place)) return;
  const Segment segment(place.pid, place.fd, kPage);
  const Words words(segment.get());
  const Word begun = words.begun(), over = words.over(), after = words.after();
  const Stream stream;
  const CudaDriver& driver = driver_with_words();
  uint32_t value = 0;
  int turns = 0;
  while (hear_from_parent(&turns, sizeof turns)) {
    std::vector<double> took;
    for (int turn = 0; turn < turns; ++turn) {
      ++value;
      const auto start = SteadyClock::now();
      must(driver.write_word(stream.get(), begun.address, value, 0), "a word");
      must(driver.wait_for_word(stream.get(), over.address, value, CudaDriver::kAtLeast), "a wait");
      must(driver.write_word(stream.get(), after.address, value, 0), "a word");
      after.await(value);
      took.push_back(std::chrono::duration<double, std::micro>(SteadyClock::now() - start).count());
    }
    const Spread whole = spread_of(took);
    tell_parent(&whole, sizeof whole);
  }
}

}  // namespace gradring::device
