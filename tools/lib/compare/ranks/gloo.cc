// A rank of gloo without torch around it: gloo-rank BOARD BYTES ring|chunked FOLDER
// RANK, WORLD_SIZE: as usual. FOLDER: where the ranks find one another. GLOO_SOCKET_IFNAME: the
// device.
#include <gloo/allreduce.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>

extern "C" {
#include "tools/lib/compare/ranks/bench.h"
}

namespace {

using Chunked = gloo::AllreduceRingChunked<float>;

struct Rank {
  std::shared_ptr<gloo::rendezvous::Context> context;
  float* gradients = nullptr;
  bool chunked = false;
  std::map<uint64_t, std::unique_ptr<Chunked>> algorithms;  // made once for each size, as meant
};

float* buffer(void* context, uint32_t) { return static_cast<Rank*>(context)->gradients; }

void allreduce(void* context, uint64_t bytes) {
  auto* rank = static_cast<Rank*>(context);
  const auto count = static_cast<size_t>(bytes / sizeof(float));
  if (rank->chunked) {
    auto& algorithm = rank->algorithms[bytes];
    if (!algorithm) {
      algorithm = std::make_unique<Chunked>(rank->context, std::vector<float*>{rank->gradients},
                                            static_cast<int>(count));
    }
    return algorithm->run();
  }
  gloo::AllreduceOptions options(rank->context);
  options.setAlgorithm(gloo::AllreduceOptions::Algorithm::RING);
  options.setOutput(rank->gradients, count);
  options.setReduceFunction(
      static_cast<void (*)(void*, const void*, const void*, size_t)>(&gloo::sum<float>));
  gloo::allreduce(options);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  try {
    Rank rank;
    const int number = std::atoi(std::getenv("RANK"));
    gloo::transport::tcp::attr where;
    where.iface = std::getenv("GLOO_SOCKET_IFNAME");
    gloo::rendezvous::FileStore store(argv[4]);
    rank.context =
        std::make_shared<gloo::rendezvous::Context>(number, std::atoi(std::getenv("WORLD_SIZE")));
    auto device = gloo::transport::tcp::CreateDevice(where);
    rank.context->connectFullMesh(store, device);
    rank.chunked = std::strcmp(argv[3], "chunked") == 0;
    bench_peer peer{&rank,  static_cast<uint32_t>(number),
                    1,      std::strtoull(argv[2], nullptr, 10),
                    buffer, allreduce};
    if (posix_memalign(reinterpret_cast<void**>(&rank.gradients), 4096, peer.most) != 0) return 1;
    return bench_serve(argv[1], &peer);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gloo: %s\n", error.what());
    return 1;
  }
}
