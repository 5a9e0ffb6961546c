// gradring-gpu-questions: what has to be known of a GPU before gradring's engines for it are
// chosen. docs/gpu-notes.md says why, and what was answered.
#include "tests/device/questions.h"

#include <cuda_runtime.h>

#include <cstdio>
#include <cstring>
#include <exception>
#include <string>

#include "tests/device/answers.h"

namespace {

using namespace gradring::device;

struct Question {
  const char* name;
  const char* text;
  void (*ask)();
};

constexpr Question kQuestions[] = {
    {"beside", "A daemon's kernels and copies beside a trainer that fills the GPU",
     ask_beside_a_trainer},
    {"turns", "A daemon's part of an op while the trainer's stream waits for it", ask_turns},
    {"context", "Memory of the GPU that a context takes", ask_context},
    {"import", "Opening another process's memory and events", ask_import},
    {"owners", "Memory of another user's process, and of a dead one", ask_owners},
    {"pinned", "Copies to and from a memfd that is pinned", ask_pinned},
    {"words", "Words that put streams and the host into an order", ask_words},
    {"waits", "Calls of the driver while a stream waits, or computes", ask_what_waits},
    {"nccl", "NCCL with one rank, and with two on one GPU", ask_nccl},
};

// What automake and ctest take for "skipped".
constexpr int kSkipped = 77;

int usage() {
  std::fputs("usage: gradring-gpu-questions all | NAME...\n\n", stderr);
  for (const Question& question : kQuestions) {
    std::fprintf(stderr, "  %-8s %s\n", question.name, question.text);
  }
  std::fputs("\nExit: 0 answered, 1 one of them failed, 2 usage, 77 no GPU here.\n", stderr);
  return 2;
}

int be(const std::string& part) {
  try {
    if (part == "trainer") return be_a_trainer(), 0;
    if (part == "turner") return be_a_turner(), 0;
    if (part == "context") return be_a_context(), 0;
    if (part == "exporter") return be_an_exporter(), 0;
    if (part == "owner") return be_an_owner(), 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", part.c_str(), error.what());
    return 1;
  }
  return usage();
}

void describe_gpu() {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
  int driver = 0, runtime = 0;
  check(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
  check(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
  std::printf(
      "%s: %d multiprocessors, %.0f GiB, copy engines %d; driver for CUDA %d.%d, "
      "runtime %d.%d\n",
      properties.name, properties.multiProcessorCount,
      static_cast<double>(properties.totalGlobalMem) / (1 << 30), properties.asyncEngineCount,
      driver / 1000, driver % 100 / 10, runtime / 1000, runtime % 100 / 10);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && std::strcmp(argv[1], "--be") == 0) return be(argv[2]);
  if (argc < 2) return usage();
  const bool all = argc == 2 && std::strcmp(argv[1], "all") == 0;
  for (int i = 1; i < argc && !all; ++i) {
    bool known = false;
    for (const Question& question : kQuestions)
      known = known || std::strcmp(argv[i], question.name) == 0;
    if (!known) return usage();
  }
  int devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&devices);
  if (error != cudaSuccess || devices == 0) {
    std::printf("no GPU here: cudaGetDeviceCount found %d and said %s\n", devices,
                cudaGetErrorString(error));
    return kSkipped;
  }
  int status = 0;
  try {
    describe_gpu();
  } catch (const std::exception& failure) {
    std::printf("FAILED: %s\n", failure.what());
    return 1;
  }
  for (const Question& question : kQuestions) {
    bool asked = all;
    for (int i = 1; i < argc; ++i) asked = asked || std::strcmp(argv[i], question.name) == 0;
    if (!asked) continue;
    std::printf("\n%s\n", question.text);
    std::fflush(stdout);
    try {
      question.ask();
    } catch (const std::exception& failure) {
      std::printf("  FAILED: %s\n", failure.what());
      status = 1;
    }
  }
  return status;
}
