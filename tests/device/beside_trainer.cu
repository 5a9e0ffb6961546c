#include <unistd.h>

#include <functional>
#include <string>
#include <vector>

#include "tests/device/answers.h"
#include "tests/device/gpu_things.h"
#include "tests/device/other_process.h"
#include "tests/device/plain_kernels.cuh"
#include "tests/device/questions.h"

namespace gradring::device {
namespace {

constexpr size_t kMi = 1 << 20;
constexpr size_t kLargest = 64 * kMi;
constexpr int kRuns = 200;

struct Act {
  std::string name;
  std::function<void()> run;
};

// All that a daemon might do on the GPU.
class Daemon {
 public:
  std::vector<Act> acts() {
    std::vector<Act> list;
    for (Stream* stream : {&usual_, &high_}) {
      const std::string priority = stream == &high_ ? ", high priority" : "";
      list.push_back({"an empty kernel" + priority, [stream] {
                        nothing<<<1, 1, 0, stream->get()>>>();
                        stream->synchronize();
                      }});
      for (const int blocks : {8, 264}) {  // a few multiprocessors, or all of an H100's
        const auto name = "fold of 2 x 16 MiB in " + std::to_string(blocks) + " blocks" + priority;
        list.push_back({name, [this, stream, blocks] {
                          add<<<blocks, 512, 0, stream->get()>>>(a_.floats(), b_.floats(),
                                                                 out_.floats(), 4 * kMi);
                          stream->synchronize();
                        }});
      }
    }
    for (const size_t bytes : {4 * kMi / 1024, kMi, kLargest}) {
      list.push_back({"to the host, " + size_in_words(bytes), [this, bytes] {
                        copy(down_.get(), a_.get(), bytes, usual_);
                        usual_.synchronize();
                      }});
      list.push_back({"to the GPU, " + size_in_words(bytes), [this, bytes] {
                        copy(b_.get(), up_.get(), bytes, usual_);
                        usual_.synchronize();
                      }});
      list.push_back({"both ways at once, " + size_in_words(bytes), [this, bytes] {
                        copy(down_.get(), a_.get(), bytes, usual_);
                        copy(b_.get(), up_.get(), bytes, high_);
                        usual_.synchronize();
                        high_.synchronize();
                      }});
    }
    list.push_back({"within the GPU, " + size_in_words(kLargest), [this] {
                      copy(out_.get(), a_.get(), kLargest, usual_);
                      usual_.synchronize();
                    }});
    return list;
  }

 private:
  static void copy(void* to, const void* from, size_t bytes, const Stream& stream) {
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream.get()), "cudaMemcpyAsync");
  }

  DeviceMemory a_{kLargest}, b_{kLargest}, out_{kLargest};
  PinnedMemory down_{kLargest}, up_{kLargest};
  Stream usual_{Stream::Priority::kUsual};
  Stream high_{Stream::Priority::kHighest};
};

double rate_of(OtherProcess& trainer) {
  const char ask = 'r';
  double rate = 0;
  trainer.tell(&ask, sizeof ask);
  trainer.hear(&rate, sizeof rate);
  return rate;
}

}  // namespace

void ask_beside_a_trainer() {
  Daemon daemon;
  const std::vector<Act> acts = daemon.acts();
  for (const Act& act : acts) say(act.name + ", GPU idle", spread_of(time_each(kRuns, act.run)));
  OtherProcess trainer("trainer");
  rate_of(trainer);  // it is at work
  ::sleep(1);
  const double alone = rate_of(trainer);
  say("the trainer with the GPU to itself", alone, "kernels/s");
  for (const Act& act : acts) {
    rate_of(trainer);
    const Spread took = spread_of(time_each(kRuns, act.run));
    const double beside = rate_of(trainer);
    say(act.name + ", beside the trainer", took);
    say("  and the trainer meanwhile", 100 * beside / alone, "% of its speed");
  }
}

}  // namespace gradring::device
