#pragma once

#include <dlfcn.h>
#include <fmt/format.h>

#include <memory>
#include <string>

// NVML's C interface as far as it is used here, so that no header of NVIDIA's is needed to build.
// It is part of the driver and has kept these since driver 450: the numbers in the names are
// versions, and what is replaced stays.
namespace gradring::machine::nvml {

using Device = void*;
struct PciInfo {
  char bus_id_legacy[16];
  unsigned domain, bus, device, device_id, subsystem_id;
  char bus_id[32];
};
struct Memory {
  unsigned long long total, free, used;
};
inline constexpr int kSuccess = 0;
inline constexpr unsigned kGpusMax = 1024;

// Loaded, and let go of again with the object.
class Library {
 public:
  // Empty if all is well.
  std::string open(const std::string& library) {
    library_.reset(dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL));
    return library_ ? "" : fmt::format("NVML cannot be loaded: {}", dlerror());
  }
  template <typename Function>
  bool find(const char* symbol, Function* function) const {
    *function = reinterpret_cast<Function>(dlsym(library_.get(), symbol));
    return *function != nullptr;
  }

 private:
  struct Close {
    void operator()(void* library) const { dlclose(library); }
  };
  std::unique_ptr<void, Close> library_;
};

}  // namespace gradring::machine::nvml
