#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "daemon/core/messages.h"
#include "daemon/core/time.h"
#include "proto/verdict.h"

namespace gradring::core {

// What a node still knows of jobs that it is not in, or no more, for members that ask it (rule V6).
// Of so many jobs; what it has known for longest it forgets first.
class Departed {
 public:
  void remember(const change::Commit& commit) { of(commit.incarnation).commit = commit; }
  void remember(const JobId& job, const Failure& failure) { of(job).failure = failure; }

  // One that failed, under a token; its view says why.
  struct Failed {
    std::string token;
    View view;
    Time at = 0;
    std::map<std::string, std::set<uint32_t>> told;  // ranks that had missed it, of these nodes
  };
  void remember(const std::string& token, const View& view, const Failure& failure, Time now) {
    std::optional<Failed>& failed = of(view.incarnation).failed;
    failed = {token, view, now, {}};
    failed->view.closed = failure;
  }
  // The last of that name, since then; null: none. Valid until the next is remembered.
  Failed* failed(const std::string& job, const std::string& token, Time since) {
    Failed* last = nullptr;
    for (auto& [id, known] : known_) {
      if (!known.failed || known.failed->token != token || known.failed->view.job != job) continue;
      const Time at = known.failed->at;
      if (at >= since && (last == nullptr || at > last->at)) last = &*known.failed;
    }
    return last;
  }
  bool failed(const JobId& job) const {
    const auto it = known_.find(job);
    return it != known_.end() && it->second.failed.has_value();
  }
  // Several nodes tell of one that failed and that this node missed: whether this word is the first
  // that this rank of it hears.
  bool is_news(const JobId& job, uint32_t rank) { return of(job).missed.insert(rank).second; }
  // Another life of that node knows nothing of what it was told.
  void untell(const std::string& node) {
    for (auto& [id, known] : known_) {
      if (known.failed) known.failed->told.erase(node);
    }
  }

  // A guest's that went back before it was taken in.
  void withdraw(const JobId& job, uint64_t claim) {
    std::set<uint64_t>& claims = of(job).withdrawn;
    if (claims.size() >= kClaimsMost) claims.clear();
    claims.insert(claim);
  }
  // Whether they all did, in this life of the daemon: it cannot have voted in a view that has them.
  bool withdrew(const JobId& job, const std::vector<RankInfo>& ranks) const {
    const auto it = known_.find(job);
    return it != known_.end() && std::ranges::all_of(ranks, [&](const RankInfo& info) {
             return it->second.withdrawn.count(info.claim) > 0;
           });
  }

  // The last that was remembered; null: none. Valid until the next is remembered.
  const change::Commit* commit(const JobId& job) const {
    const auto it = known_.find(job);
    return it == known_.end() || !it->second.commit ? nullptr : &*it->second.commit;
  }
  // Why it ended here; null where it did in good order, too.
  const Failure* failure(const JobId& job) const {
    const auto it = known_.find(job);
    return it == known_.end() || !it->second.failure ? nullptr : &*it->second.failure;
  }

 private:
  static constexpr size_t kJobsMost = 256;
  static constexpr size_t kClaimsMost = 4096;  // of a job
  struct Known {
    std::optional<change::Commit> commit;
    std::optional<Failure> failure;
    std::set<uint64_t> withdrawn;
    std::optional<Failed> failed;
    std::set<uint32_t> missed;  // ranks that had missed that it failed, and have heard of it since
  };
  Known& of(const JobId& job) {
    const auto [it, is_new] = known_.try_emplace(job);
    if (!is_new) return it->second;
    in_order_.push_back(job);
    if (in_order_.size() > kJobsMost) {
      known_.erase(in_order_.front());
      in_order_.pop_front();
    }
    return it->second;
  }

  std::map<JobId, Known> known_;
  std::deque<JobId> in_order_;
};

}  // namespace gradring::core
