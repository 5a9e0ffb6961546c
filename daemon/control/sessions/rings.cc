// The fast way of submissions: rings in memory that a trainer and the data thread share.

#include "daemon/control/sessions/rings.h"

#include <sys/eventfd.h>
#include <sys/socket.h>

#include <array>
#include <memory>
#include <utility>

#include "daemon/control/door/doorkeeper.h"

namespace gradring::daemon {
namespace {

LendSegment lent(const Session& session, uint64_t segment) {
  const SharedSegment& held = session.segments.at(segment);
  return {session.id, segment, held.memory(), held.gpu};
}

// What the data thread rings, and what the trainer hears. Not an eventfd: whoever has its
// descriptor can fill it and have all who write to it wait. Of a socket each end is its own. It
// keeps a few datagrams, and its end is not heard, so a trainer that has left does not take it for
// a call.
bool make_bell(Fd* ours, Fd* theirs) {
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()) != 0) {
    return false;
  }
  ours->reset(ends[0]);
  theirs->reset(ends[1]);
  return shutdown(ours->get(), SHUT_RD) == 0;  // nothing can be sent to it, descriptors neither
}

}  // namespace

tl::expected<Rings::Opened, Status> Rings::open(Session& session) {
  const auto refused = [](Code code, const std::string& why) {
    return tl::unexpected(Status(code, why));
  };
  if (session.part != JobPart::kJoined) {
    return refused(Code::kInvalidArgument, "a ring belongs to a job: join one first");
  }
  if (session.ring) return refused(Code::kInvalidArgument, "this session has a ring already");
  auto memory = transport::Segment::create(sizeof(RingPair));
  if (!memory) return tl::unexpected(memory.error());
  Fd submitted(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  Fd ended, theirs;
  if (!submitted || !make_bell(&ended, &theirs) || !leaves_enough_files(theirs.get())) {
    return refused(Code::kResourceExhausted, no_files_left("another ring"));
  }
  std::shared_ptr<const SharedRing> shared = std::make_shared<const SharedRing>(
      SharedRing{std::move(*memory), std::move(submitted), std::move(ended)});
  OpenRing open{session.id, session.job, session.rank, shared, {}};
  for (const auto& [segment, held] : session.segments) {
    open.segments.push_back(lent(session, segment));
  }
  session.ring = true;
  commands_->post(std::move(open));
  return Opened{std::move(shared), std::move(theirs)};
}

void Rings::lend(const Session& session, uint64_t segment) {
  if (!session.ring) return;
  commands_->post(lent(session, segment));
}

bool Rings::take_back(const Session& session, uint64_t segment, uint64_t request) {
  if (!session.ring || session.segments.count(segment) == 0) return false;
  commands_->post(TakeBackSegment{session.id, segment, request});
  return true;
}

void Rings::close(const Session& session, const Failure& why) {
  if (session.ring) commands_->post(CloseRing{session.id, why});
}

}  // namespace gradring::daemon
