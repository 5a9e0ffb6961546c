#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tl/expected.hpp>
#include <utility>

#include "daemon/core/engine_record.h"
#include "daemon/core/job_engine.h"
#include "daemon/data/kept_slices.h"
#include "daemon/records/record_log.h"
#include "daemon/records/record_wire.h"

namespace gradring::daemon {

// The ends of submissions that their trainers may not know of yet.
using ToldOutcomes = std::map<std::pair<uint32_t, uint64_t>, core::Outcome>;  // by rank and ticket

// An engine's journal, written down. Data thread only.
class EngineLog final : public core::EngineJournal {
 public:
  // Nothing given outlives it. `told` is what of its own the log is to remember beside the engine.
  EngineLog(RecordLog* log, const KeptSlices* kept, const ToldOutcomes* told)
      : log_(log), kept_(kept), told_(told) {}

  // The slice that was held last lies in all outputs.
  void landed();
  void told(uint32_t rank, uint64_t ticket, const core::Outcome& outcome);
  // Grown so long that begin() is worth its time.
  bool long_grown() const { return log_->long_grown(); }

  void begin(const core::EngineRecord& whole) override;
  void submitted(const core::Op& op, const core::Submission& submission,
                 const core::LocalRecord& by) override;
  void held(const core::Op& op, uint32_t slice, const core::ValueId& value,
            core::Staging from) override;
  void kept(const core::Op& op, uint32_t slice) override;
  void dropped(const core::Op& op, uint32_t slice) override;
  void ended(const core::Op& op) override;
  void forgotten(const OpKey& key) override;
  void local(const core::LocalRecord& record) override;

 private:
  void write();
  void place(uint32_t number, wire::KeptPlace* to) const;

  RecordLog* const log_;
  const KeptSlices* const kept_;
  const ToldOutcomes* const told_;
  wire::EngineEntry entry_;  // kept for its memory
};

// What the last life of a daemon wrote of one job.
struct EngineMemory {
  core::EngineRecord record;
  KeptPlaces places;
  ToldOutcomes told;
  // The copying of this slice to the trainers was interrupted; the value lies here.
  struct Landing {
    OpKey key;
    uint32_t slice = 0;
    core::Staging from;
  };
  std::optional<Landing> landing;
};

// An error says what is wrong with it.
tl::expected<EngineMemory, std::string> read_engine_log(const RecordLog& log);

}  // namespace gradring::daemon
