"""What Horovod's scripts ask about its build. Everything between processes is the daemon's work here, so a script
needs none of these libraries."""


def mpi_threads_supported() -> bool:
    """Whether MPI may be used beside gradring, by any thread: gradring never calls it."""
    return True


def mpi_enabled() -> bool:
    return False


def mpi_built() -> bool:
    return False


def gloo_enabled() -> bool:
    return False


def gloo_built() -> bool:
    return False


def nccl_built() -> int:
    return 0


def ddl_built() -> bool:
    return False


def ccl_built() -> bool:
    return False


def cuda_built() -> bool:
    return False


def rocm_built() -> bool:
    return False
