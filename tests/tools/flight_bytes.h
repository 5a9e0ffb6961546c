#pragma once

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "proto/flight.h"
#include "tools/ctl/flight/file.h"

namespace gradring::tools {

// A flight recorder's file as the daemon would have written it, to be bent by tests.
class FlightBytes {
 public:
  explicit FlightBytes(uint64_t events_per_ring = 8) {
    header.magic = kFlightMagic;
    header.version = kFlightVersion;
    header.event_bytes = kFlightEventBytes;
    header.ring_count = 2;
    header.pid = 4711;
    header.started = 1'000;
    header.wall_offset = 1'700'000'000'000'000'000;
    put_text(header.machine_boot, "boot");
    put_text(header.node, "a");
    put_text(header.product, "0.1.0");
    for (uint32_t i = 0; i < header.ring_count; ++i) {
      put_text(header.rings[i].thread, i == 0 ? "control" : "data");
      header.rings[i].events = events_per_ring;
      header.rings[i].offset = kFlightHeaderBytes + i * events_per_ring * kFlightEventBytes;
    }
    slots = {std::vector<FlightEvent>(events_per_ring), std::vector<FlightEvent>(events_per_ring)};
  }

  // The next event of a ring; its time is given.
  void add(uint32_t ring, int64_t time, FlightEvent event, const std::string& text = "") {
    put(ring, time, event);
    for (size_t at = 0; at < text.size(); at += kFlightTextBytes) {
      FlightEvent more;
      set_text(more, std::string_view(text).substr(at));
      put(ring, time, more);
    }
  }

  std::string bytes() const {
    std::string all(kFlightHeaderBytes, '\0');
    std::memcpy(all.data(), &header, sizeof header);
    for (const auto& ring : slots) {
      all.append(reinterpret_cast<const char*>(ring.data()), ring.size() * kFlightEventBytes);
    }
    return all;
  }

  FlightHeader header;
  std::vector<std::vector<FlightEvent>> slots;

 private:
  void put(uint32_t ring, int64_t time, FlightEvent event) {
    event.sequence = ++written_[ring];
    event.time = time;
    slots[ring][(event.sequence - 1) % slots[ring].size()] = event;
  }

  uint64_t written_[2] = {};
};

// Reads these bytes; beyond them there is nothing.
inline ReadAt read_from(const std::string& bytes) {
  return [&bytes](uint64_t offset, std::span<std::byte> to) {
    if (offset > bytes.size() || to.size() > bytes.size() - offset) return false;
    if (!to.empty()) std::memcpy(to.data(), bytes.data() + offset, to.size());
    return true;
  };
}

inline tl::expected<FlightLife, std::string> read_flight(const std::string& bytes) {
  return read_flight(bytes.size(), read_from(bytes));
}

}  // namespace gradring::tools
