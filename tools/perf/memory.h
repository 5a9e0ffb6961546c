#pragma once

#include <cstddef>
#include <cstdint>
#include <gradring/gradring.hpp>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "tools/perf/gpu.h"

namespace gradring::tools {

// Where a rank's buffers lie.
enum class MemoryKind : uint8_t {
  kHost,        // shared with the daemon
  kGpu,         // a GPU's, of which gradring knows nothing before an op names it: as a framework's
  kRegistered,  // the same, registered
  kPool,        // a GPU's, of gradring_gpu_alloc
};
std::optional<MemoryKind> parse_memory_kind(std::string_view word);
// "host", "gpu", "gpu-registered", "gpu-pool"
const char* name_of(MemoryKind kind);

struct MemoryChoice {
  MemoryKind kind = MemoryKind::kHost;
  int gpu = -1;  // -1: the rank's own, by its place on the node
};

// So many bytes there, for as long as a rank measures. Of a GPU's memory the host has a copy, which
// is as the GPU's after put() and get(). Throws gradring::Error, or std::runtime_error.
class Memory {
 public:
  Memory(const Communicator& job, const MemoryChoice& choice, size_t bytes);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  // As ops name it.
  std::byte* named() const { return named_; }
  // What the host sees.
  std::span<std::byte> seen(uint64_t at, uint64_t bytes) { return {seen_ + at, bytes}; }
  void put(uint64_t at, uint64_t bytes);
  void get(uint64_t at, uint64_t bytes);
  // Null: it is the host's.
  Gpu* gpu() const { return gpu_.get(); }
  // "GPU 0, NVIDIA H100 80GB HBM3 (gpu-pool)"; empty: it is the host's.
  std::string describe() const;

 private:
  const Communicator& job_;
  const MemoryChoice choice_;
  std::unique_ptr<Gpu> gpu_;
  Buffer<std::byte> shared_;
  std::unique_ptr<std::byte[]> copy_;
  std::byte* named_ = nullptr;
  std::byte* seen_ = nullptr;
};

}  // namespace gradring::tools
