#pragma once

#include <memory>

#include "transport/cuda/gpu.h"

namespace gradring::transport::cuda {

// From now on `gpu` reaches `peer`, if the machine has a way for its kernels to the other's memory,
// and it has brought some data there and back. Where an IOMMU or PCIe's ACS stands between the two
// a driver may say that there is one, every call succeeds, and what is read or written is lost;
// that is logged. Both have started, and one may be at work.
bool reach(const std::shared_ptr<Gpu>& gpu, const std::shared_ptr<Gpu>& peer);

}  // namespace gradring::transport::cuda
