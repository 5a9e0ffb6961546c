#pragma once

#include <string>

#include "transport/machine/answers.h"

namespace gradring::machine {

inline constexpr const char* kNvmlLibrary = "libnvidia-ml.so.1";  // of NVIDIA's driver

// Asks NVML, which is loaded from `library` (a name or a path) and let go of again. Where it is not
// there, or refuses, the answer says so in `absent`. It may take seconds, and hangs where a GPU
// does.
NvmlAnswers ask_nvml(const std::string& library);

}  // namespace gradring::machine
