#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/device/answers.h"
#include "tests/device/gpu_things.h"
#include "tests/device/other_process.h"
#include "tests/device/questions.h"

namespace gradring::device {
namespace {

constexpr int kRuns = 50;
constexpr int kRoundTrips = 200;

struct Request {
  char what = 0;  // 'm': memory of so many bytes; 'e': an event; 'r': record it; 'n': nothing
  uint64_t bytes = 0;
};
struct Answer {
  cudaIpcMemHandle_t memory{};
  cudaIpcEventHandle_t event{};
};

Answer ask(OtherProcess& exporter, char what, uint64_t bytes = 0) {
  const Request request{what, bytes};
  Answer answer;
  exporter.tell(&request, sizeof request);
  exporter.hear(&answer, sizeof answer);
  return answer;
}

void* open(const cudaIpcMemHandle_t& handle) {
  void* memory = nullptr;
  check(cudaIpcOpenMemHandle(&memory, handle, cudaIpcMemLazyEnablePeerAccess),
        "cudaIpcOpenMemHandle");
  return memory;
}

void ask_about(OtherProcess& exporter, uint64_t bytes) {
  std::vector<double> opening, closing;
  for (int i = 0; i < kRuns; ++i) {
    // Each time it is other memory: what was opened once may be remembered.
    const cudaIpcMemHandle_t handle = ask(exporter, 'm', bytes).memory;
    const auto start = std::chrono::steady_clock::now();
    void* const memory = open(handle);
    const auto opened = std::chrono::steady_clock::now();
    check(cudaIpcCloseMemHandle(memory), "cudaIpcCloseMemHandle");
    const auto closed = std::chrono::steady_clock::now();
    opening.push_back(std::chrono::duration<double, std::micro>(opened - start).count());
    closing.push_back(std::chrono::duration<double, std::micro>(closed - opened).count());
  }
  say("opening " + size_in_words(bytes) + " of another process", spread_of(opening));
  say("closing it", spread_of(closing));
  const cudaIpcMemHandle_t handle = ask(exporter, 'm', bytes).memory;
  void* const memory = open(handle);
  void* const again = open(handle);
  say_in_words("opened twice it is", memory == again ? "at one address" : "at two addresses");
  check(cudaIpcCloseMemHandle(again), "cudaIpcCloseMemHandle");
  if (again != memory) check(cudaIpcCloseMemHandle(memory), "cudaIpcCloseMemHandle");
}

}  // namespace

void ask_import() {
  check(cudaFree(nullptr), "a context");
  OtherProcess exporter("exporter");
  for (const uint64_t bytes : {1ull << 20, 64ull << 20, 1ull << 30}) ask_about(exporter, bytes);

  const cudaIpcEventHandle_t handle = ask(exporter, 'e').event;
  cudaEvent_t event = nullptr;
  const auto start = std::chrono::steady_clock::now();
  check(cudaIpcOpenEventHandle(&event, handle), "cudaIpcOpenEventHandle");
  const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
  say("opening an event of another process", took.count(), "us");
  Stream stream;
  const auto times = time_each(kRoundTrips, [&] {
    ask(exporter, 'r');  // recorded there
    check(cudaStreamWaitEvent(stream.get(), event), "cudaStreamWaitEvent");
    stream.synchronize();
  });
  say("asking for a record, and a stream that waits for it", spread_of(times));
  const auto silent = time_each(kRoundTrips, [&] { ask(exporter, 'n'); });
  say("asking alone", spread_of(silent));
  cudaEventDestroy(event);
}

void be_an_exporter() {
  check(cudaFree(nullptr), "a context");
  Stream stream;
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, cudaEventInterprocess | cudaEventDisableTiming),
        "cudaEventCreate");
  std::vector<void*> memory;
  Request request;
  while (hear_from_parent(&request, sizeof request)) {
    Answer answer;
    if (request.what == 'm') {
      // Closed over there by now: the parent asks for the next one when it has.
      for (void* old : memory) cudaFree(old);
      memory.assign(1, nullptr);
      check(cudaMalloc(&memory.back(), request.bytes), "cudaMalloc");
      check(cudaIpcGetMemHandle(&answer.memory, memory.back()), "cudaIpcGetMemHandle");
    } else if (request.what == 'e') {
      check(cudaIpcGetEventHandle(&answer.event, event), "cudaIpcGetEventHandle");
    } else if (request.what == 'r') {
      check(cudaEventRecord(event, stream.get()), "cudaEventRecord");
    }
    tell_parent(&answer, sizeof answer);
  }
  for (void* old : memory) cudaFree(old);
  cudaEventDestroy(event);
}

}  // namespace gradring::device
