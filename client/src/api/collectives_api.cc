#include <gradring/gradring.h>

#include "client/src/api/c_api.h"

// The part of the C interface that waits at once: made of gradring_submit and gradring_wait.

namespace {

// What the collectives that are waited for at once differ in.
struct Call {
  gradring_collective collective;
  gradring_dtype dtype;
  gradring_reduce_op op;
  uint32_t root;
  uint64_t count;
  const void* input;
  void* output;
};

gradring_code run(gradring_comm* comm, const Call& call) {
  gradring_op full{};
  full.struct_size = sizeof(full);
  full.collective = call.collective;
  full.dtype = call.dtype;
  full.op = call.op;
  full.root = call.root;
  full.count = call.count;
  full.input = call.input;
  full.output = call.output;
  return gradring::client::on(comm, [&](gradring::client::Communicator&) {
    gradring_request request = 0;
    const gradring_code submitted = gradring_submit(comm, &full, &request);
    return submitted != GRADRING_OK ? submitted : gradring_wait(comm, request, -1, nullptr);
  });
}

}  // namespace

gradring_code gradring_allreduce(gradring_comm* comm, const void* input, void* output,
                                 uint64_t count, gradring_dtype dtype, gradring_reduce_op op) {
  return run(comm, {GRADRING_ALLREDUCE, dtype, op, 0, count, input, output});
}

gradring_code gradring_broadcast(gradring_comm* comm, void* buffer, uint64_t count,
                                 gradring_dtype dtype, uint32_t root) {
  return run(comm, {GRADRING_BROADCAST, dtype, {}, root, count, buffer, buffer});
}

gradring_code gradring_barrier(gradring_comm* comm) {
  return run(comm, {GRADRING_BARRIER, {}, {}, 0, 0, nullptr, nullptr});
}

gradring_code gradring_reduce(gradring_comm* comm, const void* input, void* output, uint64_t count,
                              gradring_dtype dtype, gradring_reduce_op op, uint32_t root) {
  return run(comm, {GRADRING_REDUCE, dtype, op, root, count, input, output});
}

gradring_code gradring_allgather(gradring_comm* comm, const void* input, void* output,
                                 uint64_t count, gradring_dtype dtype) {
  return run(comm, {GRADRING_ALLGATHER, dtype, {}, 0, count, input, output});
}

gradring_code gradring_reduce_scatter(gradring_comm* comm, const void* input, void* output,
                                      uint64_t count, gradring_dtype dtype, gradring_reduce_op op) {
  return run(comm, {GRADRING_REDUCE_SCATTER, dtype, op, 0, count, input, output});
}

gradring_code gradring_gather(gradring_comm* comm, const void* input, void* output, uint64_t count,
                              gradring_dtype dtype, uint32_t root) {
  return run(comm, {GRADRING_GATHER, dtype, {}, root, count, input, output});
}

gradring_code gradring_scatter(gradring_comm* comm, const void* input, void* output, uint64_t count,
                               gradring_dtype dtype, uint32_t root) {
  return run(comm, {GRADRING_SCATTER, dtype, {}, root, count, input, output});
}

gradring_code gradring_alltoall(gradring_comm* comm, const void* input, void* output,
                                uint64_t count, gradring_dtype dtype) {
  return run(comm, {GRADRING_ALLTOALL, dtype, {}, 0, count, input, output});
}

gradring_code gradring_send(gradring_comm* comm, const void* buffer, uint64_t count,
                            gradring_dtype dtype, uint32_t to) {
  return run(comm, {GRADRING_SEND, dtype, {}, to, count, buffer, nullptr});
}

gradring_code gradring_recv(gradring_comm* comm, void* buffer, uint64_t count, gradring_dtype dtype,
                            uint32_t from) {
  return run(comm, {GRADRING_RECV, dtype, {}, from, count, nullptr, buffer});
}
