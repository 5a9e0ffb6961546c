#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "daemon/core/time.h"

namespace gradring::core {

// One opening of a channel by one of its ends. Counts up within a boot of the daemon; 0: none.
struct ChannelEnd {
  uint64_t boot = 0;
  uint64_t number = 0;

  bool operator==(const ChannelEnd&) const = default;
};

// What the two ends of a channel send one another, over whatever loses, doubles and reorders it.
struct Letter {
  ChannelEnd from;
  ChannelEnd to;          // as the sender knows it; none: not at all
  uint64_t sequence = 0;  // of the body, from 1; 0: there is none
  uint64_t taken = 0;     // all bodies of the other end up to here
  uint32_t attempt = 0;   // chooses the way (relay.h)
  bool asks = false;      // wants an answer
  bool bound = false;     // is in a channel with another life of the receiver: answer, no more
  uint64_t denials = 0;   // of its death by the sender; whoever believes in it knows better now
  uint64_t buried = 0;    // the receiver is thought dead, by a notice of this number, plus one
  std::string body;

  bool operator==(const Letter&) const = default;
};

struct CourierOptions {
  // Before a body is sent again; doubles up to the longest. A silent node on the way is thus gone
  // round long before it is given up.
  Time first_wait = 60 * kMillisecond;
  Time longest_wait = 2 * kSecond;
  Time first_pause = 250 * kMillisecond;  // between two tries to open; doubles up to
  Time longest_pause = 8 * kSecond;
  Time give_up = 6 * kSecond;         // a body that is not taken for so long breaks the channel
  Time answer_in = 5 * kMillisecond;  // what was taken is told, unless a body tells it sooner
  size_t window = 64;                 // bodies under way
  size_t bodies_max = 1000;           // that wait; more break the channel, as on a connection
  size_t bytes_max = 64 << 20;        // likewise; and of bodies that came before their turn
};

// One end of a channel between two daemons that are not connected: what is sent arrives once and in
// order until the channel breaks, and then nothing of it arrives any more and both ends are told,
// as with a connection. Pure; one thread.
//
//   from      event                                                     to
//   kOpening  a letter from an end that knows this opening of ours      kUp
//   kUp       the peer has opened anew; or is not heard; or close()     kOpening, by another number
//
// A letter of another life of the peer counts only when it names our present opening, which no
// letter that was long under way can.
class Courier {
 public:
  enum class State : uint8_t { kOpening, kUp };
  struct Event {
    enum class What : uint8_t { kUp, kMessage, kDown };
    What what = What::kUp;
    bool silent = false;  // kDown: it was not heard, and nobody said why
    std::string text;     // kMessage: the body; kDown: why, for people
  };

  // `options` outlives it. The first try to open is due at `begin`.
  Courier(const CourierOptions* options, uint64_t boot, Time begin)
      : options_(options), own_{boot, 1}, due_(begin) {}

  void on_letter(const Letter& letter, Time now);
  // False: not up.
  bool send(std::string body, Time now);
  // Breaks the channel if it is up; it will be opened anew.
  void close(const std::string& why, bool silent, Time now);
  // Tries to open soon: there is reason to hope.
  void hurry(Time when);
  // It may be gone, and nobody would say so: has it answer, or breaks the channel.
  void doubt(Time now);
  void tick(Time now);
  Time next_deadline() const;

  // What is to be sent, and what has happened, since they were asked last; both in order.
  std::vector<Letter> take_letters();
  std::vector<Event> take_events();

  State state() const { return state_; }
  const ChannelEnd& peer_end() const { return theirs_; }
  uint64_t resent() const { return resent_; }

 private:
  void reopen(const std::string& why, bool silent, Time now);
  void adopt(const ChannelEnd& end) { theirs_ = end; }
  void take_receipt(uint64_t taken, Time now);
  void take_body(const Letter& letter, Time now);
  void send_waiting(Time now);
  void send_again(Time now);
  Letter blank(const ChannelEnd& to) const;
  void put(Letter letter) { letters_.push_back(std::move(letter)); }

  const CourierOptions* options_;
  State state_ = State::kOpening;
  ChannelEnd own_;
  ChannelEnd theirs_;

  std::map<uint64_t, std::string> outgoing_;  // not known to be taken
  size_t outgoing_bytes_ = 0;
  uint64_t last_ = 0;   // given to a body
  uint64_t sent_ = 0;   // the last body that was ever sent
  uint64_t taken_ = 0;  // of the other's, in order
  std::map<uint64_t, std::string> early_;
  size_t early_bytes_ = 0;

  Time due_ = 0;        // opening: the next try. up: when to send again; 0: nothing is under way
  Time pause_ = 0;      // the last one
  Time stuck_ = 0;      // since when the oldest body is not taken
  Time answer_at_ = 0;  // 0: nobody waits for an answer
  Time doubted_ = 0;    // since when; 0: it is not
  Time ask_at_ = 0;     // while it is
  uint32_t attempt_ = 0;
  uint64_t resent_ = 0;
  bool overflowed_ = false;

  std::vector<Letter> letters_;
  std::vector<Event> events_;
};

}  // namespace gradring::core
