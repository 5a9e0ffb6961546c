#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>

#include "daemon/check_operation.h"
#include "daemon/data/messages.h"
#include "proto/ring.h"

namespace gradring::daemon {

// The data thread's end of the rings that a trainer shares with us (proto/ring.h), for as long as
// its session is in the job: what comes in is checked here, as the control thread checks messages,
// and good ends go out. Data thread only.
class SessionRing final : private TrainerMemory {
 public:
  explicit SessionRing(OpenRing open);

  const JobId& job() const { return open_.job; }
  uint32_t rank() const { return open_.rank; }

  // ---- segments that the trainer may name ----
  void lend(const LendSegment& lend);
  // False: an open op uses it.
  bool take_back(uint64_t segment);
  // Likewise what lies on a GPU; an open op keeps it.
  void let_go_of(const SharedGpuMemory* gpu);

  // ---- submissions ----
  bool any() const { return !closed_ && (postponed_ || submissions_.any()); }
  // The trainer wrote what no library of ours writes: nothing more is taken from it.
  bool broken() const { return submissions_.broken(); }
  // The next one, or the one that was postponed; not yet checked. Requires any() and not broken().
  const wire::Operation& take();
  // What take() gave, with its memory; or a sentence for the trainer.
  tl::expected<Submit, std::string> check();
  // What was refused may name memory whose LendSegment is still to be taken: then it comes once
  // more. False: it has.
  bool postpone() { return postponed_ = !again_; }

  // ---- ends ----
  // Of a checked submission, once; its segments are the trainer's again. False: the trainer has to
  // be told in a message.
  bool end(uint64_t ticket, const OpenTicket& segments, const core::Outcome& outcome);
  // Sends what found no room. Returns how many went.
  int flush();
  size_t ends_waiting() const { return waiting_.size(); }

  // What its trainer says that it has waited for input, ever.
  core::Time input_wait() const;

  // ---- sleep ----
  int bell() const { return open_.shared->submitted.get(); }
  // False: there is work.
  bool rest() { return closed_ || (!postponed_ && submissions_.rest()); }
  void rise(bool rung);

  // The trainer has left or is gone: no more submissions.
  void close() { closed_ = true; }
  bool closed() const { return closed_; }
  bool may_be_freed() const { return closed_ && open_ops_ == 0; }

 private:
  struct Lent {
    std::span<std::byte> memory;
    std::shared_ptr<const SharedGpuMemory> gpu;
    uint64_t uses = 0;
  };
  std::optional<std::span<std::byte>> find(uint64_t segment) const override;
  const transport::OpenGpuMemory* gpu(uint64_t segment) const override;
  void use(const OpenTicket& segments, int64_t change);

  OpenRing open_;
  RingReader<RingSubmission> submissions_;
  RingWriter<RingEnd> ends_;
  std::map<uint64_t, Lent> segments_;
  std::deque<RingEnd> waiting_;  // ends that found no room
  wire::Operation taken_;        // kept, for its memory
  bool postponed_ = false;       // take() gives it again,
  bool again_ = false;           // and has
  uint64_t open_ops_ = 0;
  bool closed_ = false;
};

}  // namespace gradring::daemon
