// The memory of the rings, of which a trainer may write every byte at any time.
#include <sys/eventfd.h>

#include <cstring>
#include <memory>
#include <span>
#include <utility>

#include "daemon/data/session_ring.h"
#include "tests/fuzz/fuzz.h"

namespace {

using namespace gradring;
using namespace gradring::daemon;
using fuzz::require;

constexpr uint64_t kSegment = 5;
constexpr uint64_t kBytes = 4096;

// What the trainer says it has written and read, and its entries.
struct Input {
  uint64_t written = 0;
  uint64_t read = 0;
  RingSubmission entries[4];
};

std::vector<std::string> make_samples() {
  Input good;
  good.written = 2;
  for (RingSubmission& entry : good.entries) {
    entry.ticket = 1;
    entry.collective = static_cast<uint8_t>(Collective::kAllreduce);
    entry.dtype = static_cast<uint8_t>(Dtype::kFloat32);
    entry.op = static_cast<uint8_t>(ReduceOp::kSum);
    entry.count = 16;
    entry.input_segment = entry.output_segment = kSegment;
  }
  Input blocks = good;
  for (RingSubmission& entry : blocks.entries) {
    entry.collective = static_cast<uint8_t>(Collective::kAlltoall);
    entry.op = 0;
    entry.ranks = 4;
    entry.position = 1;
    entry.output_offset = kBytes / 2;
  }
  Input of_a_gpu = good;
  for (RingSubmission& entry : of_a_gpu.entries) {
    entry.reached_segment = kSegment;
    entry.reached_offset = entry.ended_offset = kBytes - sizeof(uint32_t);
    entry.reached_value = entry.ended_value = 1;
  }
  Input on_a_gpu = of_a_gpu;
  for (RingSubmission& entry : on_a_gpu.entries) {
    entry.on_gpu = kOnGpu | (&entry != on_a_gpu.entries ? kStaysOnGpu : 0);
  }
  std::vector<std::string> samples;
  for (const Input& input : {good, blocks, of_a_gpu, on_a_gpu}) {
    samples.emplace_back(reinterpret_cast<const char*>(&input), sizeof input);
  }
  return samples;
}

std::span<std::byte> memory() {
  static std::vector<std::byte> bytes(kBytes);
  return bytes;
}

// What the segment stands for is shorter.
struct OnAGpu final : transport::OpenGpuMemory {
  uint64_t bytes() const override { return kBytes / 2; }
};

std::shared_ptr<const SharedGpuMemory> on_gpu() {
  static const auto kOpen = std::make_shared<const SharedGpuMemory>(
      SharedGpuMemory{nullptr, std::make_shared<const OnAGpu>(), nullptr});
  return kOpen;
}

void within_the_gpu(const transport::GpuRange& range, uint64_t bytes) {
  if (range.memory == nullptr) return;
  require(range.memory == on_gpu()->open.get(), "only what was shared is named");
  require(range.offset <= kBytes / 2 && bytes <= kBytes / 2 - range.offset,
          "what is accepted lies within the GPU's memory");
}

const std::shared_ptr<const SharedRing>& shared() {
  static const auto kShared = std::make_shared<const SharedRing>(
      SharedRing{std::move(*transport::Segment::create(sizeof(RingPair))),
                 Fd(eventfd(0, EFD_NONBLOCK)), Fd(eventfd(0, EFD_NONBLOCK))});
  return kShared;
}

void within_the_segment(const std::byte* at, uint64_t bytes) {
  if (bytes == 0) return;
  const std::span<std::byte> all = memory();
  require(at >= all.data() && bytes <= all.size() &&
              at - all.data() <= static_cast<int64_t>(all.size() - bytes),
          "what is accepted lies within the trainer's memory");
}

}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t size_max,
                                          unsigned seed) {
  static const auto kSamples = make_samples();
  return fuzz::mutate(kSamples, data, size, size_max, seed);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input input;
  std::memcpy(static_cast<void*>(&input), data, std::min(size, sizeof input));
  auto* const pair = reinterpret_cast<RingPair*>(shared()->memory.memory().data());
  std::memset(static_cast<void*>(pair), 0, sizeof *pair);
  OpenRing open{1001, JobId{7}, 1, shared(), {}};
  open.segments.push_back({1001, kSegment, memory(), on_gpu()});
  SessionRing ring(std::move(open));
  std::copy(std::begin(input.entries), std::end(input.entries), pair->submissions.entries.begin());
  pair->submissions.written = input.written;
  pair->ends.read = input.read;

  std::vector<Submit> accepted;
  for (uint64_t turn = 0; turn < 2 * kRingSlots && ring.any() && !ring.broken(); ++turn) {
    ring.take();
    auto submit = ring.check();
    if (!submit) {
      if (ring.postpone()) continue;
      require(!submit.error().empty(), "a refusal says why");
      continue;
    }
    const core::Submission& submission = submit->submission;
    const Extent extent = extent_of(submission.signature, submission.rank, submission.position);
    within_the_segment(submit->input, extent.input);
    within_the_segment(submit->output, extent.output);
    within_the_gpu(submit->gpu_input, extent.input);
    within_the_gpu(submit->gpu_output, extent.output);
    for (const StreamWord& word : {submit->reached, submit->ended}) {
      if (word) within_the_segment(reinterpret_cast<const std::byte*>(word.at), sizeof(uint32_t));
    }
    accepted.push_back(std::move(*submit));
  }
  core::Outcome outcome;
  outcome.verdict = Verdict::kOk;
  for (const Submit& submit : accepted) {
    ring.end(submit.submission.ticket, segments_of(submit.submission), outcome);
  }
  ring.close();
  require(ring.may_be_freed(), "what was accepted has ended");
  return 0;
}
