// The flight recorder's file, as anything that happens to lie in the runtime directory.
#include <algorithm>
#include <cstring>
#include <span>

#include "tests/fuzz/fuzz.h"
#include "tests/tools/flight_bytes.h"
#include "tools/ctl/flight/show.h"

namespace {

using namespace gradring;
using fuzz::require;
using tools::FlightBytes;

std::vector<std::string> make_samples() {
  FlightBytes file(8);
  for (uint16_t kind = 1; kind < 170; ++kind) {
    FlightEvent event;
    event.kind = static_cast<FlightKind>(kind);
    event.job = {1, 2, 3, 4};
    event.rank = kind;
    file.add(kind % 2, kind, event, kind % 5 == 0 ? std::string("name\0words", 10) : "");
  }
  return {file.bytes(), FlightBytes(1).bytes()};
}

void check(const tools::FlightLife& life) {
  require(life.header.ring_count <= kFlightRingsMax, "only so many rings are believed");
  for (const auto& entry : life.entries) {
    require(entry.event.sequence != 0 && entry.ring < life.header.ring_count,
            "an event is whole and of a ring");
    require(entry.event.kind != FlightKind::kMore, "text is no event");
  }
  require(
      std::ranges::is_sorted(life.entries, {}, [](const auto& entry) { return entry.event.time; }),
      "events are in the order of time");
  const auto answer = tools::show({{life, {tools::Fate::Is::kGone, 0}, false}}, {"", 0}, {});
  require(answer.has_value(), "whatever was read can be shown");
  require(answer->text.find('\x1b') == std::string::npos, "nothing drives the terminal");
  require(!tools::document_of(*answer)
               .dump(2, ' ', false, nlohmann::json::error_handler_t::replace)
               .empty(),
          "scripts get an answer");
}

}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t size_max,
                                          unsigned seed) {
  static const auto kSamples = make_samples();
  return fuzz::mutate(kSamples, data, size, size_max, seed);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  const auto life = tools::read_flight(bytes);
  if (life) {
    check(*life);
  } else {
    require(!life.error().empty(), "a refusal says why");
  }
  return 0;
}
