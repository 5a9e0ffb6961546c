#pragma once

#include <gradring/gradring.h>

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <tl/expected.hpp>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "client/src/api/settings.h"
#include "client/src/communicator/awaiting.h"
#include "client/src/communicator/need_order.h"
#include "client/src/communicator/requests.h"
#include "client/src/communicator/seen.h"
#include "client/src/communicator/view.h"
#include "client/src/gpu/gpu_pool.h"
#include "client/src/gpu/gpu_shares.h"
#include "client/src/gpu/stages.h"
#include "client/src/memory/commons.h"
#include "client/src/memory/segments.h"
#include "client/src/session/fork_watch.h"
#include "client/src/session/session.h"
#include "proto/status.h"

namespace gradring::client {

// A trainer's place in its job, behind the C interface. Any thread may call anything at any time;
// all state is under one mutex, which nobody holds while copying or waiting.
class Communicator final : private Session::Events, private GpuPool::User {
 public:
  // Whoever calls is inside until the call returns, so that close() knows when it is alone. The
  // parts of a call that need the lock are so once more.
  class Inside {
   public:
    explicit Inside(Communicator& owner) : owner_(owner), lock_(owner.mutex_) { ++owner_.inside_; }
    ~Inside();
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;
    std::unique_lock<std::mutex>& lock() { return lock_; }

   private:
    Communicator& owner_;
    std::unique_lock<std::mutex> lock_;
  };

  // Attaches and joins (gradring_open).
  static tl::expected<std::unique_ptr<Communicator>, Status> open(
      Settings settings, std::shared_ptr<Commons> commons = std::make_shared<Commons>());
  // The same without waiting for the others: what is submitted goes when they are there.
  static tl::expected<std::shared_ptr<Communicator>, Status> begin(
      Settings settings, std::shared_ptr<Commons> commons);
  // A job of these ranks of this one, and our place in it (gradring_group).
  tl::expected<std::unique_ptr<Communicator>, Status> group(const std::vector<uint32_t>& ranks,
                                                            int64_t timeout_ms);
  ~Communicator() = default;

  // Leaves the job, waiting until then at most, once the calls of other threads have returned,
  // which it makes them do. Only the destructor may follow.
  void close(TimePoint deadline);

  // Leaves the job, waiting kLeaveTime at most, and fails what is under way; memory stays. With
  // `failed`, what has befallen it, this rank is lost to the others as if its process had died.
  Status leave(const std::string& failed = {});

  // In a forked child nothing but these two may be used: abandon() gives back what can be given
  // back there, and then the object has to be left where it is (fork_watch.h).
  bool forked() const { return fork_watch_.forked(); }
  void abandon();

  // Constant once opened.
  int32_t rank() const { return static_cast<int32_t>(settings_.rank); }
  int32_t local_rank() const { return settings_.local_rank; }
  const char* node() const { return session_.place().node.c_str(); }
  // Of the newest view.
  int32_t size() const { return size_.load(std::memory_order_relaxed); }
  int32_t local_size() const { return local_size_.load(std::memory_order_relaxed); }
  uint64_t epoch() const { return epoch_.load(std::memory_order_relaxed); }

  // Why it is over, if it is (gradring_failure).
  std::optional<Outcome> failure();

  // The newest view.
  View view();
  // The ranks of a view of late.
  tl::expected<std::vector<uint32_t>, Status> ranks_of(uint64_t epoch);

  tl::expected<void*, Status> alloc(uint64_t bytes);
  Status free(void* memory);
  Status register_memory(void* memory, uint64_t bytes);
  Status unregister_memory(void* memory);

  tl::expected<uint64_t, Status> submit(const gradring_op& op);
  // All of them, or none where one is refused; writes a ticket for each.
  Status submit(std::span<const gradring_op> ops, uint64_t* tickets);
  // An empty optional: it is still under way.
  tl::expected<std::optional<Outcome>, Status> wait(uint64_t request, TimePoint deadline);
  // This stream of a GPU waits for it, and for its result. Where the driver cannot do that we wait
  // in its place, and false is that it is still under way.
  tl::expected<bool, Status> wait_on_stream(uint64_t request, void* stream, TimePoint deadline);
  // Submits a join point and waits for it; the view is the one in which all ranks left it.
  struct Joined {
    Outcome outcome;
    View view;
  };
  tl::expected<Joined, Status> join_point();
  // This rank has no more data, or gives up what the others have begun: returns when all do
  // (gradring_join, gradring_abandon).
  enum class Others : uint8_t { kStandIn, kEnd };  // what becomes of their ops
  struct AllJoined {
    Outcome outcome;
    uint32_t last_rank = 0;
  };
  tl::expected<AllJoined, Status> join_all(Others others);
  // Of named ops; the most urgent one first.
  std::vector<NeedOrder::Learned> learned_priorities();
  void waited_for_input(uint64_t nanoseconds);
  // What it waits for (gradring_get_progress).
  tl::expected<Progress, Status> progress(uint64_t request);
  // The refusal for a wait that ended first.
  Status still_under_way(uint64_t request, int64_t timeout_ms);

 private:
  Communicator(Settings settings, std::shared_ptr<Commons> commons, DaemonPlace place,
               Connection connection);
  tl::expected<Settings, Status> settings_of_group(const std::vector<uint32_t>& ranks);
  Status form(Communicator* group);

  Status join();
  static tl::expected<std::unique_ptr<Communicator>, Status> attach(
      Settings settings, std::shared_ptr<Commons> commons);
  wire::ClientMessage join_message() const;
  Status join(std::unique_lock<std::mutex>& lock);
  Status leave(TimePoint deadline, const std::string& failed);
  Status say_that_we_leave(std::unique_lock<std::mutex>& lock, TimePoint deadline,
                           const std::string& failed = {});
  void begin_join();
  Status place_in(const wire::View& view);
  void adopt(View view);

  // Why nothing new can be had: the job has failed, the session is over; OK if neither.
  Status refusal() const;
  // Why this op cannot be submitted now, on account of join points.
  Status out_of_turn(const Request& request) const;

  tl::expected<Segment, Status> make_segment(std::unique_lock<std::mutex>& lock, uint64_t bytes);
  // In the maps, ours and the family's.
  Segment& enter(Segment segment);
  tl::expected<std::byte*, Status> allocate(std::unique_lock<std::mutex>& lock, uint64_t bytes);
  Status borrow(std::unique_lock<std::mutex>& lock, const Common& common);
  Status borrow_for(std::unique_lock<std::mutex>& lock, const gradring_op& op);
  void give_back_withdrawn(std::unique_lock<std::mutex>& lock);
  // Lets go of something without the lock: the driver may wait for the GPU's streams then, and
  // these for ops of whose end somebody has to hear.
  template <typename Thing>
  static void drop(std::unique_lock<std::mutex>& lock, Thing thing) {
    lock.unlock();
    { const Thing dropped = std::move(thing); }
    lock.lock();
  }
  Status follow_gpu(std::unique_lock<std::mutex>& lock, const void* memory, uint64_t bytes,
                    Segment* segment);
  // `pages`: what is there, if it is ours.
  bool let_daemon_open(std::unique_lock<std::mutex>& lock, const Segment& segment,
                       const void* memory, uint64_t bytes, const GpuPages* pages = nullptr);
  tl::expected<wire::ShareGpuMemory, Status> share_of(std::unique_lock<std::mutex>& lock,
                                                      const Segment& segment, const void* memory,
                                                      uint64_t bytes, const GpuPages* pages);
  Status free_segment(std::unique_lock<std::mutex>& lock, uint64_t id);
  Status free_segment(std::unique_lock<std::mutex>& lock, uint64_t id, TimePoint deadline);
  Status give_back(std::unique_lock<std::mutex>& lock, Segment& segment);

  // pairs.cc: what goes from one rank to one other goes through a communicator of these two, which
  // comes about when the first of them needs it.
  struct FarRequest {
    std::shared_ptr<Communicator> body;
    uint64_t ticket = 0;  // there
    uint32_t peer = 0;
    bool sends = false;
  };
  tl::expected<uint64_t, Status> submit_to_peer(const gradring_op& op);
  tl::expected<gradring_op, Status> op_of_pair(const gradring_op& op, std::string* name) const;
  tl::expected<std::shared_ptr<Communicator>, Status> pair_with(
      std::unique_lock<std::mutex>& lock, uint32_t peer,
      std::vector<std::shared_ptr<Communicator>>* old);
  Settings settings_of_pair(uint32_t peer) const;
  std::optional<FarRequest> far_request(uint64_t ticket);
  tl::expected<std::optional<Outcome>, Status> wait_far(uint64_t ticket, const FarRequest& far,
                                                        TimePoint deadline);
  static std::string what_it_is(const FarRequest& far);
  void tell_in_our_numbers(const FarRequest& far, Outcome* told) const;
  uint32_t in_our_numbers(const FarRequest& far, uint32_t rank) const;
  tl::expected<Progress, Status> far_progress(const FarRequest& far);
  std::vector<std::shared_ptr<Communicator>> all_pairs() const;
  void interrupt(const Status& why);
  void go_on();
  bool over();
  std::optional<Outcome> job_failure();

  // join.cc
  struct Scratch {
    std::byte* memory = nullptr;
    uint64_t bytes = 0;
  };
  Status stand_in_until(std::unique_lock<std::mutex>& lock, uint64_t join, Others others);
  Status stand_in(std::unique_lock<std::mutex>& lock, const wire::StandIn& asked, Others others);
  Status send_scratch(std::unique_lock<std::mutex>& lock, Request request, std::byte* memory,
                      uint64_t* ticket);
  tl::expected<std::byte*, Status> scratch(std::unique_lock<std::mutex>& lock, uint64_t bytes);
  void free_scratch(std::unique_lock<std::mutex>& lock);
  bool take_key(const OpKey& key);
  void on_stand_in(const wire::StandIn& asked) override;

  // The parts of a submission: its checks and loans, and its message.
  tl::expected<Request, Status> prepare(std::unique_lock<std::mutex>& lock, const gradring_op& op);
  // lend.cc; `overlap`: the buffers do, which they may in place.
  Status lend(std::unique_lock<std::mutex>& lock, const gradring_op& op, bool overlap,
              Request* request);
  bool needs_stage(const void* memory);
  tl::expected<Place, Status> place(std::unique_lock<std::mutex>& lock, const void* memory,
                                    uint64_t bytes, std::string_view what, bool there);
  tl::expected<Place, Status> gpu_place(std::unique_lock<std::mutex>& lock, const void* memory,
                                        uint64_t bytes, bool there);
  tl::expected<Segment*, Status> stage(std::unique_lock<std::mutex>& lock, const void* memory,
                                       uint64_t bytes, bool there);
  tl::expected<Segment, Status> make_stage(std::unique_lock<std::mutex>& lock, const void* memory,
                                           uint64_t capacity);
  tl::expected<Segment, Status> make_shadow(std::unique_lock<std::mutex>& lock, const void* memory,
                                            uint64_t bytes);
  std::shared_ptr<const GpuBlock> make_block(std::unique_lock<std::mutex>& lock, const void* memory,
                                             uint64_t capacity);
  void give_back_stages(std::unique_lock<std::mutex>& lock, uint64_t idle_most);
  void give_back_stage(std::unique_lock<std::mutex>& lock, Segment stage);
  // Lets go of all that is leaving, unless it would wait for ops.
  void let_leave(std::unique_lock<std::mutex>& lock);
  void close_opened(std::unique_lock<std::mutex>& lock, TimePoint deadline);
  // share.cc
  std::optional<Place> shared_place(std::unique_lock<std::mutex>& lock, const void* memory,
                                    uint64_t bytes);
  GpuShares::Share* make_share(std::unique_lock<std::mutex>& lock,
                               std::shared_ptr<const GpuAllocation> allocation);
  void give_back_shares(std::unique_lock<std::mutex>& lock, TimePoint deadline);
  void let_go(TimePoint deadline) noexcept override;
  static Status fetch(Request* request, void* stream, bool orders);
  static tl::expected<bool, Status> begin_behind(Request* request, void* stream);
  Status send(std::unique_lock<std::mutex>& lock, std::span<Request> requests, uint64_t* tickets);
  void send_message(uint64_t ticket, const Request& request);
  // An error if it is not there, or the wait was interrupted; the end if it has not ended in time.
  tl::expected<Requests::iterator, Status> wait_for_end(std::unique_lock<std::mutex>& lock,
                                                        uint64_t ticket, TimePoint deadline);
  // What it takes to bring the result of a request, also when that has been taken.
  struct ToBring {
    Loan::Delivery way;
    Loan kept;  // a stage is not lent to the next op before its stream knows of this result
    std::shared_ptr<Bringing> state;
  };
  static ToBring to_bring(Request* request);
  // Nothing: it is for the caller to bring it, and to end_bringing(). Else whether the stream comes
  // behind whoever does that; false: he is still about to.
  tl::expected<std::optional<bool>, Status> behind_another(std::unique_lock<std::mutex>& lock,
                                                           const ToBring& result, void* stream,
                                                           TimePoint deadline);
  void end_bringing(Bringing* state, bool done);
  tl::expected<bool, Status> deliver_on(std::unique_lock<std::mutex>& lock, const ToBring& result,
                                        const StreamWord& ended, void* stream, TimePoint deadline);
  tl::expected<bool, Status> deliver_here(std::unique_lock<std::mutex>& lock, const ToBring& result,
                                          void* stream, TimePoint deadline);
  tl::expected<Progress, Status> progress(std::unique_lock<std::mutex>& lock, uint64_t ticket);
  tl::expected<Awaiting, Status> ask_for(std::unique_lock<std::mutex>& lock, OpKey key);
  void tell_forming(std::unique_lock<std::mutex>& lock, TimePoint since);  // forming.cc
  // Waits for its end and takes it out.
  tl::expected<std::optional<Outcome>, Status> take(std::unique_lock<std::mutex>& lock,
                                                    uint64_t ticket, TimePoint deadline);
  // The key of the next op of this name, and that it was sent.
  OpKey next_key(const Request& request) const;
  Status room_for_names(std::span<const Request> requests) const;
  void count(const Request& request);
  void prioritize(Request& request);
  void asked_for(Request& request);

  // Whether it may go through the session's ring.
  bool may_ring(const Request& request) const;

  bool on_completed(const wire::Completed& completed) override;
  bool on_end(const RingEnd& end) override;
  void on_early_ends();
  bool take_end(const RingEnd& entry);
  bool take_end(uint64_t ticket, Outcome outcome);
  void on_answer(const wire::DaemonMessage& answer) override;
  void on_refused(uint64_t request, const wire::Refused& refused) override;
  Status on_view_changed(const wire::ViewChanged& changed) override;
  bool on_job_closed(const wire::JobClosed& closed) override;
  std::vector<wire::ClientMessage> unfinished(uint64_t number) override;
  void on_lost(Cause cause, const Status& why) override;
  void on_alarm() override;
  void fail_pending(const Outcome& outcome);
  void end(Request& request, Outcome outcome) const;

  // Constant once opened.
  Settings settings_;
  const std::shared_ptr<Commons> commons_;  // of the family
  uint64_t job_ = 0;

  std::atomic<int32_t> size_{0};
  std::atomic<int32_t> local_size_{1};
  std::atomic<uint64_t> epoch_{0};

  // Held while a pair is looked for or made; taken before mutex_.
  std::mutex pairing_;
  // Guards everything below.
  std::mutex mutex_;
  std::condition_variable left_;  // inside_ has become 0
  int inside_ = 0;
  Session session_;
  Segments segments_;
  Stages stages_;
  GpuShares shares_;
  std::vector<GpuShares::Share> leaving_;  // closed by the daemon, and named by no op
  bool opens_ = true;  // the daemon has not refused to open memory of a GPU that is ours
  uint64_t pool_withdrawals_seen_ = 0;
  uint64_t withdrawals_seen_ = 0;                     // of commons_
  std::map<std::vector<uint32_t>, uint32_t> groups_;  // made so far, by their ranks ...
  uint64_t groups_since_ = 0;                         // ... since the job grew in this epoch
  std::vector<Communicator*> forming_;                // groups whose other ranks are waited for
  bool joining_ = false;                              // since begin()
  std::map<uint32_t, std::shared_ptr<Communicator>> pairs_;  // by the other rank
  std::map<uint64_t, FarRequest> far_;                       // not yet waited for
  uint64_t pairs_since_ = 0;                                 // since the job grew in this epoch
  Requests requests_;
  Seen seen_;                                         // stays empty where no restart can follow
  uint64_t sequence_ = 0;                             // of the next op without a name
  std::unordered_map<uint64_t, uint64_t> name_uses_;  // by the name's hash; kOpNames at most
  std::unordered_set<uint64_t> names_told_;           // by hash: the daemon knows them
  NeedOrder need_order_;                              // learns only where it is to
  Views views_;
  std::vector<RingEnd> early_ends_;              // of a view that has not been told yet
  std::optional<wire::ViewChanged> early_view_;  // came before we had seen the answer to the join
  uint64_t join_point_ = 0;                      // the ticket of the one under way
  uint64_t join_ = 0;                            // likewise of a join
  uint64_t joins_ = 0;                           // so far
  uint64_t own_ops_ = 0;                         // since the last one
  std::deque<wire::StandIn> asked_;              // not yet submitted
  std::map<uint64_t, Scratch> standing_in_;      // open, by ticket
  std::multimap<uint64_t, std::byte*> spare_;    // memory for them, by its length
  bool has_left_ = false;
  // One that nobody has confirmed, and the life of the session in whose queue it is; 0: in none.
  struct UnheardLeave {
    std::string words;
    uint64_t queued_in;
  };
  std::optional<UnheardLeave> unheard_leave_;
  bool newcomer_ = false;  // came into a running job, and has not been at a join point yet
  std::optional<Outcome> job_failure_;  // from JobClosed
  std::optional<Outcome> last_words_;   // how pending requests end at the session's alarm

  ForkWatch fork_watch_;  // last: it refers to the others
};

// Whether it is a send or a receive, which no daemon knows.
bool goes_to_a_peer(const gradring_op& op);

// The space of a named op's key.
uint64_t hash_of_name(std::string_view name);

// Everything about an op that needs no memory looked up: enumerations, root, the average of
// integers, sizes. Integers instead of enumerations, because a caller may have put anything there.
// Without a size any root is good: which ranks an elastic job has, its daemons know best.
tl::expected<Signature, Status> check_op(const gradring_op& op, uint32_t size, bool elastic,
                                         WireType wire);

}  // namespace gradring::client
