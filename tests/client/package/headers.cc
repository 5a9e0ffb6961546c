// What users compile of the headers' templates, with the warnings that they have turned on.
#include <gradring/adasum.hpp>
#include <gradring/gradring.hpp>
#include <gradring/sparse.hpp>

template class gradring::Adasum<float>;
template class gradring::Buffer<int>;
template class gradring::GpuBuffer<double>;
template gradring::SparseRows<float> gradring::sparse_allreduce(const Communicator&,
                                                                const SparseRows<float>&,
                                                                gradring_reduce_op, const char*);
template bool gradring::Request::wait_for(std::chrono::hours, gradring_result*);
