#pragma once

#include <chrono>
#include <cstddef>

namespace gradring::transport {

// Slices over TCP. They must go out eager, in one segment: UCX's rendezvous costs a round trip per
// slice and reached 70..90 % of a 1 Gbit/s line where eager reached 97..99 %. 256 KiB amortises the
// cost of a message and still gives a ring of 8 nodes several slices of a 16 MiB op to overlap.
inline constexpr size_t kTcpSliceBytes = size_t{256} << 10;
// Slices over RDMA travel by rendezvous: large enough that its round trip and the registration
// look-up vanish beside the transfer (1 MiB is 80 us at 100 Gbit/s), small enough for several to be
// under way within the staging limit of a job.
inline constexpr size_t kRdmaSliceBytes = size_t{1} << 20;

// The largest message that UCX sends in one piece: a slice, our header and UCX's own few dozen
// bytes. Both ends must have the same: a larger message would overrun the receiver's buffer, which
// release builds of UCX do not check. So it is a constant and not an option.
inline constexpr size_t kTcpSegmentBytes = size_t{300} << 10;
// Room for our header and those of UCX in such a message.
inline constexpr size_t kHeadersBytes = size_t{1} << 10;
static_assert(kTcpSliceBytes + kHeadersBytes <= kTcpSegmentBytes);

// Sends accepted on one connection and not yet ended; more are refused. Far above what credits let
// a peer have under way; a request of ours and one of UCX's take about 1 KiB, so 4 MiB per peer at
// worst.
inline constexpr size_t kSendsMax = 4096;

// The destructor waits so long for connections to let go of the owner's memory. Over TCP it is
// immediate; a card that does not answer within this is not going to.
inline constexpr std::chrono::seconds kCloseDeadline{2};

// Turns of progress() in which a link that is closing keeps its owner awake. UCX ends what it
// cancels within a few; what takes longer waits for a network card, which raises an event.
inline constexpr int kAwakeTurns = 64;

}  // namespace gradring::transport
