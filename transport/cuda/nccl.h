#pragma once

#include <cstddef>
#include <limits>
#include <string>
#include <tl/expected.hpp>

namespace gradring::transport::cuda {

// The functions of NCCL that are called here, by the names and numbers of its nccl.h, where they
// have been the same since 2.14. It is looked up, never linked: few daemons need it.
struct Nccl {
  using Result = int;
  using Comm = void*;
  using Stream = void*;
  struct UniqueId {  // passed by value
    char bytes[128];
  };
  // As 2.14 knew it. Whoever is newer takes what it does not say for its own default.
  struct Config {
    size_t size = sizeof(Config);
    unsigned magic = 0xcafebeef;
    unsigned version = 21400;
    int blocking = 0;
    int reserved = std::numeric_limits<int>::min();  // "undefined", for whoever reads further
  };

  static constexpr Result kSuccess = 0;
  static constexpr Result kInProgress = 7;
  static constexpr int kOldest = 21400;  // NCCL_VERSION(2, 14, 0): communicators that do not block

  Result (*version_of)(int*) = nullptr;
  const char* (*words_of)(Result) = nullptr;
  Result (*unique_id)(UniqueId*) = nullptr;
  Result (*init_rank)(Comm*, int ranks, UniqueId, int rank, Config*) = nullptr;
  Result (*abort)(Comm) = nullptr;
  Result (*error_of)(Comm, Result*) = nullptr;
  Result (*group_start)() = nullptr;
  Result (*group_end)() = nullptr;
  // `count`: of elements that each rank gets, or gives.
  Result (*reduce_scatter)(const void* from, void* to, size_t count, int dtype, int op, Comm,
                           Stream) = nullptr;
  Result (*all_gather)(const void* from, void* to, size_t count, int dtype, Comm, Stream) = nullptr;

  std::string version;  // "2.28.9"
};

// That of this machine, ready to be called; an error says why there is none. Thread-safe; valid for
// as long as the process lives.
tl::expected<const Nccl*, std::string> nccl();

}  // namespace gradring::transport::cuda
