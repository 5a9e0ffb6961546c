#pragma once

#include <set>
#include <string>

#include "daemon/core/job_record.h"
#include "daemon/core/messages.h"
#include "daemon/core/time.h"

namespace gradring::core {

class MembershipActions;

// The vote of a node whose part in an elastic job was lost with an earlier life of its daemon, and
// came back without what it held (rule R2): its ranks are gone, it has no slices, and it is a
// member for nobody any more. Only what it had promised and accepted was written down, and it
// answers by that, so that those who are left can decide where they are too few without it. It
// proposes nothing, and asks to be left out. Pure; one thread.
class Witness {
 public:
  // `failure` says how the ranks were lost.
  Witness(std::string node, const JobRecord& record, const Failure& failure, Time now,
          MembershipActions* actions);

  // Connected: it is told that this node is no member in earnest, and asked what was decided since.
  void meet(const std::string& node);
  void on_message(const std::string& from, const JobMessage& message, Time now);

  // Nobody needs the vote any more: a view without this node is decided, or the job has ended for
  // all others, or nobody has asked for `patience`.
  bool over(Time now, Time patience) const;
  // The view that leaves this node out, if that is known.
  const std::optional<change::Commit>& excluded_by() const { return excluded_by_; }
  const JobRecord& record() const { return record_; }

 private:
  void on(const std::string& from, const core::Accept& message);
  void on(const std::string& from, const change::Prepare& message);
  void on(const std::string& from, const change::Accept& message);
  void on(const std::string& from, const change::Commit& message);
  void on(const std::string& from, const change::Ask& message);
  void on(const std::string& from, const Left&) { gone_.insert(from); }
  void on(const std::string& from, const JobDone&) { gone_.insert(from); }
  void on(const std::string& from, const JobFailed&) { gone_.insert(from); }
  template <typename Other>
  void on(const std::string&, const Other&) {}

  bool promise(const std::string& from, uint64_t epoch, const Ballot& ballot);
  void leave(const std::string& member);
  Report report() const;

  const std::string node_;
  MembershipActions* const actions_;
  JobRecord record_;
  std::set<std::string> gone_;  // of the other members
  std::optional<change::Commit> excluded_by_;
  bool another_life_ = false;  // of this node is in the job by now
  Time heard_ = 0;
};

// Whether both have a rank of this node's that is the same process.
bool share_ranks(const View& one, const View& other, const std::string& node);

// Of messages about a job that has begun; zero of others.
JobId job_of(const JobMessage& message);

}  // namespace gradring::core
