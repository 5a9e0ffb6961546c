#pragma once

#include <ucp/api/ucp.h>

#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "proto/status.h"
#include "transport/ucx/settings.h"

namespace gradring::transport {

// UCX's context and its one worker, from open to close.
class UcxWorker {
 public:
  static tl::expected<UcxWorker, Status> open(const std::vector<UcxSetting>& settings);
  UcxWorker(UcxWorker&& other) noexcept;
  UcxWorker& operator=(UcxWorker&&) = delete;
  ~UcxWorker();

  ucp_worker_h get() const { return worker_; }
  ucp_context_h context() const { return context_; }
  int event_fd() const { return event_fd_; }
  // UCX was built with CUDA, and found a GPU.
  bool knows_cuda() const;
  const std::string& address() const { return address_; }  // raw bytes of ucp_worker_get_address

 private:
  UcxWorker() = default;

  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  int event_fd_ = -1;  // the worker's
  std::string address_;
};

}  // namespace gradring::transport
