#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>
#include <zmq.hpp>

#include "proto/version.h"
#include "proto/wire.h"

namespace gradring::test {

// What segments the fake hands out; all but the first are wrong.
enum class Memory { kSealed, kUnsealed, kShort, kNone };

// How the fake behaves. Changed by the test at any time, through FakeDaemon::set.
struct Script {
  std::string node = "fake";
  uint32_t protocol = kClientProtocol;
  // Said to whoever connects, before any hello, and then closed.
  std::optional<wire::Refused> refuse_connection;
  std::optional<wire::Refused> refuse_hello;
  std::optional<wire::Refused> refuse_open;
  std::optional<wire::Refused> refuse_join;
  std::optional<wire::Refused> refuse_allocate;
  std::optional<wire::Refused> refuse_free;
  std::optional<wire::Refused> refuse_submit;
  bool answer_hello = true;
  bool answer_join = true;
  bool close_after_join = false;  // the job fails in the moment it is formed
  bool answer_leave = true;
  Memory memory = Memory::kSealed;
  // What a join is answered with; none: the view that a job forms with.
  std::optional<wire::View> view;
  // Right behind that answer.
  std::optional<wire::ViewChanged> change_after_join;
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
  size_t segments();

  // Ends an op that was held back: computes its result, and tells the trainer that opened last,
  // with this verdict and these figures if there are any; the ticket is filled in.
  void complete(const wire::Operation& operation,
                std::optional<wire::Completion> completion = std::nullopt);
  // To the trainer that opened last, whatever it is.
  void send(const wire::DaemonMessage& message);
  void send_bytes(const std::string& bytes);
  void send_attach_bytes(const std::string& bytes);

  // Closes everything, as the kernel does for a process that is killed.
  void die();
  // Closes the attach sockets only, as one that stops does before its last words have gone out.
  void hang_up();
  // Stays, and does nothing more.
  void freeze();

 private:
  struct Session {
    int fd = -1;
    std::string routing_id;  // empty until its control connection has opened it
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
  void allocate(Session& session, const wire::AllocateSegment& request);
  void answer(const std::string& routing_id, const wire::ClientMessage& message);
  void submit(const std::string& routing_id, const wire::ClientMessage& message);
  wire::Completion good() const;
  wire::Joined joined(const Script& script) const;
  void compute(const wire::Operation& operation);
  void send_to(const std::string& routing_id, const std::string& bytes);
  void close_all();

  std::string runtime_dir_;
  int wake_ = -1;

  // Shared with the test.
  std::mutex mutex_;
  std::condition_variable arrived_;
  Script script_;
  std::vector<wire::ClientMessage> messages_;
  std::vector<std::function<void()>> commands_;
  bool stopping_ = false;

  // Of the thread.
  int listener_ = -1;
  zmq::context_t context_;
  zmq::socket_t router_;
  bool frozen_ = false;
  uint64_t last_id_ = 0;
  std::map<uint64_t, Session> sessions_;
  std::map<uint64_t, Segment> segments_;
  std::string last_routing_id_;
  wire::Join join_;

  std::thread thread_;
};

}  // namespace gradring::test
