#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "proto/status.h"
#include "transport/tcp/outgoing.h"
#include "transport/tcp/socket.h"

namespace gradring::transport {

// A thread that gives messages to the kernel, so that the transport's owner receives and sums
// meanwhile. A connection is the thread's from the first message that is handed over until its
// owner has heard of the last; whose it is not does not touch it, but that the owner asks the
// kernel whether it is still there (Outgoing::look).
//
// All calls come from the owner's thread. None waits, but take_back() until the kernel has what it
// has room for.
class Sender {
 public:
  // What the kernel tells of by this number.
  using Number = uint64_t;

  Sender() = default;
  Sender(const Sender&) = delete;
  Sender& operator=(const Sender&) = delete;
  ~Sender();
  // Once, first. Refused where the system has no more threads or descriptors.
  Status start();

  // Readable while there is something to hear.
  int event_fd() const { return news_.fd(); }

  // `out` is open, lasts until it is taken back, and is given the message in its turn.
  void hand_over(Number number, Outgoing* out, const Outgoing::Message& message);

  // A message that the kernel has, or (not ok) a connection that broke: take it back.
  struct News {
    Number number = 0;
    Outgoing::Sent sent;
    Status status;
  };
  // All there is, in its order, into `news`, whose old content is thrown away.
  void hear(std::vector<News>* news);

  // The connection is the owner's at once, and what the kernel has not taken waits in it. Appends
  // what it has taken and nobody has heard of.
  void take_back(Number number, std::vector<Outgoing::Sent>* sent);

 private:
  enum class State {
    kReady,   // to be given to
    kFull,    // the kernel has no room
    kBroken,  // until it is taken back
  };
  struct Charge {
    Outgoing* out = nullptr;
    std::vector<Outgoing::Message> next;  // handed over, and not in `out` yet
    State state = State::kReady;
  };

  void run();
  void give(std::unique_lock<std::mutex>* lock, Number number);
  void sleep(std::unique_lock<std::mutex>* lock);
  void tell(News news);

  Socket news_, bell_;  // eventfds: for the owner, and for the thread
  std::mutex mutex_;    // of all below
  std::condition_variable let_go_;
  std::map<Number, Charge> charges_;
  std::vector<News> untold_;
  Number at_ = 0;  // whose connection the thread is giving to, without the lock
  bool asleep_ = false;
  bool ending_ = false;
  std::vector<Outgoing::Sent> sent_;  // memory for a call, of the thread
  std::thread thread_;
};

}  // namespace gradring::transport
