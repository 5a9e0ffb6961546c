#define _GNU_SOURCE
#include "tools/lib/compare/ranks/bench.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static uint32_t load(const uint32_t* word) { return __atomic_load_n(word, __ATOMIC_SEQ_CST); }

static void wake(uint32_t* word) { syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0); }

/* Returns when the word is another, or so many milliseconds later; 0: never by itself. */
static void sleep_while(uint32_t* word, uint32_t value, uint32_t milliseconds) {
  struct timespec most = {milliseconds / 1000, (long)(milliseconds % 1000) * 1000000};
  syscall(SYS_futex, word, FUTEX_WAIT, value, milliseconds == 0 ? NULL : &most, NULL, 0);
}

static double now(void) {
  struct timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  return (double)at.tv_sec + 1e-9 * (double)at.tv_nsec;
}

static double cpu(void) {
  struct rusage use;
  getrusage(RUSAGE_SELF, &use);
  return (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
         1e-6 * (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec);
}

static void barrier(struct bench_board* board, uint32_t processes) {
  const uint32_t phase = load(&board->phase);
  if (__atomic_add_fetch(&board->arrived, 1, __ATOMIC_SEQ_CST) == processes) {
    __atomic_store_n(&board->arrived, 0, __ATOMIC_SEQ_CST);
    __atomic_store_n(&board->phase, phase + 1, __ATOMIC_SEQ_CST);
    wake(&board->phase);
    return;
  }
  while (load(&board->phase) == phase) sleep_while(&board->phase, phase, 0);
}

/* Small whole numbers, so that every order of adding gives the same. */
static void fill(float* buffer, uint64_t count, uint32_t rank) {
  for (uint64_t i = 0; i < count; ++i) buffer[i] = (float)(rank + 1 + i % 13);
}

static uint64_t wrong(const float* buffer, uint64_t count, uint32_t ranks) {
  uint64_t found = 0;
  for (uint64_t i = 0; i < count; ++i) {
    found += buffer[i] != (float)(ranks * (ranks + 1) / 2 + ranks * (i % 13));
  }
  return found;
}

static void carry_out(struct bench_board* board, const struct bench_peer* peer,
                      uint32_t processes) {
  struct bench_rank* mine = &board->of[peer->rank];
  const uint64_t count = board->bytes / sizeof(float);
  if (board->kind == BENCH_CHECK) {
    for (uint32_t i = 0; i < peer->buffers; ++i)
      fill(peer->buffer(peer->context, i), count, peer->rank + i);
    barrier(board, processes);
    peer->allreduce(peer->context, board->bytes);
    mine->wrong = 0;
    for (uint32_t i = 0; i < peer->buffers; ++i) {
      mine->wrong += wrong(peer->buffer(peer->context, i), count, board->size);
    }
    return;
  }
  /* Zeros stay zeros however often they are summed; other numbers would overflow. */
  for (uint32_t i = 0; i < peer->buffers; ++i)
    memset(peer->buffer(peer->context, i), 0, board->bytes);
  mine->cpu = 0;
  for (uint32_t sample = 0; sample < board->samples; ++sample) {
    barrier(board, processes);
    const double before = cpu();
    mine->begin[sample] = now();
    for (uint32_t call = 0; call < board->calls; ++call)
      peer->allreduce(peer->context, board->bytes);
    mine->end[sample] = now();
    mine->cpu += cpu() - before;
  }
}

static struct bench_board* map(int file) {
  void* at = mmap(NULL, sizeof(struct bench_board), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  return at == MAP_FAILED ? NULL : at;
}

int bench_serve(const char* path, const struct bench_peer* peer) {
  const int file = open(path, O_RDWR);
  struct bench_board* board = file < 0 ? NULL : map(file);
  if (board == NULL || peer->rank >= BENCH_RANKS) {
    fprintf(stderr, "bench: rank %u at %s: %s\n", peer->rank, path,
            board ? "too many ranks" : strerror(errno));
    return 1;
  }
  const uint32_t processes = board->size / peer->buffers;
  for (uint32_t i = 0; i < peer->buffers; ++i)
    memset(peer->buffer(peer->context, i), 0, peer->most);
  board->of[peer->rank].pid = getpid();
  __atomic_add_fetch(&board->present, peer->buffers, __ATOMIC_SEQ_CST);
  for (uint32_t last = 0;;) {
    while (load(&board->order) == last) sleep_while(&board->order, last, 0);
    last = load(&board->order);
    if (board->kind == BENCH_STOP) return 0;
    carry_out(board, peer, processes);
    __atomic_add_fetch(&board->done, peer->buffers, __ATOMIC_SEQ_CST);
    wake(&board->done);
  }
}

struct bench_board* bench_create(const char* path, uint32_t size) {
  const int file = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
  if (file < 0 || ftruncate(file, sizeof(struct bench_board)) != 0) return NULL;
  struct bench_board* board = map(file);
  if (board != NULL) board->size = size;
  close(file);
  return board;
}

int bench_complete(const struct bench_board* board) { return load(&board->present) == board->size; }

void bench_give(struct bench_board* board, uint32_t kind, uint64_t bytes, uint32_t calls,
                uint32_t samples) {
  board->kind = kind;
  board->bytes = bytes;
  board->calls = calls;
  board->samples = samples;
  __atomic_store_n(&board->done, 0, __ATOMIC_SEQ_CST);
  __atomic_add_fetch(&board->order, 1, __ATOMIC_SEQ_CST);
  wake(&board->order);
}

int bench_wait(struct bench_board* board, uint32_t milliseconds) {
  const double until = now() + 1e-3 * milliseconds;
  for (;;) {
    const uint32_t done = load(&board->done);
    if (done == load(&board->present)) return 1;
    const double left = until - now();
    if (left <= 0) return 0;
    sleep_while(&board->done, done, (uint32_t)(1e3 * left) + 1);
  }
}
