#include "daemon/control/sessions/sessions.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <sys/random.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "daemon/control/door/doorkeeper.h"
#include "daemon/control/sessions/segment_name.h"

namespace gradring::daemon {
namespace {

constexpr size_t kSecretBytes = 32;

// Session ids share a 64-bit word of epoll with what they stand for (control/events.h).
constexpr uint64_t kSessionIdMask = (uint64_t{1} << 56) - 1;

}  // namespace

bool equal_secrets(const std::string& a, const std::string& b) {
  if (a.size() != b.size()) return false;
  unsigned difference = 0;
  for (size_t i = 0; i < a.size(); ++i) difference |= static_cast<unsigned char>(a[i] ^ b[i]);
  return difference == 0;
}

std::string random_bytes(size_t count) {
  std::string bytes(count, '\0');
  // Up to 256 bytes come whole and at once.
  if (getrandom(bytes.data(), count, 0) != static_cast<ssize_t>(count)) std::abort();
  return bytes;
}

uint64_t random_u64() {
  uint64_t value = 0;
  std::memcpy(&value, random_bytes(sizeof value).data(), sizeof value);
  return value;
}

Status Sessions::place_for(uint32_t uid, bool (*takes_one)(const Session&)) const {
  uint64_t all = 0, own = 0;
  for (const auto& [id, session] : sessions_) {
    if (!takes_one(session)) continue;
    ++all;
    own += session.who.uid == uid ? 1 : 0;
  }
  if (all >= limits_.sessions) {
    return {Code::kResourceExhausted,
            fmt::format("the daemon serves {} trainers already (max-sessions)", all)};
  }
  if (own >= limits_.sessions_per_uid) {
    return {Code::kResourceExhausted,
            fmt::format("uid {} has {} trainers attached already (sessions-per-uid)", uid, own)};
  }
  return {};
}

bool Sessions::near_a_limit(uint32_t uid) const {
  return sessions_.size() >= limits_.sessions ||
         charges_.of(uid).sessions >= limits_.sessions_per_uid;
}

// Who comes back after a restart has a place already, and does not say so before it is let in.
tl::expected<Session*, Status> Sessions::open(const Credentials& who, core::Time now) {
  if (near_a_limit(who.uid)) {
    const Status place =
        place_for(who.uid, [](const Session& s) { return s.away_until == 0 || s.gone; });
    if (!place.ok()) return tl::unexpected(place);
  }
  charges_.add_session(who.uid);
  SessionId id = 0;
  do {
    id = random_u64() & kSessionIdMask;
  } while (id == 0 || sessions_.count(id) > 0);
  Session& session = sessions_[id];
  session.id = id;
  session.secret = random_bytes(kSecretBytes);
  session.who = who;
  session.since = now;
  return &session;
}

Status Sessions::room_for_a_newcomer(const Session& session) const {
  if (!near_a_limit(session.who.uid)) return {};
  return place_for(session.who.uid, [](const Session& s) { return s.welcomed; });
}

Session& Sessions::restore(SessionId id, const Credentials& who, core::Time now) {
  charges_.add_session(who.uid);
  Session& session = sessions_[id];
  session.id = id;
  session.who = who;
  session.since = now;
  return session;
}

void Sessions::save(const Session& session) {
  if (log_ != nullptr) log_->save(session);
}

void Sessions::erase(SessionId id) {
  const auto it = sessions_.find(id);
  if (it == sessions_.end()) return;
  if (log_ != nullptr && log_->on()) {
    log_->over(id);
    for (const auto& [segment, memory] : it->second.segments) {
      store_->forget(to_string(SegmentName{id, segment}));
    }
  }
  const uint32_t uid = it->second.who.uid;
  unbind_route(it->second);
  sessions_.erase(it);
  charges_.remove_session(uid);
}

Session* Sessions::find(SessionId id) {
  const auto it = sessions_.find(id);
  return it == sessions_.end() ? nullptr : &it->second;
}

Session* Sessions::find_by_route(const std::string& routing_id) {
  const auto it = by_route_.find(routing_id);
  return it == by_route_.end() ? nullptr : find(it->second);
}

void Sessions::bind_route(Session& session, const std::string& routing_id) {
  unbind_route(session);
  if (Session* other = find_by_route(routing_id)) other->routing_id.clear();
  session.routing_id = routing_id;
  by_route_[routing_id] = session.id;
}

void Sessions::unbind_route(Session& session) {
  if (session.routing_id.empty()) return;
  by_route_.erase(session.routing_id);
  session.routing_id.clear();
}

const Session* Sessions::find_by_handle(uint64_t handle) const {
  const auto it = std::find_if(sessions_.begin(), sessions_.end(), [handle](const auto& entry) {
    return handle != 0 && entry.second.handle == handle;
  });
  return it == sessions_.end() ? nullptr : &it->second;
}

Status Sessions::room_for_one_more(const Session& session) const {
  if (session.segments.size() < limits_.segments_per_session) return {};
  return {Code::kResourceExhausted,
          fmt::format("pid {} has {} segments already (segments-per-session); free some, or "
                      "allocate fewer and larger ones",
                      session.who.pid, session.segments.size())};
}

// Where nothing can be mapped any more there is no memory for anybody, and libzmq ends its process.
Status Sessions::room_to_map(uint32_t uid) const {
  constexpr uint64_t kMappings = 2;  // of one segment, with the page behind it
  const uint64_t all = charges_.segments();
  const uint64_t own = charges_.of(uid).segments;
  if ((own + 1) * kMappings > limits_.mappings / 2) {
    return {Code::kResourceExhausted,
            fmt::format("uid {} has {} segments, and more would take over half of what gradringd "
                        "may map (vm.max_map_count, {}); allocate fewer and larger ones",
                        uid, own, limits_.mappings)};
  }
  if ((all + 1) * kMappings > limits_.mappings / 4 * 3) {
    return {Code::kResourceExhausted,
            fmt::format("the trainers of this node have {} segments, and the rest of what "
                        "gradringd may map is for itself: raise vm.max_map_count, which is {}",
                        all, limits_.mappings)};
  }
  return {};
}

tl::expected<std::pair<uint64_t, SharedSegment*>, Status> Sessions::allocate(Session& session,
                                                                             uint64_t bytes) {
  const auto refused = [](Code code, const std::string& why) {
    return tl::unexpected(Status(code, why));
  };
  if (bytes == 0) return refused(Code::kInvalidArgument, "a segment of 0 bytes was asked for");
  if (Status room = room_for_one_more(session); !room.ok()) return tl::unexpected(room);
  if (Status room = room_to_map(session.who.uid); !room.ok()) return tl::unexpected(room);
  const uint64_t in_use = charges_.of(session.who.uid).segment_bytes;
  const uint64_t left =
      limits_.segment_bytes_per_uid - std::min(limits_.segment_bytes_per_uid, in_use);
  if (bytes > left) {
    return refused(
        Code::kResourceExhausted,
        fmt::format("{} bytes of shared memory were asked for, and uid {} may have {} more: "
                    "segment-limit is {} and {} are in use",
                    bytes, session.who.uid, left, limits_.segment_bytes_per_uid, in_use));
  }
  const uint64_t own = charges_.of(session.who.uid).segments;
  if (!is_within_share(session.who.uid, own + 1)) {
    return refused(
        Code::kResourceExhausted,
        fmt::format("uid {} has {} segments, half of the file descriptors that gradringd "
                    "may have (LimitNOFILE of its unit); allocate fewer and larger ones",
                    session.who.uid, own));
  }
  auto segment = transport::Segment::create(bytes);
  if (!segment) return tl::unexpected(segment.error());
  if (!leaves_enough_files(segment->fd())) {
    return refused(Code::kResourceExhausted, no_files_left("another segment"));
  }
  auto shared = charges_.hold(session.who.uid, std::move(*segment));
  const int fd = shared->fd();
  return enter(session, std::move(shared), fd);
}

std::pair<uint64_t, SharedSegment*> Sessions::enter(
    Session& session, std::shared_ptr<const transport::Segment> shared, int to_keep) {
  const uint64_t id = next_segment_++;
  SharedSegment& entered =
      session.segments.emplace(id, SharedSegment{std::move(shared), 0}).first->second;
  if (log_ != nullptr && log_->on()) {
    const Status kept = store_->keep(to_string(SegmentName{session.id, id}), to_keep);
    if (!kept.ok()) spdlog::warn("a segment will not outlive a restart: {}", kept.message());
  }
  return {id, &entered};
}

tl::expected<std::pair<uint64_t, SharedSegment*>, Status> Sessions::borrow(
    Session& session, const wire::BorrowSegment& request) {
  const auto refused = [](Code code, const std::string& why) {
    return tl::unexpected(Status(code, why));
  };
  Session* owner = find(request.session());
  const bool known = owner != nullptr && owner->welcomed && !owner->gone &&
                     owner->who == session.who && equal_secrets(owner->secret, request.secret());
  if (!known) return refused(Code::kPermissionDenied, "that is no other session of this process");
  const auto it = owner->segments.find(request.segment());
  if (it == owner->segments.end()) {
    return refused(Code::kNotFound, fmt::format("segment {} does not belong to the other session",
                                                request.segment()));
  }
  if (Status room = room_for_one_more(session); !room.ok()) return tl::unexpected(room);
  // The store takes in each open file once, whatever its name: another session needs one of its
  // own. A trainer of our own uid may have a lease on it, which we would wait for.
  const std::string path = fmt::format("/proc/self/fd/{}", it->second.shared->fd());
  const Fd again(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
  if (!again && errno == EWOULDBLOCK) {
    return refused(Code::kInvalidArgument,
                   fmt::format("segment {} has a lease (F_SETLEASE), which its process is to give "
                               "up first",
                               request.segment()));
  }
  if (!again) {
    return refused(Code::kResourceExhausted,
                   fmt::format("cannot open a segment once more: {}", std::strerror(errno)));
  }
  const auto entered = enter(session, it->second.shared, again.get());
  entered.second->gpu = it->second.gpu;
  entered.second->gpu_asked = entered.second->gpu_borrowed = it->second.gpu != nullptr;
  entered.second->gpu_of = it->second.gpu_of;
  return entered;
}

void Sessions::adopt(Session& session, uint64_t segment, transport::Segment memory) {
  next_segment_ = std::max(next_segment_, segment + 1);
  struct stat state {};
  if (fstat(memory.fd(), &state) != 0) return;
  const Made made{state.st_ino, state.st_ctim.tv_sec, state.st_ctim.tv_nsec};
  std::weak_ptr<const transport::Segment>& known = adopted_[made];
  std::shared_ptr<const transport::Segment> shared = known.lock();
  if (!shared) known = shared = charges_.hold(session.who.uid, std::move(memory));
  session.segments.try_emplace(segment, SharedSegment{std::move(shared), 0});
}

Status Sessions::free(Session& session, uint64_t segment) {
  const auto it = session.segments.find(segment);
  if (it == session.segments.end()) {
    return {Code::kNotFound, fmt::format("segment {} does not belong to this session", segment)};
  }
  if (it->second.uses > 0) {
    return {Code::kInvalidArgument,
            fmt::format("segment {} is in use by open ops; wait for them first", segment)};
  }
  session.segments.erase(it);
  if (log_ != nullptr && log_->on()) store_->forget(to_string(SegmentName{session.id, segment}));
  return {};
}

void Sessions::for_each(const std::function<void(Session&)>& visit) {
  for (auto& [id, session] : sessions_) visit(session);
}

}  // namespace gradring::daemon
