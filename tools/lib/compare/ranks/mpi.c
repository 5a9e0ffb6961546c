/* A rank of an MPI: mpi BOARD BYTES */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#include "tools/lib/compare/ranks/bench.h"

static float* gradients;

static float* buffer(void* context, uint32_t index) {
  (void)context, (void)index;
  return gradients;
}

static void allreduce(void* context, uint64_t bytes) {
  (void)context;
  MPI_Allreduce(MPI_IN_PLACE, gradients, (int)(bytes / sizeof(float)), MPI_FLOAT, MPI_SUM,
                MPI_COMM_WORLD);
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  MPI_Init(&argc, &argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  struct bench_peer peer = {NULL,   (uint32_t)rank, 1, strtoull(argv[2], NULL, 10),
                            buffer, allreduce};
  if (posix_memalign((void**)&gradients, 4096, peer.most) != 0) return 1;
  /* Whoever connects on first use has done so before anything is timed. */
  gradients[0] = 0;
  allreduce(NULL, sizeof(float));
  const int status = bench_serve(argv[1], &peer);
  MPI_Finalize();
  return status;
}
