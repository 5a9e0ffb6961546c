#pragma once

#include <cstddef>

namespace gradring::transport {

// Slices over TCP: large enough that what a message costs vanishes beside its copying, small enough
// to stay in a processor's own cache from one hand to the next, and that a ring of 8 nodes has
// several slices of a 16 MiB op to overlap. A quarter of it, with our header, is what the kernel
// hands to a device at a time; 64 KiB would be one such bundle and a small one, which costs as
// much: on four nodes of one machine gradring-perf took 4.0 ms for 1 MiB with slices of 64 KiB,
// and 2.0 with those of 63.
inline constexpr size_t kTcpSliceBytes = size_t{4 * 63} << 10;

// At most 64 KiB less some headers, in whole frames: 45 of 1500 bytes with TCP's time stamps.
inline constexpr size_t kBundleBytes = size_t{45} * 1448;

// Sends accepted on one connection and not yet with the kernel; more are refused. Far above what
// credits let a peer have under way.
inline constexpr size_t kSendsMax = 4096;

// Connections that have not said yet who they are; the oldest is closed for one more. Peers say it
// within a turn of theirs, and there may be hundreds that start at one time.
inline constexpr size_t kStrangersMax = 256;

// Connections that wait to be accepted. The kernel knows more of them than come at one time.
inline constexpr int kBacklog = 1024;

}  // namespace gradring::transport
