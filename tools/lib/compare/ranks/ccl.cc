// A rank of oneCCL on the processor: ccl-rank BOARD BYTES FILE
// PMI_RANK, PMI_SIZE: by the launcher. FILE: by which the ranks find one another.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <oneapi/ccl.hpp>
#include <string>
#include <thread>

extern "C" {
#include "tools/lib/compare/ranks/bench.h"
}

namespace {

struct Rank {
  std::unique_ptr<ccl::communicator> world;
  float* gradients = nullptr;
};

float* buffer(void* context, uint32_t) { return static_cast<Rank*>(context)->gradients; }

void allreduce(void* context, uint64_t bytes) {
  auto* rank = static_cast<Rank*>(context);
  ccl::allreduce(rank->gradients, rank->gradients, bytes / sizeof(float), ccl::reduction::sum,
                 *rank->world)
      .wait();
}

ccl::shared_ptr_class<ccl::kvs> meet(int number, const std::string& file) {
  if (number == 0) {
    auto store = ccl::create_main_kvs();
    const auto address = store->get_address();
    std::ofstream(file + ".new", std::ios::binary)
        .write(address.data(), static_cast<std::streamsize>(address.size()));
    std::rename((file + ".new").c_str(), file.c_str());
    return store;
  }
  for (int i = 0; i < 300; ++i) {
    ccl::kvs::address_type address;
    if (std::ifstream in(file, std::ios::binary);
        in && in.read(address.data(), static_cast<std::streamsize>(address.size()))) {
      return ccl::create_kvs(address);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  throw std::runtime_error("rank 0 did not say where it is");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  try {
    ccl::init();
    Rank rank;
    const int number = std::atoi(std::getenv("PMI_RANK"));
    rank.world = std::make_unique<ccl::communicator>(ccl::create_communicator(
        std::atoi(std::getenv("PMI_SIZE")), number, meet(number, argv[3])));
    bench_peer peer{&rank,  static_cast<uint32_t>(number),
                    1,      std::strtoull(argv[2], nullptr, 10),
                    buffer, allreduce};
    if (posix_memalign(reinterpret_cast<void**>(&rank.gradients), 4096, peer.most) != 0) return 1;
    return bench_serve(argv[1], &peer);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "oneCCL: %s\n", error.what());
    return 1;
  }
}
