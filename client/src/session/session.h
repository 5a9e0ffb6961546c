#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <vector>

#include "client/src/clock.h"
#include "client/src/session/connection.h"
#include "client/src/session/handshake.h"
#include "client/src/session/reader.h"
#include "client/src/session/resumption.h"
#include "client/src/session/rings.h"
#include "proto/ring.h"
#include "proto/status.h"
#include "proto/verdict.h"
#include "proto/wire.h"

namespace gradring::client {

// What the thread that waits for an answer does `at` this time, with the lock; it says when next.
struct Meanwhile {
  TimePoint at = kNever;
  std::function<TimePoint()> act = {};
};

// Our session with the daemon: calls that wait for their answer, messages that do not, and what
// comes unasked. Lives under its owner's mutex: every function is called with it held, and those
// that take the lock let go of it while they wait.
//
//   is       from     when
//   open     always   both channels serve
//   away     open     the daemon hung up and may come back: a Resumption looks for it
//   open     away     it did: what has no answer or end yet was sent again
//   leaving  both     it will not come back, and may only have last words to say
//   lost     any      for good
//
// Nobody who waits notices `away`: calls and messages are kept, and deadlines hold.
class Session final : private Reader::Source {
 public:
  // Told with the mutex held, while somebody waits or sends.
  class Events {
   public:
    // False: the message breaks the protocol.
    virtual bool on_completed(const wire::Completed& completed) = 0;
    // Likewise, through the rings.
    virtual bool on_end(const RingEnd& end) = 0;
    // What call_later() asked for, or its refusal.
    virtual void on_answer(const wire::DaemonMessage& answer) = 0;
    // The refusal of a message that nobody waits for the answer of.
    virtual void on_refused(uint64_t request, const wire::Refused& refused) = 0;
    // The error says what is wrong with it: the message breaks the protocol.
    virtual Status on_view_changed(const wire::ViewChanged& changed) = 0;
    // This rank has joined, and others have an op.
    virtual void on_stand_in(const wire::StandIn& asked) = 0;
    // False: it is about another job than the session's.
    virtual bool on_job_closed(const wire::JobClosed& closed) = 0;
    // The session is open on a new connection: what was sent by send() and has not come to an end
    // is to be sent again, in messages of this number.
    virtual std::vector<wire::ClientMessage> unfinished(uint64_t number) = 0;
    // The session is over. PEER_LOST if the daemon closed it and did not come back or take us back
    // (what it said last on the control channel was told before), PROTOCOL if it sent garbage,
    // REFUSED if it put us out. Once.
    virtual void on_lost(Cause cause, const Status& why) = 0;
    // The time of set_alarm has come.
    virtual void on_alarm() = 0;

   protected:
    ~Events() = default;
  };

  Session(Events& events, DaemonPlace place, Connection connection);

  // False if the process has no descriptors left.
  bool valid() const { return reader_.valid(); }
  const DaemonPlace& place() const { return place_; }
  // Whether a daemon that goes away may come back, by the welcome of its present or last life.
  bool resumable() const { return connection_->welcome.restart_grace_ms() > 0; }
  bool lends() const { return connection_->welcome.lends(); }
  bool orders_streams() const { return connection_->welcome.stream_words(); }
  bool sums_on_gpus() const { return connection_->welcome.sums_on_gpus(); }
  bool gpu_direct() const { return connection_->welcome.gpu_direct(); }
  bool takes_gpu_descriptors() const { return connection_->welcome.takes_gpu_descriptors(); }
  bool asks_for_failed() const { return connection_->welcome.asks_for_failed(); }
  uint64_t id() const { return connection_->welcome.session(); }
  const std::string& secret() const { return connection_->welcome.secret(); }
  bool away() const { return resumption_.has_value(); }
  // Another one whenever the daemon has come back: what was sent to the last may be lost.
  uint64_t life() const { return life_; }
  // Whether the daemon is gone for this session, for good.
  bool lost() const { return lost_.has_value(); }
  bool interrupted() const { return interruption_.has_value(); }
  // Whether calls and waits are to end, because it is lost or because of interrupt(), and why.
  bool over() const { return lost() || interrupted(); }
  Status why_over() const { return interruption_ ? *interruption_ : lost_.value_or(Status()); }
  // For somebody who has waited long enough, half a sentence: which command of gradringctl tells
  // what; or that the daemon is away.
  std::string advice(std::string_view command, std::string_view tells) const;

  // Numbers both calls and submissions, so that a refusal names either.
  uint64_t next_number() { return ++last_number_; }
  uint64_t last_number() const { return last_number_; }

  // Sends `message` under a new number and waits for the answer, which is a `body` or the error:
  // the daemon's refusal, DEADLINE_EXCEEDED after `deadline`, why_over().
  tl::expected<wire::DaemonMessage, Status> call(std::unique_lock<std::mutex>& lock,
                                                 wire::ClientMessage message,
                                                 wire::DaemonMessage::BodyCase body,
                                                 TimePoint deadline, Meanwhile meanwhile = {});
  // The same without waiting: Events::on_answer has the answer. Nothing else may have been sent.
  void call_later(wire::ClientMessage message);
  tl::expected<AttachPacket, Status> allocate(std::unique_lock<std::mutex>& lock, uint64_t bytes,
                                              TimePoint deadline);
  // A segment of another session of this process, to be named by this one too. Requires lends().
  tl::expected<AttachPacket, Status> borrow(std::unique_lock<std::mutex>& lock,
                                            const wire::BorrowSegment& segment, TimePoint deadline);

  // Gives the daemon this descriptor, of memory of a GPU: the number by which ShareGpuMemory names
  // it. Requires takes_gpu_descriptors().
  tl::expected<uint64_t, Status> offer(std::unique_lock<std::mutex>& lock,
                                       const UniqueFd& descriptor, TimePoint deadline);

  // Asks for rings, if the daemon has such. Until they come, and where it refuses, put() refuses.
  void ask_for_rings();
  // False: submissions have to be messages.
  bool takes_ring_entries() const { return ring_room() > 0; }
  // For whoever submits: the daemon puts out a trainer that never reads how its ops ended.
  void keep_up() {
    if (put_unread_ < kRingSlots / 4) return;
    put_unread_ = 0;
    reader_.take_ends();
  }
  // How many entries it takes now.
  uint64_t ring_room() const { return rings_ && !away() && !lost() ? rings_->room() : 0; }
  // Requires takes_ring_entries(), without letting go of the lock in between.
  void put(const RingSubmission& submission) {
    rings_->put(submission);
    ++put_unread_;
  }

  // Tells the daemon, if there are rings, and when there are.
  void waited_for_input(uint64_t nanoseconds) {
    input_wait_ns_ += nanoseconds;
    if (rings_) rings_->tell_input_wait(input_wait_ns_);
  }

  // Waits until the daemon takes messages, until the deadline and for kSendTime at most; or until
  // it is away, since messages then have to wait anyway.
  Status wait_for_room(std::unique_lock<std::mutex>& lock, TimePoint deadline = kNever);
  // To be called after wait_for_room, without letting go of the lock in between. While the daemon
  // is away it does nothing: Events::unfinished will tell.
  void send(wire::ClientMessage message);

  template <class Done>
  bool wait_until(std::unique_lock<std::mutex>& lock, TimePoint deadline, Done done) {
    return reader_.wait_until(lock, deadline, done);
  }
  // The same for the end of an op.
  template <class Done>
  bool wait_for_end(std::unique_lock<std::mutex>& lock, TimePoint deadline, Done done) {
    return reader_.wait_until(lock, deadline, done, Reader::Look::kEnds);
  }

  // Acts on all that has arrived, for whoever asks what is known and waits for nothing.
  void look(std::unique_lock<std::mutex>& lock) {
    reader_.wait_until(lock, TimePoint{}, [] { return true; });
  }

  // Ends the calls and waits of all threads with this error, until end_interruption().
  void interrupt(Status why);
  void end_interruption() { interruption_.reset(); }

  // All who wait look again at what they wait for.
  void wake_all() { reader_.wake_all(); }

  // As the daemon sees it, we are gone for good.
  void hang_up();

  // The earlier one wins, if one is set already.
  void set_alarm(TimePoint when) { alarm_ = std::min(alarm_, when); }

  // After a fork: close what keeps the parent's daemon from noticing its death, and forget the
  // rest.
  void close_in_child();
  void abandon_in_child();

 private:
  // Calls under way, one for each waiting thread at most, and one that nobody waits for; the
  // answer, once it is there.
  struct Call {
    wire::ClientMessage message;
    std::optional<wire::DaemonMessage> answer;
    bool later = false;
  };
  struct AttachCall {
    wire::AttachRequest request;
    int fd = -1;                      // that goes with it; the caller's, who waits
    std::optional<Status> sent = {};  // on the present connection, and how that went
    std::optional<AttachPacket> answer = {};
  };

  tl::expected<AttachPacket, Status> ask(std::unique_lock<std::mutex>& lock, AttachCall&& asked,
                                         uint64_t number, TimePoint deadline);
  bool take_in() override;
  bool take_ends() override;
  int control_fd() const override;
  int attach_fd() const override;
  bool attach_full() const override;
  std::shared_ptr<Rings> rings() const override { return rings_; }
  TimePoint alarm() const override;

  bool take_control();
  bool post_next();
  bool post_attach();
  bool take_attach();
  bool take_resumption();
  bool superseded() const;
  void dispatch(wire::DaemonMessage message);
  void dispatch(AttachPacket packet);
  void hung_up();
  void come_back();
  bool asked_for_rings() const { return rings_request_ != 0; }
  void leave_at(TimePoint when, Ending why);
  void lose(Ending why);

  Events& events_;
  const DaemonPlace place_;
  Reader reader_;

  // The newest. While away its control channel is still read: what the daemon said before it went
  // counts.
  std::unique_ptr<Connection> connection_;
  std::shared_ptr<Rings> rings_;
  uint64_t rings_request_ = 0;
  uint64_t put_unread_ = 0;     // since keep_up() has read
  uint64_t input_wait_ns_ = 0;  // ever
  bool attach_open_ = true;
  bool attach_full_ = false;  // calls wait for the daemon to read
  bool control_open_ = true;
  // What the control channel has not taken yet. Whoever sends has waited until this was empty.
  std::deque<wire::ClientMessage> outbox_;
  // Of the messages of unfinished(): a refusal of them is one of the session.
  uint64_t resubmission_ = 0;

  std::optional<Resumption> resumption_;
  uint64_t life_ = 1;
  TimePoint last_words_until_{};
  std::optional<Ending> leaving_;
  TimePoint leave_at_ = kNever;
  bool job_closed_ = false;
  std::optional<Status> lost_;
  std::optional<Status> interruption_;
  TimePoint alarm_ = kNever;

  uint64_t last_number_ = kOpenNumber;
  std::map<uint64_t, Call> control_calls_;
  std::map<uint64_t, AttachCall> attach_calls_;
};

}  // namespace gradring::client
