/* What a rank of any contestant does, so that all are timed and checked by the same rules.
 *
 * The ranks of a contestant share a board, a file that is mapped by all of them and by whoever
 * gives the orders. An order is a check (every element of a result is looked at) or a measurement:
 * samples of so many calls back to back, each between two barriers that are the board's own and
 * sleep. Times are of CLOCK_MONOTONIC, which all processes of a machine share. */
#ifndef GRADRING_COMPARE_BENCH_H
#define GRADRING_COMPARE_BENCH_H

#include <stddef.h>
#include <stdint.h>

enum { BENCH_RANKS = 64, BENCH_SAMPLES = 32 };
enum bench_kind { BENCH_CHECK = 1, BENCH_TIME = 2, BENCH_STOP = 3 };

struct bench_rank {
  double begin[BENCH_SAMPLES], end[BENCH_SAMPLES]; /* seconds */
  double cpu;     /* seconds of all its threads, over the samples */
  uint64_t wrong; /* elements, of the last check */
  int64_t pid;
};

struct bench_board {
  uint32_t size;    /* ranks, set before any starts */
  uint32_t present; /* those that can take orders */
  uint32_t order;   /* its number; counts up */
  uint32_t kind;
  uint64_t bytes;
  uint32_t calls, samples;
  uint32_t done; /* ranks that have carried out the order */
  uint32_t arrived, phase;
  struct bench_rank of[BENCH_RANKS];
};

/* `context` is handed back to every function. */
struct bench_peer {
  void* context;
  uint32_t rank;
  uint32_t buffers; /* that this process has: 1, but for the sum by hand, which has all of them */
  uint64_t most;    /* bytes of the largest buffer */
  /* Where the gradients of buffer `index` are before and after the op. */
  float* (*buffer)(void* context, uint32_t index);
  /* The sum over all ranks of the first `bytes` bytes, in place. */
  void (*allreduce)(void* context, uint64_t bytes);
};

/* Carries out orders until BENCH_STOP. Returns 0, or 1 with a complaint on stderr. */
int bench_serve(const char* board, const struct bench_peer* peer);

/* ---- for whoever gives the orders ---- */

/* Makes the file. NULL with errno. */
struct bench_board* bench_create(const char* path, uint32_t size);
/* Whether all ranks can take orders. */
int bench_complete(const struct bench_board* board);
void bench_give(struct bench_board* board, uint32_t kind, uint64_t bytes, uint32_t calls,
                uint32_t samples);
/* 1 if the order was carried out within so many milliseconds. */
int bench_wait(struct bench_board* board, uint32_t milliseconds);

#endif
