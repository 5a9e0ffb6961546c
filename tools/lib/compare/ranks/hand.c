/* The sum over the buffers of one process by hand: hand BOARD BYTES BUFFERS THREADS VARIANT
 * What shared memory allows, with nobody to wait for. Variant "blocks" adds up blocks of 16 KiB in
 * a scratch that stays in the cache and writes each out to all buffers; "elements" goes through all
 * buffers at once. */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/lib/compare/ranks/bench.h"

enum { BLOCK = 4096, THREADS = 8, BUFFERS = 16 };

static float* gradients[BUFFERS];
static uint32_t buffers, threads;
static int in_blocks;

static void sum_blocks(uint64_t from, uint64_t to) {
  _Alignas(64) float scratch[BLOCK];
  for (uint64_t at = from; at < to; at += BLOCK) {
    const uint64_t count = to - at < BLOCK ? to - at : BLOCK;
    const float* restrict a = gradients[0] + at;
    const float* restrict b = gradients[1] + at;
    for (uint64_t i = 0; i < count; ++i) scratch[i] = a[i] + b[i];
    for (uint32_t k = 2; k < buffers; ++k) {
      const float* restrict c = gradients[k] + at;
      for (uint64_t i = 0; i < count; ++i) scratch[i] += c[i];
    }
    for (uint32_t k = 0; k < buffers; ++k)
      memcpy(gradients[k] + at, scratch, count * sizeof(float));
  }
}

static void sum_elements(uint64_t from, uint64_t to) {
  float* restrict a = gradients[0];
  float* restrict b = gradients[1];
  if (buffers == 2) {
    for (uint64_t i = from; i < to; ++i) a[i] = b[i] = a[i] + b[i];
    return;
  }
  for (uint64_t i = from; i < to; ++i) {
    float sum = a[i] + b[i];
    for (uint32_t k = 2; k < buffers; ++k) sum += gradients[k][i];
    for (uint32_t k = 0; k < buffers; ++k) gradients[k][i] = sum;
  }
}

/* Thread k takes its part of every op; thread 0 is the caller. */
static uint64_t elements;
static uint32_t turn, finished;

static void part(uint32_t k) {
  const uint64_t from = elements * k / threads / 16 * 16;
  const uint64_t to = k + 1 == threads ? elements : elements * (k + 1) / threads / 16 * 16;
  in_blocks ? sum_blocks(from, to) : sum_elements(from, to);
}

static void wait_for(const uint32_t* word, uint32_t value) {
  for (uint32_t i = 1; __atomic_load_n(word, __ATOMIC_ACQUIRE) != value; ++i) {
    if (i % 64 == 0) sched_yield();
  }
}

static uint32_t resting = 1; /* not 0: helpers sleep, as another contestant is being measured */
static pthread_mutex_t bed = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t bell = PTHREAD_COND_INITIALIZER;

static void* help(void* argument) {
  const uint32_t k = (uint32_t)(uintptr_t)argument;
  for (uint32_t next = 1;; ++next) {
    for (uint32_t i = 1; __atomic_load_n(&turn, __ATOMIC_ACQUIRE) != next; ++i) {
      if (i % 64 == 0) sched_yield();
      if (i < 200000) continue;
      pthread_mutex_lock(&bed);
      __atomic_add_fetch(&resting, 1, __ATOMIC_SEQ_CST);
      while (__atomic_load_n(&turn, __ATOMIC_SEQ_CST) != next) pthread_cond_wait(&bell, &bed);
      __atomic_sub_fetch(&resting, 1, __ATOMIC_SEQ_CST);
      pthread_mutex_unlock(&bed);
    }
    part(k);
    __atomic_add_fetch(&finished, 1, __ATOMIC_RELEASE);
  }
  return NULL;
}

static float* buffer(void* context, uint32_t index) {
  (void)context;
  return gradients[index];
}

static void allreduce(void* context, uint64_t bytes) {
  (void)context;
  elements = bytes / sizeof(float);
  if (threads == 1) return part(0);
  __atomic_store_n(&finished, 0, __ATOMIC_RELAXED);
  __atomic_add_fetch(&turn, 1, __ATOMIC_SEQ_CST);
  if (__atomic_load_n(&resting, __ATOMIC_SEQ_CST) > 1) {
    pthread_mutex_lock(&bed);
    pthread_cond_broadcast(&bell);
    pthread_mutex_unlock(&bed);
  }
  part(0);
  wait_for(&finished, threads - 1);
}

int main(int argc, char** argv) {
  if (argc != 6) return 2;
  buffers = (uint32_t)atoi(argv[3]);
  threads = (uint32_t)atoi(argv[4]);
  in_blocks = strcmp(argv[5], "blocks") == 0;
  if (buffers < 2 || buffers > BUFFERS || threads < 1 || threads > THREADS) return 2;
  struct bench_peer peer = {NULL, 0, buffers, strtoull(argv[2], NULL, 10), buffer, allreduce};
  for (uint32_t k = 0; k < buffers; ++k) {
    /* One page further each: equal offsets in all buffers would share cache sets. */
    char* at = NULL;
    if (posix_memalign((void**)&at, 4096, peer.most + BUFFERS * 4096) != 0) return 1;
    gradients[k] = (float*)(at + k * 4096 + k * 256);
  }
  for (uint32_t k = 1; k < threads; ++k) {
    pthread_t helper;
    if (pthread_create(&helper, NULL, help, (void*)(uintptr_t)k) != 0) return 1;
  }
  return bench_serve(argv[1], &peer);
}
