/* gradring: sum gradients across trainers through the node's daemon, gradringd.
 *
 * A trainer opens a communicator, allocates buffers in memory that it shares with the daemon,
 * submits collectives on them and waits. Everything between nodes is the daemon's work.
 *
 *   gradring_options options;
 *   gradring_options_init(&options);            // rank, size, job ... from the environment
 *   gradring_comm* comm;
 *   if (gradring_open(&options, &comm) != GRADRING_OK) { puts(gradring_last_error()); exit(1); }
 *   float* gradients;
 *   gradring_alloc(comm, count * sizeof(float), (void**)&gradients);
 *   ...
 *   gradring_allreduce(comm, gradients, gradients, count, GRADRING_FLOAT32, GRADRING_AVERAGE);
 *   gradring_close(comm);
 *
 * Thread safety: every function may be called from any thread; calls on one communicator may run at
 * the same time. The library starts no threads of its own.
 * Fork: a forked child must not use its parent's communicators; every call on one then returns
 * GRADRING_ERR_FORKED and the parent is not disturbed. The child may open its own. It may read what
 * lies in its parent's buffers, but they stay shared: what it writes there, the parent sees.
 * Errors: functions return a code; gradring_last_error() has the sentence, per thread. Nothing is
 * thrown, and no call blocks beyond the deadline it was given.
 *
 * The ABI follows SemVer 0.x: structures begin with their size and only grow.
 */
#ifndef GRADRING_GRADRING_H
#define GRADRING_GRADRING_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define GRADRING_API __attribute__((visibility("default")))
#else
#define GRADRING_API
#endif

typedef enum gradring_code {
  GRADRING_OK = 0,
  GRADRING_ERR_INVALID = 1,      /* an argument makes no sense; the message names it */
  GRADRING_ERR_NOT_FOUND = 2,    /* unknown request, buffer outside every segment, ... */
  GRADRING_ERR_PERMISSION = 3,   /* the job belongs to somebody else */
  GRADRING_ERR_EXHAUSTED = 4,    /* a configured cap is reached; the message names it */
  GRADRING_ERR_UNAVAILABLE = 5,  /* no daemon at that path, or it went away */
  GRADRING_ERR_DEADLINE = 6,     /* the wait ended first; the request is still under way */
  GRADRING_ERR_FAILED = 7,       /* the op or the job failed; the message has cause and blame */
  GRADRING_ERR_INCOMPATIBLE = 8, /* library and daemon versions do not fit */
  GRADRING_ERR_INTERNAL = 9,
  GRADRING_ERR_FORKED = 10 /* a forked child used its parent's communicator */
} gradring_code;

typedef enum gradring_dtype {
  GRADRING_FLOAT32 = 1,
  GRADRING_FLOAT64 = 2,
  GRADRING_FLOAT16 = 3,
  GRADRING_BFLOAT16 = 4,
  GRADRING_INT8 = 5,
  GRADRING_INT16 = 6,
  GRADRING_INT32 = 7,
  GRADRING_INT64 = 8,
  GRADRING_UINT8 = 9
} gradring_dtype;

/* float16 and bfloat16 are folded in float32 within a node's pass and rounded to nearest even. The
 * average of integers is refused. */
typedef enum gradring_reduce_op {
  GRADRING_SUM = 1,
  GRADRING_AVERAGE = 2,
  GRADRING_MIN = 3,
  GRADRING_MAX = 4,
  GRADRING_PRODUCT = 5
} gradring_reduce_op;

typedef struct gradring_comm gradring_comm;

/* Strings are borrowed for the duration of gradring_open only. */
typedef struct gradring_options {
  size_t struct_size;      /* set by gradring_options_init */
  const char* runtime_dir; /* of the daemon; GRADRING_RUNTIME_DIR, else /run/gradring */
  const char* job;         /* name; see gradring_options_init */
  const char* token; /* GRADRING_JOB_TOKEN; separates launches that share a name; may be empty */
  int32_t rank;      /* 0 .. size-1 */
  int32_t size;
  int32_t local_rank;
  int32_t local_size;
  int64_t join_timeout_ms; /* how long to wait for all ranks; 0: the daemon's form-deadline */
} gradring_options;

/* clang-format off */
/* Fills in defaults and whatever the environment says, by the first variable that is set:
 *   rank        GRADRING_RANK, RANK, OMPI_COMM_WORLD_RANK, PMI_RANK, SLURM_PROCID
 *   size        GRADRING_SIZE, WORLD_SIZE, OMPI_COMM_WORLD_SIZE, PMI_SIZE, SLURM_NTASKS
 *   local rank  GRADRING_LOCAL_RANK, LOCAL_RANK, OMPI_COMM_WORLD_LOCAL_RANK, MPI_LOCALRANKID,
 *               SLURM_LOCALID
 *   local size  GRADRING_LOCAL_SIZE, LOCAL_WORLD_SIZE, OMPI_COMM_WORLD_LOCAL_SIZE, MPI_LOCALNRANKS
 *   job         GRADRING_JOB, else SLURM_JOB_ID.SLURM_STEP_ID, else the MPI/PMIx namespace, else
 *               TORCHELASTIC_RUN_ID unless "none", else MASTER_ADDR:MASTER_PORT (a loopback address
 *               with the host's name in front, so that scripts on different hosts never meet)
 *   token       GRADRING_JOB_TOKEN, else made from TORCHELASTIC_RESTART_COUNT if torchrun runs one
 *               node (GROUP_WORLD_SIZE), because on several the counts may differ
 * Fields the environment does not tell are -1 or NULL; gradring_open then says which variable to
 * set. The strings live until the calling thread's next call of this function. */
/* clang-format on */
GRADRING_API void gradring_options_init(gradring_options* options);

/* Attaches to the daemon and joins the job; returns when all ranks are there. On failure *comm is
 * NULL: UNAVAILABLE at once if no daemon answers at the path, DEADLINE if ranks are missing
 * (named), FAILED if claims conflict (both are named). */
GRADRING_API gradring_code gradring_open(const gradring_options* options, gradring_comm** comm);

/* Leaves the job and frees everything, buffers included. Ops under way are not waited for: leaving
 * before the others' ops can complete fails the job for them. Other threads' calls that still wait
 * return UNAVAILABLE first. Takes 2 s at most. NULL is allowed. */
GRADRING_API void gradring_close(gradring_comm* comm);

GRADRING_API int32_t gradring_rank(const gradring_comm* comm);
GRADRING_API int32_t gradring_size(const gradring_comm* comm);
GRADRING_API int32_t gradring_local_rank(const gradring_comm* comm);
/* Ranks of the job on this node. */
GRADRING_API int32_t gradring_local_size(const gradring_comm* comm);
/* Of the view. */
GRADRING_API uint64_t gradring_epoch(const gradring_comm* comm);
/* The daemon's node id. */
GRADRING_API const char* gradring_node(const gradring_comm* comm);

/* Shared memory, page aligned and zero. Freed by gradring_free or gradring_close. */
GRADRING_API gradring_code gradring_alloc(gradring_comm* comm, size_t bytes, void** memory);
/* Refused while a request uses it. */
GRADRING_API gradring_code gradring_free(gradring_comm* comm, void* memory);

/* Lets ops name ordinary memory: the library keeps a shared copy of the same size, copies in at
 * submit and copies out when the completed request is first seen by wait or test. Costs two copies
 * an op; use gradring_alloc where you can. The memory stays yours and must outlive the
 * registration. */
GRADRING_API gradring_code gradring_register(gradring_comm* comm, void* memory, size_t bytes);
GRADRING_API gradring_code gradring_unregister(gradring_comm* comm, void* memory);

typedef enum gradring_collective {
  GRADRING_ALLREDUCE = 1,
  GRADRING_BROADCAST = 2,
  GRADRING_BARRIER = 3
} gradring_collective;

typedef struct gradring_op {
  size_t struct_size; /* sizeof(gradring_op) */
  gradring_collective collective;
  gradring_dtype dtype;
  gradring_reduce_op op; /* allreduce only */
  uint32_t root;         /* broadcast only: the rank whose input goes to every output */
  uint64_t count;        /* elements; 0 is an op that moves nothing */
  const void* input;     /* within allocated or registered memory */
  void* output;          /* may be equal to input (in place), else must not overlap it */
  /* NULL: matched across ranks in program order; else by name and use count. UTF-8, at most 512
   * bytes; use the same names in each step. */
  const char* name;
  int32_t priority;
} gradring_op;

typedef uint64_t gradring_request;

/* Hands the op to the daemon and returns at once. The buffers are lent until the request is done.
 * What the daemon refuses later is told by wait. */
GRADRING_API gradring_code gradring_submit(gradring_comm* comm, const gradring_op* op,
                                           gradring_request* request);

typedef struct gradring_result {
  size_t struct_size;  /* set by the caller: sizeof(gradring_result) */
  uint32_t verdict;    /* 1 OK, 2 OK_SHRUNK, 3 FAILED */
  uint32_t cause;      /* when FAILED, see docs/failure-contract.md */
  int32_t blamed_rank; /* -1: none or unknown */
  int64_t blamed_pid;  /* 0: unknown */
  char blamed_node[128];
  uint32_t ranks_min; /* contributions in the result, least and most over its slices */
  uint32_t ranks_max;
  uint64_t epoch;
  char message[512]; /* the failure as one sentence */
} gradring_result;

/* Waits until the request is done, at most timeout_ms (0: look once; -1: until the daemon's op
 * deadline ends it). OK: done well. FAILED: done badly, result and gradring_last_error() say why.
 * Both consume the request. DEADLINE: still under way, wait again. `result` may be NULL. */
GRADRING_API gradring_code gradring_wait(gradring_comm* comm, gradring_request request,
                                         int64_t timeout_ms, gradring_result* result);
/* gradring_wait with timeout 0, told as a flag: *done 1 consumes the request like wait. */
GRADRING_API gradring_code gradring_test(gradring_comm* comm, gradring_request request, int* done,
                                         gradring_result* result);

/* Submit and wait. */
GRADRING_API gradring_code gradring_allreduce(gradring_comm* comm, const void* input, void* output,
                                              uint64_t count, gradring_dtype dtype,
                                              gradring_reduce_op op);
GRADRING_API gradring_code gradring_broadcast(gradring_comm* comm, void* buffer, uint64_t count,
                                              gradring_dtype dtype, uint32_t root);
GRADRING_API gradring_code gradring_barrier(gradring_comm* comm);

/* The sentence for the last failure on this thread; empty if there was none. */
GRADRING_API const char* gradring_last_error(void);
GRADRING_API const char* gradring_version(void);

#ifdef __cplusplus
}
#endif

#endif
