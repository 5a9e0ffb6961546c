/* A trainer in C11: that the header is C, and that a program needs nothing but it and the library.
 */
#include <gradring/gradring.h>
#include <stdio.h>
#include <string.h>

int main(void) {
  gradring_options options;
  gradring_options_init(&options);
  options.runtime_dir = "/tmp/gradring-nobody-is-here";
  options.job = "c11";
  options.rank = 0;
  options.size = 1;
  gradring_comm* comm = NULL;
  if (gradring_open(&options, &comm) != GRADRING_ERR_UNAVAILABLE || comm != NULL) return 1;
  puts(gradring_last_error());
  if (strstr(gradring_last_error(), "/tmp/gradring-nobody-is-here/attach.sock") == NULL) return 2;
  float values[4] = {0};
  if (gradring_allreduce(comm, values, values, 4, GRADRING_FLOAT32, GRADRING_SUM) !=
      GRADRING_ERR_INVALID) {
    return 3;
  }
  void* memory = &comm;
  if (gradring_gpu_alloc(64, 0, &memory) != GRADRING_ERR_UNAVAILABLE || memory != NULL) return 5;
  if (strstr(gradring_last_error(), "libcuda.so.1") == NULL) return 6;
  if (gradring_torch_alloc(64, 0, NULL) != NULL) return 7;
  gradring_torch_free(NULL, 0, 0, NULL);
  if (gradring_gpu_free(&comm) != GRADRING_ERR_NOT_FOUND) return 8;
  gradring_close(comm);
  return strlen(gradring_version()) > 0 ? 0 : 4;
}
