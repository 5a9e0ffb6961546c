#include "transport/cuda/nccl.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <memory>
#include <mutex>

namespace gradring::transport::cuda {
namespace {

constexpr const char* kNcclLibrary = "libnccl.so.2";

template <typename Function>
bool find_of_nccl(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(::dlsym(library, name));
  return *function != nullptr;
}

bool find_all(void* library, Nccl* n) {
  return find_of_nccl(library, "ncclGetVersion", &n->version_of) &&
         find_of_nccl(library, "ncclGetErrorString", &n->words_of) &&
         find_of_nccl(library, "ncclGetUniqueId", &n->unique_id) &&
         find_of_nccl(library, "ncclCommInitRankConfig", &n->init_rank) &&
         find_of_nccl(library, "ncclCommAbort", &n->abort) &&
         find_of_nccl(library, "ncclCommGetAsyncError", &n->error_of) &&
         find_of_nccl(library, "ncclGroupStart", &n->group_start) &&
         find_of_nccl(library, "ncclGroupEnd", &n->group_end) &&
         find_of_nccl(library, "ncclReduceScatter", &n->reduce_scatter) &&
         find_of_nccl(library, "ncclAllGather", &n->all_gather);
}

}  // namespace

tl::expected<const Nccl*, std::string> nccl() {
  static std::mutex mutex;
  static std::unique_ptr<const Nccl> known;
  const std::lock_guard lock(mutex);
  if (known != nullptr) return known.get();
  void* const library = ::dlopen(kNcclLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return tl::unexpected(fmt::format(
        "there is no NCCL here ({}): install it, or let LD_LIBRARY_PATH of gradringd name its "
        "folder",
        ::dlerror()));
  }
  // It stays: its threads outlive what they were made for.
  auto found = std::make_unique<Nccl>();
  int version = 0;
  const bool told = find_all(library, found.get()) && found->version_of(&version) == Nccl::kSuccess;
  if (!told || version < Nccl::kOldest) {
    return tl::unexpected(fmt::format("{} is older than NCCL 2.14: update it", kNcclLibrary));
  }
  found->version = fmt::format("{}.{}.{}", version / 10'000, version / 100 % 100, version % 100);
  known = std::move(found);
  return known.get();
}

}  // namespace gradring::transport::cuda
