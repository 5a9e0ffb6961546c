#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "transport/cuda/driver.h"
#include "transport/cuda/fold_arguments.h"
#include "transport/gpus.h"

namespace gradring::transport::cuda {

// What kernels on one GPU are told, so that they note what is not finite. Without: nobody looks.
struct Watch {
  FoldTrace* trace = nullptr;  // of the GPU
  uint32_t* raised = nullptr;  // of the host, at the GPU's address

  // For a fold from element `first` of a sum on, of all inputs of that in their order; or of those
  // with these numbers, none where its inputs are sums themselves.
  void put(FoldArguments* arguments, uint64_t first) const;
  void put(FoldArguments* arguments, uint64_t first, std::span<const uint8_t> numbers) const;
};

// Traces in the memory of a GPU, one for each sum that is under way there, and a word for each in
// the host's. Where that is not raised the trace is untouched, and nobody asks the GPU for it.
class Traces {
 public:
  Traces() = default;
  // Not ended: the GPU works still, and may write to the host's part.
  ~Traces() {
    if (pinned_) static_cast<void>(host_.release());
  }
  Traces(const Traces&) = delete;
  Traces& operator=(const Traces&) = delete;

  // More than are under way at once, as far as is known; what is beyond it goes unwatched. Some 256
  // KiB.
  static constexpr uint32_t kMany = 256;

  // ---- in the context of its GPU ----
  // Enqueues that all are empty.
  Driver::Result make(const Driver& driver, Driver::Stream stream);
  // Once the stream has come to rest.
  void end(const Driver& driver);
  // Enqueues that a trace comes to the host, and is empty.
  Driver::Result fetch(const Driver& driver, Driver::Stream stream, uint32_t number) const;

  Watch watch(uint32_t number) const;
  bool raised(uint32_t number) const;
  // What was fetched, of a sum with so many inputs. Its word is lowered.
  Gpus::Nonfinite take(uint32_t number, size_t inputs);

 private:
  // Pages that are pinned.
  struct alignas(4096) OfHost {
    std::array<uint32_t, kMany> raised;
    std::array<FoldTrace, kMany> fetched;  // at first they are empty as well
    FoldTrace empty;
  };
  Driver::Address at(uint32_t number) const { return traces_ + number * sizeof(FoldTrace); }

  std::unique_ptr<OfHost> host_;
  bool pinned_ = false;
  Driver::Address words_ = 0;  // raised, as the GPU has it
  Driver::Address traces_ = 0;
};

// Adds what another GPU found of the same sum.
void add(std::optional<Gpus::Nonfinite>* to, std::optional<Gpus::Nonfinite> more);

}  // namespace gradring::transport::cuda
