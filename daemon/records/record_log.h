#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <tl/expected.hpp>

#include "proto/status.h"
#include "transport/shm/segment.h"

namespace google::protobuf {
class MessageLite;
}

namespace gradring::daemon {

// A list of entries in a memfd, for a process that may be killed between any two instructions: what
// append() has written when it returns is found by whoever opens the memfd next, and an entry is
// there whole or not at all. There are two halves, of which one counts: a shorter list that says
// the same is written into the other, and then that one counts. One writer, one thread.
class RecordLog {
 public:
  // Pages cost memory only once they are written.
  static tl::expected<RecordLog, Status> create(uint64_t half_bytes);
  // What create() made in an earlier life; owns `fd` from now on. Refused in words if it is no such
  // thing.
  static tl::expected<RecordLog, Status> adopt(int fd);

  int fd() const { return memory_.fd(); }

  // False when there is no room, or was none before: then the list has ended for good, and is as if
  // it were empty.
  bool append(const google::protobuf::MessageLite& entry);
  // Long enough, compared with when it began, to be worth writing anew.
  bool long_grown() const;

  // From begin_anew() to publish() append() writes the list that is to count.
  void begin_anew();
  void publish();

  // Each entry in order, until `visit` says false; true: there was none such, and the list counts.
  bool for_each(const std::function<bool(std::span<const std::byte>)>& visit) const;

 private:
  struct Head;
  struct Half;

  explicit RecordLog(transport::Segment memory);
  Head* head() const;
  Half* half(uint32_t index) const;
  std::byte* entries(uint32_t index) const;

  transport::Segment memory_;
  uint64_t half_bytes_ = 0;
  uint32_t writing_ = 0;     // into which half
  uint64_t began_with_ = 0;  // bytes when the half that counts was published
};

}  // namespace gradring::daemon
