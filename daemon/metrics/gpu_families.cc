// What the driver tells of the GPUs of this node, and what the daemon makes of them.

#include "daemon/metrics/labels.h"
#include "daemon/metrics/page.h"

namespace gradring::daemon::metrics {

void write_gpus(const Snapshot& snapshot, Page* page) {
  page->gauge("gradring_gpus_given_up",
              "1 while the daemon uses no GPU of its node, since one or NCCL has failed there")
      .add({}, snapshot.gpus_given_up ? 1 : 0);
  Family unusable = page->gauge("gradring_gpu_unusable",
                                "1 while the GPU, or the part of one, must be reset before use");
  for (const GpuSeries& gpu : snapshot.gpu_series) {
    unusable.add({{"gpu", label_of(gpu.gpu)}}, gpu.unusable ? 1 : 0);
  }
  Family errors = page->counter("gradring_gpu_xid_errors_total",
                                "Errors that NVIDIA's driver told of the GPU, by their number");
  for (const GpuSeries& gpu : snapshot.gpu_series) {
    for (const auto& [xid, count] : gpu.errors) {
      errors.add({{"gpu", label_of(gpu.gpu)}, {"xid", xid}}, count);
    }
  }
}

}  // namespace gradring::daemon::metrics
