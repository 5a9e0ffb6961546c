#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "daemon/core/job_engine.h"
#include "daemon/core/time.h"
#include "proto/types.h"

namespace gradring::scale {

using core::Time;

// What things cost on one kind of machine. Every number is in machines.json, with where it comes
// from.
struct Machine {
  std::string name;
  std::string what;
  std::map<std::string, std::string> because;  // by field

  double ranks = 1;  // on each node

  // Of a node, or of all nodes together where they are namespaces of one computer.
  double processors = 1;
  bool shared = false;
  double helpers = 0;     // threads that help to sum
  double thread_gbs = 1;  // memory that one thread reads and writes while it sums or copies
  double memory_gbs = 1;  // the same, of all threads of a node
  // float32 that one thread packs and unpacks.
  double bf16_pack_gbs = 1;
  double bf16_unpack_gbs = 1;
  double int8_pack_gbs = 1;
  double int8_unpack_gbs = 1;

  double lanes = 1;
  double lane_gbit = 1;     // each way
  double payload_part = 1;  // of what a line carries
  double burst_bytes = 0;   // that pass at once after a pause, where traffic is shaped
  double latency_us = 0;    // from the sender's card to the receiver's thread

  double send_us = 0;           // of a thread, for each frame
  double receive_us = 0;        // likewise
  double send_copy_gbs = 0;     // payload that a thread copies to send it; 0: the card fetches it
  double receive_copy_gbs = 0;  // likewise
  // What a socket takes before the line has carried it; the thread hands over the rest bit by bit,
  // when it has time. 0: the card fetches all by itself.
  double socket_bytes = 0;
  double slice_us = 0;  // to decide what becomes of a slice, and to begin a pass
  double submit_us = 0;
  double complete_us = 0;
  double wake_us = 0;  // of a thread that looked on in vain for look_on_us, and sleeps
  double look_on_us = 0;

  double device_gbs = 0;  // between a GPU and the gradients' memory; 0: they are made there
  double local_us = 0;    // from one process of a node to another, where each rank is in the ring

  double slice_bytes = 256 << 10;
  double slots = 16;

  // float32 bytes a nanosecond; 0: as it is.
  double pack_rate(WireType wire) const;
  double unpack_rate(WireType wire) const;
  core::EngineOptions engine() const;
};

inline Time us(double microseconds) { return static_cast<Time>(microseconds * 1e3); }
// GB/s are bytes a nanosecond.
inline Time took(double bytes, double gbs) {
  return gbs > 0 ? static_cast<Time>(bytes / gbs) : Time{0};
}

// Sets a field by its name; false if there is none of that name.
bool set_field(Machine* machine, const std::string& field, double value);

using Machines = std::map<std::string, Machine>;
// Throws std::runtime_error with a sentence that names the file.
Machines read_machines(const std::string& path);

}  // namespace gradring::scale
