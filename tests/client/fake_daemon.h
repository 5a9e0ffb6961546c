#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>
#include <zmq.hpp>

#include "proto/version.h"
#include "proto/wire.h"
#include "tests/client/fake_rings.h"

namespace gradring::test {

// What segments the fake hands out; all but the first are wrong.
enum class Memory { kSealed, kUnsealed, kShort, kNone };

// Whether the listening sockets outlive the fake, as in a descriptor store.
enum class Listeners { kGone, kKept };

// How the fake behaves. Changed by the test at any time, through FakeDaemon::set.
struct Script {
  std::string node = "fake";
  uint32_t protocol = kClientProtocols.newest;
  // Said to whoever connects, before any hello, and then closed.
  std::optional<wire::Refused> refuse_connection;
  std::optional<wire::Refused> refuse_hello;
  std::optional<wire::Refused> refuse_open;
  std::optional<wire::Refused> refuse_join;
  std::optional<wire::Refused> refuse_allocate;
  std::optional<wire::Refused> refuse_free;
  std::optional<wire::Refused> refuse_submit;
  std::optional<wire::Refused> refuse_share_gpu;
  std::optional<wire::Refused> refuse_offer;
  bool answer_hello = true;
  std::optional<std::string> answer_hello_with;  // these bytes
  uint32_t restart_grace_ms = 0;
  bool answer_open = true;
  std::chrono::milliseconds open_takes{0};
  std::optional<std::string> answer_open_with;  // these bytes
  // Right behind the answer to OpenSession.
  std::optional<wire::DaemonMessage> say_after_open;
  bool answer_join = true;
  bool lends = true;
  bool rings = false;  // it makes rings, and tells ends by them where the test says so
  bool stream_words = true;
  bool takes_gpu_descriptors = true;
  bool gpu_direct = false;
  bool asks_for_failed = true;
  bool sums_on_gpus = false;      // it says; what it does with such an op is to leave it as it is
  bool close_after_join = false;  // the job fails in the moment it is formed
  bool answer_leave = true;
  Memory memory = Memory::kSealed;
  // What a join is answered with; none: the view that a job forms with.
  std::optional<wire::View> view;
  // Right behind that answer.
  std::optional<wire::ViewChanged> change_after_join;
  // What is known of the job, for who asks; none: nobody answers.
  std::optional<wire::JobReport> job_report;
  // Ops complete at once, as if every rank had given the same input; false: not before complete().
  bool complete = true;
};

// The daemon's side of proto/client.proto in a thread of the test, as far as one client library
// needs it. It has one job, believes everything it is told, and does on request what no daemon
// should.
class FakeDaemon {
 public:
  FakeDaemon();
  ~FakeDaemon();
  FakeDaemon(const FakeDaemon&) = delete;
  FakeDaemon& operator=(const FakeDaemon&) = delete;

  const std::string& runtime_dir() const { return runtime_dir_; }

  void set(const std::function<void(Script&)>& change);

  // Messages of trainers, in the order of their arrival; waits for as many, 10 s at most.
  std::vector<wire::ClientMessage> wait_for_messages(wire::ClientMessage::BodyCase body,
                                                     size_t count);
  // The operations of all submissions, likewise.
  std::vector<wire::Operation> wait_for_operations(size_t count);
  // Of all who attached, likewise.
  std::vector<wire::AttachHello> wait_for_hellos(size_t count);
  size_t segments();
  size_t borrowed();  // so often, until now

  // Ends an op that was held back: computes its result, and tells the trainer that opened last,
  // with this verdict and these figures if there are any; the ticket is filled in.
  void complete(const wire::Operation& operation,
                std::optional<wire::Completion> completion = std::nullopt);
  // Likewise, but tells nobody. What was computed once is not computed again.
  void finish(const wire::Operation& operation);
  // Tells every trainer that has rings by those; the ticket is the operation's.
  void end_by_ring(const wire::Operation& operation, RingEnd end);
  // To the trainer that opened last, whatever it is.
  void send(const wire::DaemonMessage& message);
  void send_bytes(const std::string& bytes);
  void send_attach_bytes(const std::string& bytes);

  // Closes everything, as the kernel does for a process that is killed.
  void die(Listeners listeners = Listeners::kGone);
  // After that: another life, which knows sessions, segments and what was computed.
  void come_back();
  // The next life knows no session.
  void forget();
  // In a segment that was named in an operation; null: there is no word.
  uint32_t* word_at(const wire::StreamWord& word);
  // Closes the attach sockets only, as one that stops does before its last words have gone out.
  void hang_up();
  // Its attach sockets refuse what is sent but are not seen to be closed, as for a moment while the
  // kernel closes them.
  void refuse_attach();
  // Stays, and does nothing more until it thaws.
  void freeze();
  void thaw();

 private:
  struct Session {
    int fd = -1;
    std::string routing_id;  // empty until its control connection has opened it
    std::shared_ptr<FakeRings> rings;
  };
  struct Segment {
    int fd = -1;
    std::span<std::byte> memory;
  };

  void run(const std::function<void()>& on_thread);
  void loop();
  void accept();
  void take_attach(Session& session, uint64_t id);
  void take_control();
  void greet(Session& session, uint64_t id, const wire::AttachHello& hello);
  void make_rings(Session& session, const wire::MakeRings& request);
  void allocate(Session& session, const wire::AllocateSegment& request);
  void borrow(Session& session, const wire::BorrowSegment& request);
  void answer(const std::string& routing_id, const wire::ClientMessage& message);
  void submit(const std::string& routing_id, const wire::ClientMessage& message);
  wire::Completion good() const;
  wire::Joined joined(const Script& script) const;
  void compute_once(const std::string& routing_id, const wire::Operation& operation);
  void compute(const wire::Operation& operation);
  // Null where there is none.
  void send_to(const std::string& routing_id, const std::string& bytes);
  void open_sockets();
  void close_listeners();

  std::string runtime_dir_;
  int wake_ = -1;

  // Shared with the test.
  std::mutex mutex_;
  std::condition_variable arrived_;
  Script script_;
  std::vector<wire::ClientMessage> messages_;
  std::vector<wire::AttachHello> hellos_;
  std::vector<std::function<void()>> commands_;
  bool stopping_ = false;

  // Of the thread.
  int attach_listener_ = -1;
  int control_listener_ = -1;
  zmq::context_t context_;
  zmq::socket_t router_;
  bool frozen_ = false;
  uint64_t last_id_ = 0;
  size_t borrowed_ = 0;
  std::map<uint64_t, Session> sessions_;
  std::set<uint64_t> known_;                          // sessions that were welcomed
  std::set<std::pair<uint64_t, uint64_t>> computed_;  // by session and ticket
  std::map<uint64_t, Segment> segments_;
  std::string last_routing_id_;
  wire::Join join_;

  std::thread thread_;
};

}  // namespace gradring::test
