#include "transport/ucx/worker.h"

#include <utility>

namespace gradring::transport {
namespace {

Status refusal(const char* what, ucs_status_t status) {
  return {Code::kUnavailable, std::string("UCX cannot ") + what + ": " + ucs_status_string(status)};
}

}  // namespace

tl::expected<UcxWorker, Status> UcxWorker::open(const std::vector<UcxSetting>& settings) {
  UcxWorker worker;
  ucp_config_t* config = nullptr;
  ucs_status_t status = ucp_config_read(nullptr, nullptr, &config);
  if (status != UCS_OK) return tl::unexpected(refusal("read its configuration", status));
  for (const UcxSetting& setting : settings) {
    status = ucp_config_modify(config, setting.name.c_str(), setting.value.c_str());
    if (status != UCS_OK) {
      ucp_config_release(config);
      return tl::unexpected(
          refusal(("take " + setting.name + "=" + setting.value).c_str(), status));
    }
  }
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_NAME;
  params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  params.name = "gradring";
  status = ucp_init(&params, config, &worker.context_);
  ucp_config_release(config);
  if (status != UCS_OK) return tl::unexpected(refusal("start on these devices", status));

  ucp_worker_params_t worker_params{};
  worker_params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  worker_params.thread_mode = UCS_THREAD_MODE_SINGLE;
  status = ucp_worker_create(worker.context_, &worker_params, &worker.worker_);
  if (status != UCS_OK) return tl::unexpected(refusal("open these devices", status));

  status = ucp_worker_get_efd(worker.worker_, &worker.event_fd_);
  if (status != UCS_OK) return tl::unexpected(refusal("be waited for (event descriptor)", status));

  ucp_address_t* address = nullptr;
  size_t length = 0;
  status = ucp_worker_get_address(worker.worker_, &address, &length);
  if (status != UCS_OK) return tl::unexpected(refusal("tell its address", status));
  worker.address_.assign(reinterpret_cast<const char*>(address), length);
  ucp_worker_release_address(worker.worker_, address);
  return worker;
}

bool UcxWorker::knows_cuda() const {
  ucp_context_attr_t attributes{};
  attributes.field_mask = UCP_ATTR_FIELD_MEMORY_TYPES;
  if (ucp_context_query(context_, &attributes) != UCS_OK) return false;
  return (attributes.memory_types & (uint64_t{1} << UCS_MEMORY_TYPE_CUDA)) != 0;
}

UcxWorker::UcxWorker(UcxWorker&& other) noexcept
    : context_(std::exchange(other.context_, nullptr)),
      worker_(std::exchange(other.worker_, nullptr)),
      event_fd_(std::exchange(other.event_fd_, -1)),
      address_(std::move(other.address_)) {}

UcxWorker::~UcxWorker() {
  if (worker_ != nullptr) ucp_worker_destroy(worker_);
  if (context_ != nullptr) ucp_cleanup(context_);
}

}  // namespace gradring::transport
