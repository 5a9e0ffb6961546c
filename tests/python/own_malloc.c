/* An allocator that takes back nothing but its own, as those do that are preloaded. */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern void* __libc_memalign(size_t, size_t);
extern void __libc_free(void*);

struct head { /* before each piece */
  uint64_t ours;
  uint64_t size;
  void* whole;
  uint64_t unused;
};
enum { kOurs = 0x6f776e2e, kLeast = sizeof(struct head) };

void* memalign(size_t boundary, size_t size) {
  if (boundary < kLeast) boundary = kLeast;
  char* const whole = __libc_memalign(boundary, boundary + size);
  if (whole == NULL) return NULL;
  struct head* const head = (struct head*)(whole + boundary) - 1;
  head->ours = kOurs;
  head->size = size;
  head->whole = whole;
  return head + 1;
}

static struct head* head_of(void* piece) {
  struct head* const head = (struct head*)piece - 1;
  if (head->ours == kOurs) return head;
  static const char kWords[] = "own_malloc: memory of another allocator\n";
  if (write(2, kWords, sizeof kWords - 1)) {
  }
  abort();
}

void* malloc(size_t size) { return memalign(kLeast, size); }
void* aligned_alloc(size_t boundary, size_t size) { return memalign(boundary, size); }
int posix_memalign(void** to, size_t boundary, size_t size) {
  *to = memalign(boundary, size);
  return *to != NULL ? 0 : ENOMEM;
}
void free(void* piece) {
  if (piece == NULL) return;
  struct head* const head = head_of(piece);
  head->ours = 0;
  __libc_free(head->whole);
}
void* calloc(size_t count, size_t size) {
  size_t bytes = 0;
  if (__builtin_mul_overflow(count, size, &bytes)) return NULL;
  void* const piece = malloc(bytes);
  return piece != NULL ? memset(piece, 0, bytes) : NULL;
}
void* realloc(void* piece, size_t size) {
  void* const other = malloc(size);
  if (piece == NULL || other == NULL) return other;
  const size_t had = head_of(piece)->size;
  memcpy(other, piece, had < size ? had : size);
  free(piece);
  return other;
}
size_t malloc_usable_size(void* piece) { return piece != NULL ? head_of(piece)->size : 0; }
