#include "transport/cuda/peer_trial.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <array>
#include <bit>
#include <cstddef>
#include <random>
#include <string>
#include <vector>

#include "proto/status.h"
#include "transport/cuda/opened.h"

namespace gradring::transport::cuda {
namespace {

constexpr size_t kTrialBytes = size_t{64} << 10;
using Pattern = std::vector<std::byte>;

// Another one for each pair of GPUs, and each way between them: what an earlier trial has left
// there is none of them.
Pattern pattern_of(const Gpu& gpu, const Gpu& peer, unsigned way) {
  std::seed_seq seed{gpu.index(), peer.index(), way};
  std::mt19937 random(seed);
  Pattern pattern(kTrialBytes);
  for (std::byte& byte : pattern) byte = static_cast<std::byte>(random());
  return pattern;
}

Status refuse(const Gpu& gpu, Driver::Result result) {
  return {Code::kUnavailable, gpu.words("did not try the way to another GPU", result)};
}

// What `act` puts on the GPU's stream is over.
template <typename Act>
Status over(const Gpu& gpu, const Act& act) {
  const Gpu::Current current(gpu);
  auto result = current.result();
  if (result == Driver::kSuccess) result = act();
  if (result != Driver::kSuccess) return refuse(gpu, result);
  if (gpu.rest()) return {};
  return {Code::kUnavailable, fmt::format("{} ({}) did not end the trial of the way to another GPU",
                                          gpu.name(), in_words(gpu.uuid()))};
}

Status write(const Allocated& to, const Pattern& pattern) {
  return over(to.on(), [&] {
    return to.on().driver().copy_to_device(to.begin(), pattern.data(), kTrialBytes,
                                           to.on().stream());
  });
}

Status read(const Allocated& from, Pattern* pattern) {
  return over(from.on(), [&] {
    return from.on().driver().copy_to_host(pattern->data(), from.begin(), kTrialBytes,
                                           from.on().stream());
  });
}

Status copy(const Gpu& by, const Allocated& from, const Allocated& to) {
  const std::array ins = {std::bit_cast<const void*>(from.begin())};
  const std::array outs = {std::bit_cast<void*>(to.begin())};
  return over(by, [&] {
    return by.launch(Dtype::kUint8, ReduceOp::kMax,
                     fold_arguments(Dtype::kUint8, ins, outs, kTrialBytes, 0, {}));
  });
}

// From one to the other by kernels of that GPU.
Status try_way(const Gpu& by, const Allocated& from, const Allocated& to, const Pattern& pattern) {
  Pattern found(kTrialBytes);
  Status status = write(to, found);
  if (status.ok()) status = write(from, pattern);
  if (status.ok()) status = copy(by, from, to);
  if (status.ok()) status = read(to, &found);
  if (!status.ok() || found == pattern) return status;
  return {Code::kUnavailable, "what goes from one to the other is lost"};
}

// Kernels of `gpu` read what lies on `peer`, and write there.
Status try_peer(const std::shared_ptr<Gpu>& gpu, const std::shared_ptr<Gpu>& peer) {
  auto here = Allocated::make(gpu, kTrialBytes), there = Allocated::make(peer, kTrialBytes);
  if (!here) return here.error();
  if (!there) return there.error();
  Status status = try_way(*gpu, **there, **here, pattern_of(*gpu, *peer, 0));
  if (status.ok()) status = try_way(*gpu, **here, **there, pattern_of(*gpu, *peer, 1));
  if (!gpu->rest() || !peer->rest()) {  // a driver would wait before it frees anything
    static auto* const kLeft = new std::vector<std::shared_ptr<const Allocated>>;
    kLeft->insert(kLeft->end(), {*here, *there});
  }
  return status;
}

}  // namespace

bool reach(const std::shared_ptr<Gpu>& gpu, const std::shared_ptr<Gpu>& peer) {
  if (!gpu->connect(*peer)) return false;
  if (const Status tried = try_peer(gpu, peer); !tried.ok()) {
    spdlog::warn(
        "no kernel of GPU {} ({}) reads or writes memory of GPU {} ({}), although the driver has a "
        "way between them: {}. Have the IOMMU let devices through (iommu=pt on the kernel's "
        "command line) and turn PCIe's ACS off, then restart gradringd; until then sums go another "
        "way",
        gpu->index(), in_words(gpu->uuid()), peer->index(), in_words(peer->uuid()),
        tried.message());
    return false;
  }
  gpu->count_as_reached(*peer);
  return true;
}

}  // namespace gradring::transport::cuda
