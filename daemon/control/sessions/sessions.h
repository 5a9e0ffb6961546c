#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tl/expected.hpp>
#include <tuple>
#include <unordered_map>

#include "daemon/control/sessions/charges.h"
#include "daemon/control/sessions/session.h"
#include "daemon/fd_store.h"
#include "daemon/records/node_log.h"
#include "proto/status.h"

namespace gradring::daemon {

struct SessionLimits {
  uint64_t sessions = 0;
  uint64_t sessions_per_uid = 0;
  uint64_t segments_per_session = 0;
  uint64_t segment_bytes_per_uid = 0;
  uint64_t mappings = 65530;  // that the kernel lets this process have: its default
};

// All sessions and what they are charged for. Control thread only.
class Sessions {
 public:
  explicit Sessions(const SessionLimits& limits) : limits_(limits) {}

  // A refusal is for the trainer to read.
  tl::expected<Session*, Status> open(const Credentials& who, core::Time now);
  // Asked when it turns out to be nobody who comes back: those who may have their places kept.
  Status room_for_a_newcomer(const Session& session) const;
  // One from before a restart, under its old number; no limit refuses it.
  Session& restore(SessionId id, const Credentials& who, core::Time now);
  // Who outlives the daemon, and in which store their segments wait; before anything else.
  void remember_in(NodeLog* log, FdStore* store) {
    log_ = log;
    store_ = store;
  }
  // Forgets a session that has no open tickets; its memory is unmapped.
  void erase(SessionId id);

  Session* find(SessionId id);
  Session* find_by_route(const std::string& routing_id);
  // Replaces the session's control connection.
  void bind_route(Session& session, const std::string& routing_id);
  void unbind_route(Session& session);
  // Who was given this job handle: handles are unique on this node.
  const Session* find_by_handle(uint64_t handle) const;

  tl::expected<std::pair<uint64_t, SharedSegment*>, Status> allocate(Session& session,
                                                                     uint64_t bytes);
  // Lets a session name a segment of another one too, which must be of the same process.
  tl::expected<std::pair<uint64_t, SharedSegment*>, Status> borrow(
      Session& session, const wire::BorrowSegment& request);
  // One from before a restart, under its old number. It is there, so no limit refuses it; it is
  // charged all the same.
  void adopt(Session& session, uint64_t segment, transport::Segment memory);
  Status free(Session& session, uint64_t segment);
  // What of it must outlive the daemon has changed.
  void save(const Session& session);

  Charges& charges() { return charges_; }
  void set_limits(const SessionLimits& limits) { limits_ = limits; }
  const SessionLimits& limits() const { return limits_; }

  size_t count() const { return sessions_.size(); }
  uint64_t most_sessions_of_a_uid() const { return charges_.most().sessions; }
  uint64_t most_segment_bytes_of_a_uid() const { return charges_.most().segment_bytes; }
  void for_each(const std::function<void(Session&)>& visit);

 private:
  bool near_a_limit(uint32_t uid) const;
  Status place_for(uint32_t uid, bool (*takes_one)(const Session&)) const;
  Status room_for_one_more(const Session& session) const;
  Status room_to_map(uint32_t uid) const;
  std::pair<uint64_t, SharedSegment*> enter(Session& session,
                                            std::shared_ptr<const transport::Segment> shared,
                                            int to_keep);

  SessionLimits limits_;
  Charges charges_;  // outlives all that is charged
  std::map<SessionId, Session> sessions_;
  std::unordered_map<std::string, SessionId> by_route_;
  // From before a restart, by inode and the time it was made: what several sessions share now they
  // shared before.
  using Made = std::tuple<uint64_t, int64_t, int64_t>;
  std::map<Made, std::weak_ptr<const transport::Segment>> adopted_;
  uint64_t next_segment_ = 1;
  NodeLog* log_ = nullptr;
  FdStore* store_ = nullptr;
};

// Takes the same time wherever the first difference is.
bool equal_secrets(const std::string& a, const std::string& b);

// From the kernel.
uint64_t random_u64();
std::string random_bytes(size_t count);

}  // namespace gradring::daemon
