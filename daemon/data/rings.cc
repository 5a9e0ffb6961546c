// Submissions that come through shared memory.

#include <algorithm>
#include <utility>

#include "daemon/data/data_thread.h"

namespace gradring::daemon {
namespace {

// Of good ops that a trainer has submitted and not asked for: of so many it asks for none.
constexpr size_t kEndsMost = 65536;

// Of one trainer in one turn, so that none keeps the thread from everything else.
constexpr int kSubmissionsPerTurn = 64;

}  // namespace

void DataThread::apply(OpenRing& open) {
  const SessionId session = open.session;
  rings_.insert_or_assign(session, std::make_unique<SessionRing>(std::move(open)));
}

// Nothing of it stays with the command: whoever is asked to let go of it later has it all.
void DataThread::apply(LendSegment& lend) {
  const LendSegment taken = std::move(lend);
  if (SessionRing* ring = ring_of(taken.session)) ring->lend(taken);
}

void DataThread::apply(const TakeBackSegment& back) {
  SessionRing* const ring = ring_of(back.session);
  events_->post(SegmentTakenBack{back.session, back.segment, back.request,
                                 ring == nullptr || ring->take_back(back.segment)});
}

void DataThread::apply(const LetGoOfGpuMemory& let_go) {
  for (auto& [session, ring] : rings_) ring->let_go_of(let_go.memory);
  events_->post(GpuMemoryLetGo{let_go.session, let_go.request, let_go.gpu});
}

// What a trainer submitted before it left or died counts; one that goes on submitting has to stop
// somewhere.
void DataThread::apply(const CloseRing& close) {
  SessionRing* const ring = ring_of(close.session);
  if (ring == nullptr) return;
  for (uint64_t turn = 0; turn < kRingSlots && take_submissions(close.session, *ring) > 0; ++turn) {
  }
  pass_gate();
  end_held(close.why, [&close](const Submit& submit) {
    return submit.ring != nullptr && submit.session == close.session;
  });
  ring->close();
}

SessionRing* DataThread::ring_of(SessionId session) {
  const auto it = rings_.find(session);
  return it == rings_.end() ? nullptr : it->second.get();
}

int DataThread::serve_rings() {
  int work = 0;
  for (auto& [session, ring] : rings_) {
    // What is refused is told by the control thread, which may be behind: then they wait here.
    if (ring->any() && !events_->full()) work += take_submissions(session, *ring);
    work += ring->flush();
  }
  std::erase_if(rings_, [this](const auto& entry) {
    if (!entry.second->may_be_freed()) return false;
    events_->post(RingClosed{entry.first});
    return true;
  });
  return work;
}

int DataThread::take_submissions(SessionId session, SessionRing& ring) {
  int taken = 0;
  for (; taken < kSubmissionsPerTurn && ring.any(); ++taken) {
    if (ring.broken()) {
      ring.close();
      events_->post(RingBroken{session, "wrote nonsense into its submission ring"});
      return taken + 1;
    }
    if (ring.ends_waiting() > kEndsMost) {
      ring.close();
      events_->post(RingBroken{session, "does not read the ends of its ops"});
      return taken + 1;
    }
    const uint64_t ticket = ring.take().ticket();
    auto submit = ring.check();
    if (!submit && ring.postpone()) return taken + 1;
    ++ring_submissions_;
    if (!submit) {
      events_->post(Completed{session, ticket, core::refused(ring.rank(), submit.error()), true});
      continue;
    }
    apply(*submit);
  }
  return taken;
}

// Before the thread goes to sleep. False: somebody has submitted.
bool DataThread::rest_rings() {
  for (const auto& [session, ring] : rings_) {
    if (!ring->rest()) return false;
    fds_.push_back({ring->bell(), POLLIN, 0});
  }
  return true;
}

void DataThread::rise_rings(std::span<const pollfd> bells) {
  size_t i = 0;
  for (const auto& [session, ring] : rings_) {
    ring->rise(i < bells.size() && (bells[i].revents & POLLIN) != 0);
    ++i;
  }
}

}  // namespace gradring::daemon
