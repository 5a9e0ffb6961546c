#pragma once

// NCCL for the GPUs of cuda_twin.h, under NCCL's own name: what the daemon looks up finds it. As in
// the true one calls of a group are carried out at its end, by threads of its own and only if there
// is one of each communicator; and its sums have an order of their own, which is not the reducer's.
namespace gradring::test {

struct NcclTwin {
  // Communicators that nobody has aborted.
  int (*held)();
  // From now on this function answers so; 0: as it should. "later": what is told of the error of
  // communicators, and what was enqueued is then not carried out; so it is in a process whose
  // GRADRING_TWIN_NCCL_FAILS names a file, too, as long as that is there. "after": groups that may
  // be begun; all later ones are refused. "connects": so many ms takes the first call of each kind
  // and magnitude, unless the environment's NCCL_RUNTIME_CONNECT is 0. "aborts": so many ms whoever
  // aborts a communicator waits, as the true one does for its kernels and all that it has to free.
  void (*answer)(const char* function, int result);
  // How many groups with sums or results there were.
  int (*groups)();
};

// Loads it into this process, once; the driver's twin with it.
const NcclTwin& nccl_twin();

}  // namespace gradring::test
