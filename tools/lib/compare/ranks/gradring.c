/* A rank of gradring: gradring BOARD BYTES [copy | WIRE]
 * With "copy" the gradients are the trainer's own memory (gradring_register): each op copies them
 * in and the sums out. WIRE: as what they travel between nodes.
 */
#include <gradring/gradring.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/lib/compare/ranks/bench.h"

static gradring_comm* job;
static float* gradients;

static void must(gradring_code code) {
  if (code == GRADRING_OK) return;
  fprintf(stderr, "gradring: %s\n", gradring_last_error());
  exit(1);
}

static float* buffer(void* context, uint32_t index) {
  (void)context, (void)index;
  return gradients;
}

static void allreduce(void* context, uint64_t bytes) {
  (void)context;
  must(gradring_allreduce(job, gradients, gradients, bytes / sizeof(float), GRADRING_FLOAT32,
                          GRADRING_SUM));
}

int main(int argc, char** argv) {
  if (argc != 3 && argc != 4) return 2;
  gradring_options options;
  gradring_options_init(&options);
  const int copies = argc == 4 && strcmp(argv[3], "copy") == 0;
  if (argc == 4 && !copies) options.wire = argv[3];
  must(gradring_open(&options, &job));
  struct bench_peer peer = {
      NULL, (uint32_t)options.rank, 1, strtoull(argv[2], NULL, 10), buffer, allreduce};
  if (!copies) {
    must(gradring_alloc(job, peer.most, (void**)&gradients));
  } else {
    if (posix_memalign((void**)&gradients, 4096, peer.most) != 0) return 1;
    memset(gradients, 0, peer.most);  // else the first look at a page is the copy's
    must(gradring_register(job, gradients, peer.most));
  }
  const int status = bench_serve(argv[1], &peer);
  gradring_close(job);
  return status;
}
