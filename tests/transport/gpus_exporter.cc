// Memory of a GPU for another process: writes its handle, and ends when it is told or killed.
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string_view>

#include "tests/client/cuda_twin.h"
#include "tests/transport/gpus_share.h"

int main(int, char** arguments) {
  const std::string_view words = arguments[1];
  const uint64_t address = gradring::test::cuda_twin().gpu.alloc(words.size(), false);
  std::memcpy(gradring::test::cuda_twin().behind(address), words.data(), words.size());
  const auto share = gradring::test::share_of(address, 0, words.size());
  if (::write(STDOUT_FILENO, &share, sizeof(share)) != sizeof(share)) return EXIT_FAILURE;
  char end = 0;
  return ::read(STDIN_FILENO, &end, 1) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
