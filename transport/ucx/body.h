#pragma once

#include <ucp/api/ucp.h>

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "transport/notices.h"
#include "transport/transport.h"
#include "transport/ucx/devices.h"
#include "transport/ucx/pool.h"
#include "transport/ucx/worker.h"

namespace gradring::transport {

// One thread drives it; the methods are in body.cc (the turn of the worker), links.cc
// (connections), send.cc, arrive.cc and ready.cc (memory).
class UcxTransport final : public Transport {
 public:
  // Payloads up to `whole_bytes` leave in one piece, without a request of UCX's; unset: none do.
  // With `awaits_wiring` nothing is sent on, and nothing done to, an endpoint that UCX still
  // connects: see GOTCHAS.md.
  UcxTransport(UcxWorker worker, DeviceChoice choice, std::optional<size_t> whole_bytes,
               bool awaits_wiring);
  ~UcxTransport() override;
  UcxTransport(const UcxTransport&) = delete;
  UcxTransport& operator=(const UcxTransport&) = delete;
  // Registers the message handler: the last step of making one.
  Status listen();

  std::string name() const override { return name_; }
  bool reaches_gpus() const override { return choice_.any_rdma() && worker_.knows_cuda(); }
  Status can_reach_gpus(bool dmabufs) const override;
  std::string devices() const override;
  std::string devices_reason() const override { return choice_.reason; }
  std::string address() const override;
  Status connect(PeerId peer, const std::string& address) override;
  void disconnect(PeerId peer) override;
  Status send(PeerId peer, const FrameBytes& header, std::span<const std::byte> payload,
              uint64_t token) override;
  tl::expected<std::unique_ptr<Registration>, Status> make_ready(
      std::span<std::byte> memory) override;
  tl::expected<std::unique_ptr<Registration>, Status> make_ready_on_gpu(
      std::span<std::byte> memory) override;
  int progress(Events& events) override;
  int event_fd() const override { return worker_.event_fd(); }
  bool arm() override;
  Counters counters() const override { return counters_; }
  size_t preferred_payload_bytes() const override;

 private:
  static constexpr unsigned kMessageId = 0;  // of UCX's active messages; we have one kind

  struct Link;
  struct Send {
    FrameBytes header;
    std::span<const std::byte> payload;
    uint64_t token = 0;
    Link* link = nullptr;
  };
  // One connection of ours, from connect() until UCX has let go of everything on it.
  struct Link {
    UcxTransport* owner = nullptr;
    PeerId peer = 0;
    ucp_ep_h ep = nullptr;
    std::string address;   // raw, of the other end
    bool wired = true;     // or UCX still connects it
    bool awaited = false;  // UCX will say that it is wired, or cannot be
    bool failed = false;
    std::string why;           // it failed
    std::deque<Send> waiting;  // until the connection takes them
    size_t outstanding = 0;    // sends that UCX has in hand
    void* closing = nullptr;   // UCX's request, while the close is under way
  };
  struct Receive {  // by rendezvous, under way
    UcxTransport* owner = nullptr;
    FrameBytes header;
    uint64_t cookie = 0;
    size_t bytes = 0;
  };

  static ucs_status_t on_arrival(void* self, const void* header, size_t header_bytes, void* data,
                                 size_t bytes, const ucp_am_recv_param_t* param);
  static void on_send_ended(void* request, ucs_status_t status, void* send);
  static void on_receive_ended(void* request, ucs_status_t status, size_t bytes, void* receive);
  static void on_wired(void* request, ucs_status_t status, void* link);
  static void on_endpoint_failed(void* link, ucp_ep_h ep, ucs_status_t status);

  // What kind of memory it is, which UCX else asks the driver for each message.
  void tell_memory_of(const std::byte* payload, ucp_request_param_t* param) const;
  ucs_status_t arrive(std::span<const std::byte> header, void* data, size_t bytes, bool rendezvous);
  ucs_status_t receive_later(const FrameBytes& header, void* data, size_t bytes,
                             const Events::Landing& landing);
  // How a send went: over, in UCX's hands, not now, or not on this connection any more.
  enum class Posted { kDone, kUnderWay, kBusy, kBroken };
  Posted post(const Send& send);
  Posted post_whole(const Send& send);
  Posted post_request(const Send& send);
  void post_waiting(Link* link);
  void end_send(const Send& send, bool ok);
  Status unconnected(PeerId peer) const;  // why nothing can be sent
  static std::string broke(ucs_status_t status);
  void end_receive(Receive* receive, bool ok);
  void fail(Link* link, const std::string& why);
  Status open_endpoint(Link* link);
  std::unique_ptr<Link> take_parked(const std::string& address);
  void close_parked();
  void close(std::unique_ptr<Link> link);
  void bury_failed();
  void reap_closing();
  int turn_worker(Events* events);  // null: nobody listens

  const DeviceChoice choice_;
  const std::optional<size_t> whole_bytes_;
  const bool awaits_wiring_;
  const std::string name_;
  std::map<const std::byte*, size_t> on_gpu_;  // memory that is made ready, with its bytes
  Events* events_ =
      nullptr;  // set while the worker is progressed: the only time messages may arrive
  std::unordered_map<PeerId, std::unique_ptr<Link>> links_;
  std::vector<std::unique_ptr<Link>> to_close_;  // by calls made from inside the worker's progress
  std::vector<std::unique_ptr<Link>> closing_;   // closed, and UCX still has something of theirs
  int awake_turns_ = 0;  // for so many more a link that is closing keeps us from sleeping
  std::vector<std::unique_ptr<Link>> parked_;  // ours no more, and not wired yet
  size_t failures_ = 0;                        // links that failed since the last look
  Pool<Send> sends_;  // that UCX has in hand: it reads the header until the send ends
  Pool<Receive> receives_;
  // UCX completes requests wherever it likes, also inside calls that are not progress().
  Notices notices_;
  Counters counters_;
  UcxWorker worker_;  // destroyed first: until then UCX may hold pointers to all of the above
};

}  // namespace gradring::transport
