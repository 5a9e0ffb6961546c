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
 * Restart of the daemon: where it has a restart-grace, its restart or upgrade is a pause. Requests
 * stay under way, calls wait, what is submitted meanwhile is kept; the library attaches anew by
 * itself, in whatever call looks next, and submits again what had not ended. Deadlines hold all the
 * time. If the daemon is not back within its grace and 2 s, or does not know this trainer any more,
 * the communicator is over: requests end FAILED with cause PEER_LOST (or REFUSED), calls return
 * UNAVAILABLE or the daemon's own refusal. Without a grace that is so at once.
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
  GRADRING_UINT8 = 9,
  GRADRING_UINT16 = 10,
  GRADRING_UINT32 = 11,
  GRADRING_UINT64 = 12,
  GRADRING_BOOL = 13,        /* a byte: 0, or anything else; what is computed is 0 or 1 */
  GRADRING_FLOAT8_E4M3 = 14, /* these two are moved, and never reduced */
  GRADRING_FLOAT8_E5M2 = 15
} gradring_dtype;

/* float16 and bfloat16 are folded in float32 within a node's pass and rounded to nearest even. The
 * average of integers is refused. BAND, BOR and BXOR are of integers and bools. Of bools, SUM and
 * MAX are BOR, and PRODUCT and MIN are BAND. */
typedef enum gradring_reduce_op {
  GRADRING_SUM = 1,
  GRADRING_AVERAGE = 2,
  GRADRING_MIN = 3,
  GRADRING_MAX = 4,
  GRADRING_PRODUCT = 5,
  GRADRING_BAND = 6,
  GRADRING_BOR = 7,
  GRADRING_BXOR = 8
} gradring_reduce_op;

/* As what float32 travels from node to node where an op reduces it: between nodes only, and from
 * 256 KiB an op on; what is smaller, and whatever stays on a node, goes as it is. Sums are made in
 * float32 and rounded each time that they leave a node; all ranks get the same bits.
 * docs/collectives.md has the accuracy of each. */
typedef enum gradring_wire {
  GRADRING_WIRE_DEFAULT = 0, /* that of the communicator (gradring_options), where the op may */
  GRADRING_WIRE_FLOAT16 = 1,
  GRADRING_WIRE_BFLOAT16 = 2,
  GRADRING_WIRE_INT8 = 3,  /* with a scale for each 256 elements; name such ops */
  GRADRING_WIRE_NATIVE = 4 /* as it is */
} gradring_wire;

/* How an op ended. OK_SHRUNK is a success (code GRADRING_OK): ranks of an elastic job that were
 * lost before they submitted the op are missing in the result, which is the same on all that are
 * left. An average is that of the contributions there are. */
typedef enum gradring_verdict {
  GRADRING_VERDICT_OK = 1,
  GRADRING_VERDICT_OK_SHRUNK = 2,
  GRADRING_VERDICT_FAILED = 3
} gradring_verdict;

/* Why an op or a job failed; docs/failure-contract.md says who is blamed. */
typedef enum gradring_cause {
  GRADRING_CAUSE_NONE = 0,
  GRADRING_CAUSE_MISMATCH = 1, /* ranks submitted different ops under one key */
  GRADRING_CAUSE_TRAINER_DIED = 2,
  GRADRING_CAUSE_TRAINER_LEFT = 3, /* before it submitted what others wait for */
  GRADRING_CAUSE_PEER_LOST = 4,    /* a daemon's connection broke */
  GRADRING_CAUSE_PEER_SILENT = 5,  /* a daemon was not heard of any more */
  GRADRING_CAUSE_DEADLINE = 6,     /* a rank never submitted the op */
  GRADRING_CAUSE_PROTOCOL = 7,     /* a bug, or versions that do not fit */
  GRADRING_CAUSE_REFUSED = 8,      /* this submission itself */
  GRADRING_CAUSE_DRAINED = 9,      /* the daemon was told to stop */
  GRADRING_CAUSE_EXCLUDED = 10,    /* the job goes on without this node */
  GRADRING_CAUSE_NO_QUORUM = 11,   /* too few nodes are left, or reached, to agree on going on */
  GRADRING_CAUSE_ROOT_LOST = 12,   /* or another rank whose input it needs; fails that op alone */
  GRADRING_CAUSE_CORRUPTED = 13    /* data came damaged three times over one link */
} gradring_cause;

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
  /* How long to wait for all ranks; 0: the daemon's form-deadline. GRADRING_JOIN_TIMEOUT, in
   * seconds */
  int64_t join_timeout_ms;
  /* What happens when ranks are lost, the same for all of them. "fail", the default: the job ends.
   * "elastic min=A max=B": it goes on with those who are left while they are at least A ranks
   * (default 1), and takes in ranks with numbers below B (default: below the size that they say
   * themselves) at gradring_join_point. GRADRING_POLICY */
  const char* policy;
  /* Of ops that do not say their own, the same for all ranks: "native" (or "none"), the default,
   * "fp16", "bf16" or "int8" (gradring_wire). GRADRING_WIRE */
  const char* wire;
  /* Of named ops whose own priority is 0: "given", the default, leaves them at 0; "learned" gives
   * them one by the order in which this rank needs them (gradring_learned_priorities). Ranks need
   * not agree on it. GRADRING_PRIORITIES */
  const char* priorities;
  /* "on": the job keeps the table by which its sums go, and begins with none that was measured, so
   * that two runs on the same nodes give the same bits; for all ranks as soon as one asks for it.
   * "off", the default: as the daemon says. GRADRING_DETERMINISTIC */
  const char* deterministic;
} gradring_options;

/* clang-format off */
/* Fills in defaults and whatever the environment says, by the first variable that is set:
 *   rank        GRADRING_RANK, RANK, OMPI_COMM_WORLD_RANK, PMI_RANK, SLURM_PROCID
 *   size        GRADRING_SIZE, WORLD_SIZE, OMPI_COMM_WORLD_SIZE, PMI_SIZE, SLURM_NTASKS
 *   local rank  GRADRING_LOCAL_RANK, LOCAL_RANK, OMPI_COMM_WORLD_LOCAL_RANK, MPI_LOCALRANKID,
 *               SLURM_LOCALID
 *   local size  GRADRING_LOCAL_SIZE, LOCAL_WORLD_SIZE, OMPI_COMM_WORLD_LOCAL_SIZE, MPI_LOCALNRANKS
 *   job         GRADRING_JOB, else under mpirun its namespace, else SLURM_JOB_ID.SLURM_STEP_ID (with
 *               /TORCHELASTIC_RUN_ID under torchrun), else the PMIx namespace, else
 *               TORCHELASTIC_RUN_ID unless "none", else MASTER_ADDR:MASTER_PORT (a loopback address
 *               with the host's name in front, so that scripts on different hosts never meet)
 *   token       GRADRING_JOB_TOKEN, else made from TORCHELASTIC_RESTART_COUNT if torchrun runs one
 *               node (GROUP_WORLD_SIZE), because on several the counts may differ
 *   policy      GRADRING_POLICY, else "fail"
 *   wire        GRADRING_WIRE, GRADRING_COMPRESSION, else "native"
 *   join timeout  GRADRING_JOIN_TIMEOUT, in seconds
 *   priorities  GRADRING_PRIORITIES, else "given"
 *   deterministic  GRADRING_DETERMINISTIC, else "off"
 * Slurm's count in the steps that srun starts, not in the shell of sbatch or salloc.
 * Fields the environment does not tell are -1 or NULL, and -2 where a variable holds no number;
 * gradring_open then says which variable to set. The strings live until the calling thread's next call of this function. */
/* clang-format on */
GRADRING_API void gradring_options_init(gradring_options* options);

/* Attaches to the daemon and joins the job; returns when all ranks are there. On failure *comm is
 * NULL: UNAVAILABLE at once if no daemon answers at the path, DEADLINE if ranks are missing
 * (named), FAILED if claims conflict (both are named).
 * If an elastic job of this name and token runs already, returns when its ranks stand at a join
 * point and it has taken this one in; the first op must then be gradring_join_point. Any size above
 * the rank will do there. */
GRADRING_API gradring_code gradring_open(const gradring_options* options, gradring_comm** comm);

/* A communicator of some ranks of this one. Exactly they call it, with the same list, and it
 * returns when all are there; groups of the same list are matched in the order in which they are
 * made. A rank's number in the group is its place in the list, and errors of the group name ranks
 * so. The group's ops may name memory of any communicator of the family: this one, its groups,
 * theirs. To the daemons it is a job of its own, "NAME[0-3,8]", with policy "fail": when one of its
 * ranks is lost the group is over, even where the job it was made from goes on. Whichever is closed
 * first, the others go on; memory belongs to the one that allocated or registered it. */
GRADRING_API gradring_code gradring_group(gradring_comm* comm, const uint32_t* ranks,
                                          uint32_t count, gradring_comm** group);
/* The same, waiting timeout_ms for the other ranks (0: the daemon's form-deadline; -1: as
 * gradring_group does, what the communicator was opened with). DEADLINE names who is missing. */
GRADRING_API gradring_code gradring_group_timed(gradring_comm* comm, const uint32_t* ranks,
                                                uint32_t count, int64_t timeout_ms,
                                                gradring_comm** group);

/* Leaves the job and frees everything, buffers included. Ops under way are not waited for: leaving
 * before the others' ops can complete fails the job for them. Other threads' calls that still wait
 * return UNAVAILABLE first. Takes 2 s at most. NULL is allowed. */
GRADRING_API void gradring_close(gradring_comm* comm);

/* Leaves the job as gradring_close does, and keeps the communicator, which threads may wait in and
 * hold requests of: these end FAILED, with the cause TRAINER_LEFT and this rank to blame, and
 * nothing more is submitted. The other ranks may go on with an op that the daemon had by then, so
 * leave the memory that it names alone. gradring_close is still to be called. Takes 2 s at most;
 * DEADLINE: the daemon did not confirm it by then, and hears of it from gradring_close. */
GRADRING_API gradring_code gradring_leave(gradring_comm* comm);

/* Leaves as gradring_leave does, but as one that has failed: to the other ranks it is as if this
 * process had died. At once, and whether they wait for it or not, the job is over for them, or goes
 * on without this rank if it is elastic; their errors have the cause TRAINER_DIED, this rank, its
 * node and pid, and `why` as what befell it: a few words of UTF-8, of which 255 bytes are told.
 * NULL, none, or what is not UTF-8: "aborted the job". Groups are to be aborted by themselves. */
GRADRING_API gradring_code gradring_abort(gradring_comm* comm, const char* why);

/* Stays the same for life, whoever is lost. */
GRADRING_API int32_t gradring_rank(const gradring_comm* comm);
/* Ranks that are there. Without failures constant; in an elastic job see gradring_get_view. */
GRADRING_API int32_t gradring_size(const gradring_comm* comm);
GRADRING_API int32_t gradring_local_rank(const gradring_comm* comm);
/* Ranks of the job on this node that are there. */
GRADRING_API int32_t gradring_local_size(const gradring_comm* comm);
/* Of the view: 1 at first, and higher with every change of it. */
GRADRING_API uint64_t gradring_epoch(const gradring_comm* comm);
/* The daemon's node id. */
GRADRING_API const char* gradring_node(const gradring_comm* comm);

/* Shared memory, page aligned and zero. Freed by gradring_free or gradring_close. */
GRADRING_API gradring_code gradring_alloc(gradring_comm* comm, size_t bytes, void** memory);
/* Refused while a request uses it, of this communicator or of a group of the family, until that has
 * been waited for. */
GRADRING_API gradring_code gradring_free(gradring_comm* comm, void* memory);

/* Lets ops name ordinary memory: the library keeps a shared copy of the same size, copies in at
 * submit and copies out when the completed request is first seen by wait or test. Costs two copies
 * an op; use gradring_alloc where you can. The memory stays yours and must outlive the
 * registration.
 * It may be memory of an NVIDIA GPU, by its address there, however it was allocated (INTERNAL where
 * the driver will not copy it), which ops may also name without that: then pinned memory that is
 * made when it is first needed, and kept for the next op of about that size, is the copy (of what
 * is idle, 512 MiB for each communicator); beside a daemon that sums on GPUs (gpu-sums) so is some
 * of the GPU's memory, GRADRING_GPU_STAGE_MIB for each process at most. The GPU makes the copies,
 * behind what is on the op's stream (gradring_op.stream) when it is submitted, and an op counts as
 * submitted when its stream has come there: nobody waits for that, unless the driver is older than
 * CUDA 11.7 or the pages of the copy could not be pinned; then submit does. INVALID if that stream
 * is being captured into a graph. gradring_wait brings the result back and waits for that;
 * gradring_wait_on_stream lets a stream wait. Where the copy back fails, wait returns INTERNAL
 * although the op is done. */
GRADRING_API gradring_code gradring_register(gradring_comm* comm, void* memory, size_t bytes);
/* Refused as gradring_free is. */
GRADRING_API gradring_code gradring_unregister(gradring_comm* comm, void* memory);

/* Memory of an NVIDIA GPU that a daemon can open where it is: ops of any communicator of this
 * process may name it, or a part of it, as any other memory of a GPU. Beside a daemon that sums on
 * GPUs (gpu-sums) what its GPUs have a part in is summed there, with no copy within the GPU: the
 * daemon opens it once for each communicator, when such an op first names it, and it takes as much
 * pinned memory of the host then. Ops that its GPUs have no part in, and all where it cannot be
 * opened, go as if somebody else had allocated it.
 * `device` is CUDA's number of the GPU in this process, which has CUDA initialised: the library
 * loads no driver. It is in that GPU's primary context, as the runtime's memory is, aligned to 256
 * bytes at least, and not zero. It is yours until you free it, whichever communicators come and go.
 * EXHAUSTED: the GPU has not so much left; INVALID: bytes is 0, or there is no such GPU;
 * UNAVAILABLE: this process has loaded no driver, or CUDA refuses (the message has its word).
 * gradring_gpu_free may be called at any time, also while ops under way name it: no further op may
 * then, and it goes when the last of them has been waited for. The GPU has it back when all daemons
 * have closed it, which is waited for, 2 s at most; where that does not suffice, or streams wait
 * for other ops then, in a later call of that communicator. NULL is allowed; NOT_FOUND: no such
 * memory begins there. As CUDA's, it waits for work on the GPU, but ends no capture into a graph;
 * what the driver does not take back, as of a GPU that has failed, goes in a later call of these
 * two. What was given to gradring_register is to be unregistered first. A forked child has none of
 * its parent's: NOT_FOUND there, and the parent is not disturbed. What is not freed when the
 * process ends goes with it. */
GRADRING_API gradring_code gradring_gpu_alloc(size_t bytes, int device, void** memory);
GRADRING_API gradring_code gradring_gpu_free(void* memory);

/* The same two as torch.cuda.memory.CUDAPluggableAllocator has them; `stream` means nothing, and
 * neither do `bytes` and `device` where it is freed. NULL: there is none, gradring_last_error()
 * says why. */
GRADRING_API void* gradring_torch_alloc(ptrdiff_t bytes, int device, void* stream);
GRADRING_API void gradring_torch_free(void* memory, ptrdiff_t bytes, int device, void* stream);

typedef enum gradring_collective {
  GRADRING_ALLREDUCE = 1,
  GRADRING_BROADCAST = 2,
  GRADRING_BARRIER = 3,
  GRADRING_ALLGATHER = 5,
  GRADRING_REDUCE_SCATTER = 6,
  GRADRING_REDUCE = 7,
  GRADRING_GATHER = 8,
  GRADRING_SCATTER = 9,
  GRADRING_ALLTOALL = 10,
  GRADRING_SEND = 100,
  GRADRING_RECV = 101
} gradring_collective;

/* Elements of a rank's buffers where there are N ranks; blocks are in the order of ranks. `input`
 * and `output` are ignored where they have none.
 *
 *   collective       input               output              in place
 *   ALLREDUCE        count               count               output == input
 *   BROADCAST        count at the root   count               output == input
 *   REDUCE           count               count at the root   output == input
 *   ALLGATHER        count               N * count           input is the own block of output
 *   REDUCE_SCATTER   N * count           count               output is the own block of input
 *   GATHER           count               N * count at root   input is the own block of output
 *   SCATTER          N * count at root   count               output is the own block of input
 *   ALLTOALL         N * count           N * count           no
 *   SEND             count
 *   RECV                                 count
 *
 * Block j of an ALLTOALL's input becomes block i of rank j's output, i being the rank that gives
 * it. Blocks need not be equal: gradring_op.counts says how long each is. Where ranks have gaps
 * (gradring_view) their place among those that are there counts.
 * SEND and RECV are matched between the two ranks alone, in program order for each direction, or by
 * name; both name the same count and type. An op that fails fails for these two.
 * An elastic job goes on with fewer
 * ranks in ALLREDUCE, BROADCAST and BARRIER. All others mean nothing without every rank: one whose
 * input is lost with its node before all have what they want fails that op alone (ROOT_LOST), and
 * so does one that is submitted for another number of ranks than there are (MISMATCH).
 * docs/failure-contract.md has the rules. */

typedef struct gradring_op {
  size_t struct_size; /* sizeof(gradring_op) */
  gradring_collective collective;
  gradring_dtype dtype;
  gradring_reduce_op op; /* of ALLREDUCE, REDUCE_SCATTER and REDUCE */
  uint32_t root;         /* of BROADCAST, REDUCE, GATHER and SCATTER: a rank; else the other one */
  uint64_t count;        /* elements, as above; 0 is an op that moves nothing */
  const void* input;     /* within allocated or registered memory, or a GPU's */
  void* output;          /* likewise; must not overlap the input unless it is in place */
  /* NULL: matched across ranks in program order; else by name and use count. UTF-8, at most 512
   * bytes; use the same names in each step. */
  const char* name;
  /* Of ops that can go, the slices of the one with the highest number go first, also before those
   * of one that has begun. A matter of speed alone, which ranks need not agree on; 0 is usual, and
   * what gradring_options.priorities is about. */
  int32_t priority;
  /* Of collectives that mean nothing without every rank: for how many the buffers are made. 0: as
   * many as there are now, which may change at any moment in an elastic job. */
  uint32_t ranks;
  gradring_wire wire; /* of ALLREDUCE, REDUCE_SCATTER and REDUCE of float32 */
  uint32_t reserved;  /* 0 */
  /* Of what reduces float16, bfloat16, float32 or float64, in the same pass: this rank's input is
   * multiplied by prescale, which may differ from rank to rank; the result, an average after its
   * division, by postscale. 0 is 1. */
  double prescale;
  double postscale;
  /* Of collectives in blocks that are not all equal, instead of count; the same on all ranks. One
   * number of elements for each of the N ranks; of an ALLTOALL N * N, [i * N + j] being what rank i
   * gives to rank j. 16,384 numbers at most; read while the op is submitted. NULL: all are equal.
   */
  const uint64_t* counts;
  uint64_t counts_length;
  /* Of buffers on a GPU: the CUDA stream (cudaStream_t, CUstream) whose work so far comes before
   * the op. NULL is CUDA's default stream. */
  void* stream;
} gradring_op;

typedef uint64_t gradring_request;

/* Hands the op to the daemon and returns at once. The buffers are lent until the request is done.
 * What the daemon refuses later is told by wait. */
GRADRING_API gradring_code gradring_submit(gradring_comm* comm, const gradring_op* op,
                                           gradring_request* request);

/* Hands over all of these ops, in this order, or none of them where one is refused here: no other
 * rank then sees any. Their ends are told one by one, and each may fail for itself. `ops` is an
 * array, `requests` has room for as many numbers; they are 0 where nothing was submitted. */
GRADRING_API gradring_code gradring_submit_all(gradring_comm* comm, const gradring_op* ops,
                                               uint32_t count, gradring_request* requests);

typedef struct gradring_result {
  size_t struct_size;  /* set by the caller: sizeof(gradring_result) */
  uint32_t verdict;    /* gradring_verdict */
  uint32_t cause;      /* gradring_cause, when FAILED */
  int32_t blamed_rank; /* -1: none or unknown */
  int64_t blamed_pid;  /* 0: unknown */
  char blamed_node[128];
  uint32_t ranks_min; /* contributions in the result, least and most over its slices */
  uint32_t ranks_max;
  uint64_t epoch;    /* of the view in which it ended on this rank */
  char message[512]; /* the failure as one sentence */
  uint32_t size;     /* ranks of that view */
} gradring_result;

/* Waits until the request is done, at most timeout_ms (0: look once; -1: until the daemon's op
 * deadline ends it). OK: done well. FAILED: done badly, result and gradring_last_error() say why.
 * Both consume the request. DEADLINE: still under way, wait again. `result` may be NULL. */
GRADRING_API gradring_code gradring_wait(gradring_comm* comm, gradring_request request,
                                         int64_t timeout_ms, gradring_result* result);
/* gradring_wait with timeout 0, told as a flag: *done 1 consumes the request like wait. */
GRADRING_API gradring_code gradring_test(gradring_comm* comm, gradring_request request, int* done,
                                         gradring_result* result);
/* Why nothing goes any more on this communicator, as gradring_wait says it of an op: FAILED, with
 * cause and blame, when its job has failed, this rank has left, or the daemon is gone for good;
 * what is submitted then is refused in the same words. Else OK. `result` may be NULL. */
GRADRING_API gradring_code gradring_failure(gradring_comm* comm, gradring_result* result);

/* What a request waits for, as far as the daemon of this node knows, which is asked. */
typedef struct gradring_progress {
  size_t struct_size;
  /* "allreduce sum of 1024 float32 (op 3) waits for rank 2 (node b, pid 4711)"; where the daemon of
   * another node alone can tell which of its ranks it is, the node */
  char message[512];
  /* The lowest rank that is not among the missing, as far as is known; -1: none. If all ranks ask
   * at the same time and people are to be told once, let this one tell them. */
  int32_t first;
} gradring_progress;
/* Returns within 1 s and consumes nothing. NOT_FOUND: there is no such request; DEADLINE: the
 * daemon does not answer, which gradring_last_error() says. */
GRADRING_API gradring_code gradring_get_progress(gradring_comm* comm, gradring_request request,
                                                 gradring_progress* progress);

/* What is told of a job, or of a group, that some rank does not come to: `rank`, of the job, has
 * waited so long in gradring_open or gradring_group; `message` is "job train waits for rank 2 to
 * join". */
typedef void (*gradring_forming)(void* context, int32_t rank, int64_t waited_ms,
                                 const char* message);
/* Of the whole process, for what begins to wait from now on: `tell` is called each every_ms, by the
 * thread that waits, of which one rank's tells it for all whose daemons answer. every_ms 0, or
 * `tell` NULL: nobody is told, as at first. INVALID: every_ms is negative. */
GRADRING_API gradring_code gradring_watch_forming(int64_t every_ms, gradring_forming tell,
                                                  void* context);

/* Of a request whose output is on a GPU: this CUDA stream (NULL: the default stream) waits for it,
 * and has the result then. The caller does not wait, unless the driver is older than CUDA 11.7 or
 * the pages behind the memory could not be pinned: then it does in the stream's stead, as long as
 * timeout_ms says (as for gradring_wait), and DEADLINE is that it is under way still; likewise
 * while another thread is about to have its stream bring the result. It may be any stream of that
 * GPU, and several may wait for one request. INVALID where the output is not a GPU's, or while the
 * stream is being captured into a graph. The request is still to be waited for by gradring_wait,
 * which then brings nothing: it tells how the op ended. If it failed, the stream goes on with an
 * output that means nothing. Let some thread be in gradring_wait for it: the library has no thread
 * of its own, and if the daemon dies the stream waits until a call of this communicator finds out.
 */
GRADRING_API gradring_code gradring_wait_on_stream(gradring_comm* comm, gradring_request request,
                                                   void* stream, int64_t timeout_ms);

/* Submit and wait. */
GRADRING_API gradring_code gradring_allreduce(gradring_comm* comm, const void* input, void* output,
                                              uint64_t count, gradring_dtype dtype,
                                              gradring_reduce_op op);
GRADRING_API gradring_code gradring_broadcast(gradring_comm* comm, void* buffer, uint64_t count,
                                              gradring_dtype dtype, uint32_t root);
GRADRING_API gradring_code gradring_barrier(gradring_comm* comm);
GRADRING_API gradring_code gradring_reduce(gradring_comm* comm, const void* input, void* output,
                                           uint64_t count, gradring_dtype dtype,
                                           gradring_reduce_op op, uint32_t root);
GRADRING_API gradring_code gradring_allgather(gradring_comm* comm, const void* input, void* output,
                                              uint64_t count, gradring_dtype dtype);
GRADRING_API gradring_code gradring_reduce_scatter(gradring_comm* comm, const void* input,
                                                   void* output, uint64_t count,
                                                   gradring_dtype dtype, gradring_reduce_op op);
GRADRING_API gradring_code gradring_gather(gradring_comm* comm, const void* input, void* output,
                                           uint64_t count, gradring_dtype dtype, uint32_t root);
GRADRING_API gradring_code gradring_scatter(gradring_comm* comm, const void* input, void* output,
                                            uint64_t count, gradring_dtype dtype, uint32_t root);
GRADRING_API gradring_code gradring_alltoall(gradring_comm* comm, const void* input, void* output,
                                             uint64_t count, gradring_dtype dtype);
GRADRING_API gradring_code gradring_send(gradring_comm* comm, const void* buffer, uint64_t count,
                                         gradring_dtype dtype, uint32_t to);
GRADRING_API gradring_code gradring_recv(gradring_comm* comm, void* buffer, uint64_t count,
                                         gradring_dtype dtype, uint32_t from);

/* Who is in the job. It changes when ranks of an elastic job are lost, at any moment, and when
 * ranks come in, at a join point only. Ranks keep their numbers, so there may be gaps. */
typedef struct gradring_view {
  size_t struct_size; /* set by the caller: sizeof(gradring_view) */
  uint64_t epoch;
  uint64_t grew;         /* the epoch in which ranks came in last; 1 if none did after the start */
  uint32_t size;         /* ranks that are there */
  uint32_t rank;         /* this one */
  uint32_t position;     /* this one's place among them, 0 .. size-1: share data by it */
  uint32_t oldest;       /* the lowest of the ranks that are there longest: has the job's state */
  char explanation[512]; /* one sentence: how this view came about */
} gradring_view;

/* The newest view that this rank was told. Another may come at any moment, and to other ranks a
 * little later; what all ranks are to agree on, take from the view of gradring_join_point. */
GRADRING_API gradring_code gradring_get_view(gradring_comm* comm, gradring_view* view);
/* The ranks of the view of `epoch`, ascending: writes as many as fit, and how many there are to
 * *count. NOT_FOUND if this rank was not told that view, or 8 others after it. */
GRADRING_API gradring_code gradring_view_ranks(gradring_comm* comm, uint64_t epoch, uint32_t* ranks,
                                               uint32_t capacity, uint32_t* count);

typedef struct gradring_learned_priority {
  int32_t priority;
  char name[516]; /* whole, and with a NUL behind it */
} gradring_learned_priority;

/* With options.priorities "learned": which ops this communicator has found to be needed first. It
 * looks in which order they are first waited for, or tested, in each step, which is what is
 * submitted from one use of a name to its next. When three steps in a row had the same names,
 * the one needed first gets -1, the next -2 and so on, until three others have different names.
 * Writes as many as fit, the most urgent first, and how many there are to *count: 0 while it is
 * still learning. */
GRADRING_API gradring_code gradring_learned_priorities(gradring_comm* comm,
                                                       gradring_learned_priority* learned,
                                                       uint32_t capacity, uint32_t* count);

/* This rank has waited so long for its next batch: it counts as `input` in what `gradringctl job`
 * shows of where the time of its steps goes, and else as computing. Costs no message. Of the
 * communicator that gradring_open made. */
GRADRING_API gradring_code gradring_waited_for_input(gradring_comm* comm, uint64_t nanoseconds);

/* A barrier of all ranks at which new ones may come into an elastic job; in any other job it is
 * just a barrier. Call it at the head of each training step, or of every so many. Returns when all
 * ranks are here, with one view for all of them. No other op of this communicator may be under way
 * then, in any thread: INVALID says which is.
 * If view.grew is not that of the last time, ranks came in since: they have none of the job's
 * state, so all ranks broadcast it from view.oldest. Ops without a name, and uses of names, count
 * from 0 there. Zero before the first time makes the same code serve those that came in:
 *
 *   uint64_t grew = 0;
 *   gradring_view view = {sizeof(view)};
 *   while (...) {
 *     if (gradring_join_point(comm, NULL, &view) != GRADRING_OK) ...
 *     if (view.grew != grew) { broadcast weights and step from view.oldest; grew = view.grew; }
 *     ... the share view.position of view.size of the step's data ...
 *   }
 *
 * `result` and `view` may be NULL. After a failure of this op (as of any) *view is not written. */
GRADRING_API gradring_code gradring_join_point(gradring_comm* comm, gradring_result* result,
                                               gradring_view* view);

/* This rank has no more data, though others may: until all of them have called this, it takes part
 * in their ops with values that change nothing (0 in a sum or an average, which is divided by all
 * ranks; the largest value in a minimum; 0 where nothing is reduced), and gets the results nobody
 * looks at. Returns when all ranks have joined; then all may go on as before. *last_rank is the one
 * that submitted most ops itself since the last join, the highest of several: broadcast from it
 * what all are to agree on. `last_rank` and `result` may be NULL.
 * An op that needs this rank's own values fails (MISMATCH): a broadcast or scatter from it, blocks
 * of unequal lengths, a join point. Sends and receives concern two ranks and wait for both. While
 * it waits, no other op of this communicator can be submitted. */
GRADRING_API gradring_code gradring_join(gradring_comm* comm, uint32_t* last_rank,
                                         gradring_result* result);

/* This rank gives up what the ranks have begun, since it goes back to an earlier step: every op of
 * the others that it has not submitted fails on all ranks (MISMATCH, which names this rank), and
 * none waits until the op deadline for a rank that does not come. Whoever sees an op fail so calls
 * it as well. Returns when all ranks have called it and nothing is under way any more; then all may
 * go on, as after gradring_join. `result` may be NULL. A group is given up by a call of its own, at
 * the same time in another thread, since its ranks may wait in either; sends and receives, which
 * concern two ranks, are not given up and end by their deadline where the other one does not come.
 * A daemon that is too old to end it everywhere has it refused (INCOMPATIBLE). */
GRADRING_API gradring_code gradring_abandon(gradring_comm* comm, gradring_result* result);

/* The sentence for the last failure on this thread; empty if there was none. */
GRADRING_API const char* gradring_last_error(void);
GRADRING_API const char* gradring_version(void);

#ifdef __cplusplus
}
#endif

#endif
