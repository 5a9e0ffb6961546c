#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "daemon/control/sessions/session.h"
#include "daemon/core/job_record.h"
#include "daemon/data/nonfinite_origin.h"
#include "daemon/fd_store.h"
#include "daemon/records/record_log.h"
#include "proto/wire.h"
#include "record.pb.h"

namespace gradring::daemon {

// How a daemon lays out the memory of slices under way.
struct SliceLayout {
  uint32_t slots = 0;
  uint64_t slice_bytes = 0;
  bool operator==(const SliceLayout&) const = default;
};

// What the last life of a daemon wrote of its sessions and jobs.
struct NodeMemory {
  uint64_t life = 0;
  SliceLayout layout;  // zeros: an older release, which did not say
  std::map<SessionId, wire::SessionRecord> sessions;
  std::map<JobId, core::JobRecord> jobs;
  std::map<JobId, uint32_t> weights;  // of those whose weight was set
  std::map<JobId, NonfiniteOrigin> nonfinite;
  bool restoring = false;  // that life died while it took over from the one before
};

// Nothing if it is of another node or version, or damaged.
std::optional<NodeMemory> read_node_log(const RecordLog& log, const std::string& node);

// The control thread's record. Where nobody keeps descriptors it remembers nothing, and costs
// nothing. Control thread only.
class NodeLog {
 public:
  // Takes what the last life left out of the store, if it fits this daemon; then begins a list of
  // its own. `life`: of this daemon if it goes on from nothing.
  std::optional<NodeMemory> open(FdStore* store, const std::string& node, uint64_t life,
                                 const SliceLayout& layout);
  // Whether anything is remembered.
  bool on() const { return log_.has_value(); }
  // The same as that of the daemon whose records were found.
  uint64_t life() const { return life_; }

  void save(const Session& session);
  void over(SessionId session);
  void save(const core::JobRecord& job);
  void save_weight(const JobId& job, uint32_t weight);
  void save_nonfinite(const JobId& job, const NonfiniteOrigin& origin);
  void over(const JobId& job);
  // What open() returned is in use now, and did no harm.
  void restored();

 private:
  void append(const wire::NodeEntry& entry);
  void begin();

  std::optional<RecordLog> log_;
  std::string node_;
  uint64_t life_ = 0;
  SliceLayout layout_;
  // The last entry of each, to begin anew with.
  std::map<SessionId, wire::NodeEntry> sessions_;
  std::map<JobId, wire::NodeEntry> jobs_;
};

}  // namespace gradring::daemon
