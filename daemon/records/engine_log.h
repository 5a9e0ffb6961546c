#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tl/expected.hpp>
#include <utility>

#include "daemon/core/engine_record.h"
#include "daemon/core/job_engine.h"
#include "daemon/core/job_record.h"
#include "daemon/data/kept_slices.h"
#include "daemon/records/record_log.h"
#include "daemon/records/record_wire.h"

namespace gradring::daemon {

// The ends of submissions that their trainers may not know of yet.
// By session and ticket: a rank may come back as another process, which counts its tickets anew.
using ToldOutcomes = std::map<core::SessionId, std::map<uint64_t, core::Outcome>>;

// An engine's journal, written down. Data thread only.
class EngineLog final : public core::EngineJournal {
 public:
  // Nothing given outlives it. `told` is what of its own the log is to remember beside the engine.
  EngineLog(RecordLog* log, const KeptSlices* kept, const ToldOutcomes* told);

  // The slice that was held last lies in all outputs.
  void landed();
  void told(core::SessionId session, uint64_t ticket, const core::Outcome& outcome);
  // Grown so long that begin() is worth its time.
  bool long_grown() const { return log_->long_grown(); }

  void begin(const core::EngineRecord& whole) override;
  void submitted(const core::Op& op, const core::Submission& submission,
                 const core::LocalRecord& by) override;
  void held(const core::Op& op, uint32_t slice, const core::ValueId& value,
            core::Staging from) override;
  void kept(const core::Op& op, uint32_t slice) override;
  void dropped(const core::Op& op, uint32_t slice) override;
  void elsewhere(const core::Op& op, uint32_t slice, const core::ValueId& value) override;
  void decided(const core::Op& op) override;
  void ended(const core::Op& op) override;
  void forgotten(const OpKey& key) override;
  void local(const core::LocalRecord& record) override;

 private:
  void write();

  RecordLog* const log_;
  const KeptSlices* const kept_;
  const ToldOutcomes* const told_;
  // Kept for their memory. What is written for each slice has an entry of its own: one that turns
  // from one kind into another gives its memory back.
  wire::EngineEntry entry_;
  wire::EngineEntry held_;
  wire::EngineEntry landed_;
  wire::EngineEntry copied_;
  wire::EngineEntry dropped_;
  wire::EngineEntry elsewhere_;
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
