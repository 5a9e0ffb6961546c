#include <cstdio>
#include <cstring>
#include <gradring/gradring.hpp>

int main() {
  gradring_options options;
  gradring_options_init(&options);
  options.runtime_dir = "/tmp/gradring-nobody-is-here";
  options.job = "package";
  options.rank = 0;
  options.size = 1;
  try {
    const gradring::Communicator job(options);
  } catch (const gradring::Error& error) {
    std::puts(error.what());
    return error.code() == GRADRING_ERR_UNAVAILABLE ? 0 : 1;
  }
  return 2;
}
