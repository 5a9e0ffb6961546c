#include "tools/common/output.h"

#include <cstdio>

namespace gradring::tools {

bool put_out(std::string_view text) {
  const bool taken = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  return std::fflush(stdout) == 0 && taken;
}

}  // namespace gradring::tools
