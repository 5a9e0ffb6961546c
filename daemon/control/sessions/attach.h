#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "daemon/control/events.h"
#include "daemon/control/sessions/rings.h"
#include "daemon/control/sessions/sessions.h"
#include "daemon/fd_store.h"
#include "proto/status.h"

namespace gradring::daemon {

// What the attach socket tells. That a session is over, and why, in words about its process, may be
// told more than once; the session itself may be erased inside.
class SessionEvents {
 public:
  virtual ~SessionEvents() = default;
  // Its hello was good.
  virtual void session_opened(const Session& session) = 0;
  virtual void session_ended(SessionId session, const std::string& evidence) = 0;
  // It is there, and has said what befell it: its rank is lost to its job.
  virtual void trainer_failed(Session* session, const std::string& evidence) = 0;
};

// The door for trainers: AF_UNIX, one message a packet (proto/client.proto). Opens sessions, hands
// over memfds, and notices first when a trainer dies. Control thread only.
class AttachServer {
 public:
  struct Identity {
    std::string node;
    uint64_t boot_id = 0;
    core::Time restart_grace = 0;  // 0: sessions end with the daemon
    bool sums_on_gpus = false;
    bool gpu_direct = false;
  };
  AttachServer(std::string path, const Identity& identity, Sessions* sessions, Rings* rings,
               Epoll* epoll, SessionEvents* events)
      : path_(std::move(path)),
        identity_(identity),
        sessions_(sessions),
        rings_(rings),
        epoll_(epoll),
        events_(events) {}

  // The caller holds the lock of the directory.
  Status open(FdStore* store);
  // Whether sessions will outlive this daemon, known once its records are open.
  void set_restart_grace(core::Time grace) { identity_.restart_grace = grace; }
  const std::string& path() const { return path_; }

  // ---- readiness, as epoll tells it ----
  void on_listener(core::Time now);
  void on_socket(SessionId id, core::Time now);
  void on_pidfd(SessionId id, core::Time now);

  // Closes connections that say nothing, and ends sessions whose connection has closed.
  void tick(core::Time now);
  // When tick() must be called at the latest.
  core::Time next_deadline() const;

 private:
  void welcome(Session& session, const wire::AttachHello& hello);
  Session* resume(Session& fresh, const wire::Resume& resume);
  void allocate(Session& session, const wire::AllocateSegment& request);
  void borrow(Session& session, const wire::BorrowSegment& request);
  void offer(Session& session, const wire::OfferGpuMemory& offer, std::vector<Fd> with);
  void make_rings(Session& session, const wire::MakeRings& request);
  bool send(Session& session, const wire::AttachReply& reply, std::span<const int> fds = {});
  void refuse(Session& session, uint64_t request, const Status& why);
  void on_end_of_file(Session& session, core::Time now);
  std::string evidence_of(SessionId id);

  const std::string path_;
  Identity identity_;
  Sessions* const sessions_;
  Rings* const rings_;
  Epoll* const epoll_;
  SessionEvents* const events_;
  Fd listener_;
  core::Time accept_again_ = 0;  // 0: accepting; else out of descriptors until then

  struct Waiting {
    SessionId session = 0;
    core::Time until = 0;
  };
  std::deque<Waiting> hung_up_;  // closed or dead, and more may be known soon, oldest first
};

// Who may speak on the trainers' sockets: mode and group of the file.
Status set_access(const std::string& path, uint32_t mode, const std::string& group);

}  // namespace gradring::daemon
