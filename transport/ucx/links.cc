// Connections: made, lost and let go of.
#include <algorithm>
#include <iterator>
#include <utility>

#include "transport/address.h"
#include "transport/ucx/body.h"
#include "transport/ucx/constants.h"

namespace gradring::transport {

Status UcxTransport::connect(PeerId peer, const std::string& sealed) {
  const std::string who = "peer " + std::to_string(peer);
  const auto old = links_.find(peer);
  if (old != links_.end() && !old->second->failed) {
    return {Code::kInvalidArgument,
            who + " is connected already; disconnect it before connecting anew"};
  }
  const OpenedAddress opened = open_address(name_, sealed);
  if (opened.raw.empty()) {
    return {Code::kInvalidArgument,
            "the data address of " + who + " cannot be used: " + opened.refusal};
  }
  disconnect(peer);  // what is left of a connection that broke

  std::unique_ptr<Link> link = take_parked(opened.raw);
  if (link == nullptr) {
    link = std::make_unique<Link>();
    link->owner = this;
    link->address = opened.raw;
    if (const Status opening = open_endpoint(link.get()); !opening.ok()) {
      return {Code::kUnavailable,
              "UCX cannot connect to " + who + " over " + devices() + ": " + opening.message()};
    }
  }
  link->peer = peer;
  links_[peer] = std::move(link);
  return {};
}

Status UcxTransport::open_endpoint(Link* link) {
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(link->address.data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler.cb = &UcxTransport::on_endpoint_failed;
  params.err_handler.arg = link;
  const ucs_status_t status = ucp_ep_create(worker_.get(), &params, &link->ep);
  if (status != UCS_OK) return {Code::kUnavailable, ucs_status_string(status)};
  if (!awaits_wiring_) return {};
  // A flush ends when both ends have met.
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.cb.send = &UcxTransport::on_wired;
  param.user_data = link;
  link->wired = !UCS_PTR_IS_PTR(ucp_ep_flush_nbx(link->ep, &param));
  link->awaited = !link->wired;
  return {};
}

void UcxTransport::on_wired(void* request, ucs_status_t status, void* link) {
  auto* wired = static_cast<Link*>(link);
  wired->wired = true;
  wired->awaited = false;
  ucp_request_free(request);
  if (status != UCS_OK) wired->owner->fail(wired, broke(status));
}

// A peer that cannot be reached is tried again and again: by one endpoint, which goes on trying.
std::unique_ptr<UcxTransport::Link> UcxTransport::take_parked(const std::string& address) {
  const auto found = std::ranges::find_if(parked_, [&](const std::unique_ptr<Link>& link) {
    return link->address == address && !link->failed;
  });
  if (found == parked_.end()) return nullptr;
  std::unique_ptr<Link> link = std::move(*found);
  parked_.erase(found);
  return link;
}

void UcxTransport::close_parked() {
  const auto first_wired =
      std::stable_partition(parked_.begin(), parked_.end(),
                            [](const std::unique_ptr<Link>& link) { return !link->wired; });
  std::vector<std::unique_ptr<Link>> wired(std::make_move_iterator(first_wired),
                                           std::make_move_iterator(parked_.end()));
  parked_.erase(first_wired, parked_.end());
  for (std::unique_ptr<Link>& link : wired) close(std::move(link));
}

void UcxTransport::disconnect(PeerId peer) {
  notices_.forget_loss(peer);
  const auto it = links_.find(peer);
  if (it == links_.end()) return;
  std::unique_ptr<Link> link = std::move(it->second);
  links_.erase(it);
  if (link->failed) --failures_;
  // UCX does not like an endpoint to vanish under its feet while it calls us.
  if (events_ != nullptr) {
    to_close_.push_back(std::move(link));
  } else {
    close(std::move(link));
  }
}

// UCX's statuses differ between requests and handler for one and the same death: for people, not
// for code.
std::string UcxTransport::broke(ucs_status_t status) {
  return std::string("its connection broke (UCX: ") + ucs_status_string(status) + ")";
}

void UcxTransport::on_endpoint_failed(void* link, ucp_ep_h /*ep*/, ucs_status_t status) {
  auto* failed = static_cast<Link*>(link);
  failed->owner->fail(failed, broke(status));
}

void UcxTransport::fail(Link* link, const std::string& why) {
  if (link->failed) return;
  link->failed = true;
  link->why = why;
  const auto current = links_.find(link->peer);
  // A link that was disconnected may fail while it closes: that is no news.
  if (current != links_.end() && current->second.get() == link) ++failures_;
}

void UcxTransport::close(std::unique_ptr<Link> link) {
  for (const Send& send : link->waiting) end_send(send, false);
  link->waiting.clear();
  if (!link->wired) {
    parked_.push_back(std::move(link));
    return;
  }
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = UCP_EP_CLOSE_FLAG_FORCE;
  const ucs_status_ptr_t request = ucp_ep_close_nbx(link->ep, &param);
  if (UCS_PTR_IS_PTR(request)) link->closing = request;
  closing_.push_back(std::move(link));
  awake_turns_ = kAwakeTurns;
}

void UcxTransport::bury_failed() {
  if (failures_ == 0) return;
  failures_ = 0;
  std::vector<PeerId> dead;
  for (const auto& [peer, link] : links_) {
    if (link->failed) dead.push_back(peer);
  }
  for (const PeerId peer : dead) {
    std::unique_ptr<Link> link = std::move(links_.at(peer));
    links_.erase(peer);
    const std::string why = link->why;
    close(std::move(link));  // first, so that the owner hears of its sends before the loss
    notices_.lost(peer, why);
  }
}

void UcxTransport::reap_closing() {
  for (const auto& link : closing_) {
    if (link->closing != nullptr && ucp_request_check_status(link->closing) != UCS_INPROGRESS) {
      ucp_request_free(link->closing);
      link->closing = nullptr;
    }
  }
  std::erase_if(closing_, [](const std::unique_ptr<Link>& link) {
    return link->closing == nullptr && link->outstanding == 0 && !link->awaited;
  });
}

}  // namespace gradring::transport
