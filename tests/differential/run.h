#pragma once

#include <chrono>
#include <gradring/gradring.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/core/random.h"
#include "tests/differential/task.h"

namespace gradring::differential {

// One program on one of its ranks.
class Run {
 public:
  // `nodes`: of all ranks of the world. `node_sums`: as of Reference.
  Run(const Program& program, const Communicator& world, const std::vector<uint32_t>& nodes,
      const NodeSums& node_sums, std::chrono::milliseconds patience, Arenas& arenas);

  // To its end. Throws Error where that cannot be reached; its words say what was waited for.
  std::vector<std::string> finish();
  uint64_t ops() const { return tasks_.size(); }

 private:
  using Tasks = std::vector<Task*>;
  struct Member {
    std::optional<Communicator> comm;  // none where this rank is not in the group
    uint32_t rank = 0;                 // in it
  };
  struct Digest {
    uint32_t op = 0;
    uint64_t hash = 0;
  };

  void make_groups(uint32_t phase);
  Tasks make_tasks(uint32_t phase);
  Tasks shuffled_by_stream(const Tasks& tasks);
  void submit(const Tasks& tasks);
  void try_refused(const Communicator& comm, const gradring_op& like);
  void wait_for(Tasks tasks);
  void end(Task& task, gradring_code code, const gradring_result& result);
  gradring_code wait(const Communicator& comm, Task& task, gradring_result* result);
  // One that every rank of the group submits, and that is not compared.
  void must_end(const Communicator& comm, const gradring_op& op);
  void compare_digests(uint32_t group);
  void leave(uint32_t group);
  std::vector<uint32_t> nodes_of(uint32_t group) const;
  NodeSums node_sums_of(uint32_t group) const;
  const Communicator& comm_of(const Task& task) const { return *groups_[task.op().group].comm; }
  // At the beginning of every sentence.
  std::string place() const;
  void complain(const Op& op, const std::string& what);
  [[noreturn]] void give_up(const Op& op, gradring_code code);

  const Program& program_;
  const Communicator& world_;
  const std::vector<uint32_t>& nodes_;
  const NodeSums node_sums_;  // by rank of the world
  const std::chrono::milliseconds patience_;
  Arenas& arenas_;
  core::Random random_;  // of what is this rank's own affair
  std::vector<Member> groups_;
  std::vector<std::unique_ptr<Task>> tasks_;
  std::vector<std::vector<Digest>> digests_;  // by group
  std::vector<std::string> faults_;
};

}  // namespace gradring::differential
