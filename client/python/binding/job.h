#pragma once

#include <cstdint>
#include <gradring/gradring.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "client/python/binding/arena.h"
#include "client/python/binding/pending.h"

namespace gradring::python {

// How a rank gets into its job; what is not said, the environment says (gradring_options_init).
struct JobOptions {
  std::optional<std::string> runtime_dir, job, token, policy, wire, priorities, deterministic;
  std::optional<int32_t> rank, size, local_rank, local_size;
  int64_t join_timeout_ms = 0;
  // Of a job of some ranks of another backend's, as that numbers all of them; none: as the job
  // does.
  std::vector<uint32_t> ranks;
};

// Memory as Python has it. Bytes of 0: nothing to be read, or written.
struct Extent {
  void* at = nullptr;
  size_t bytes = 0;
};

// A collective as Python asks for it: gradring_op, with memory that need not be shared.
struct Call {
  gradring_op op{};
  std::string name;  // empty: in program order
  std::vector<uint64_t> counts;
  Extent input;
  Extent output;  // the same as the input: in place
  // Both are a GPU's, which the library copies itself, behind what is on op.stream.
  bool on_gpu = false;
};

// A rank's place in a job or in a group of its ranks.
//
// Thread-safe, and needs no interpreter lock. Throws Error. Shared from this, so that threads that
// hold one let go of it without that lock too: nanobind would count Python's references otherwise.
class Job : public std::enable_shared_from_this<Job> {
 public:
  static std::shared_ptr<Job> open(const JobOptions& options);
  std::shared_ptr<Job> group(const std::vector<uint32_t>& ranks, int64_t timeout_ms) const;

  // Now, whatever is under way, which fails (gradring_leave). Memory stays.
  void leave() const;

  // All jobs and groups that are there still, each within its 2 s (gradring_abort).
  static void abort_all(const std::string& why);
  // Of a process that ends, whoever still holds them then.
  static void leave_all();

  // Tells all jobs that were opened and are there still (gradring_waited_for_input).
  static void waited_for_input(uint64_t nanoseconds);

  gradring_comm* comm() const { return comm_.get(); }
  Arena& arena() const { return *arena_; }

  // What is not in the arena is copied into it here, and the result out of it when it is waited
  // for.
  std::unique_ptr<Pending> start(Call& call) const;
  // All of them, or none (gradring_submit_all).
  std::vector<std::unique_ptr<Pending>> start_all(std::vector<Call>& calls) const;
  void drop(Pending& pending) const;

  // Of an op that failed, or was refused since the job has. A group numbers its ranks itself, and
  // whoever reads an error of it thinks of those of the job that it was made from.
  Error in_numbers_of_all(const Error& error) const;
  std::string in_numbers_of_all(std::string sentence) const;
  int32_t number_of_all() const;  // this rank's

 private:
  Job(std::shared_ptr<gradring_comm> comm, std::shared_ptr<Arena> arena,
      std::vector<uint32_t> ranks = {});
  Pending::Parts prepare(Call& call) const;
  void place(Call& call, Pending::Parts* parts) const;
  Error with_blame(const Error& error) const;

  std::shared_ptr<gradring_comm> comm_;
  std::shared_ptr<Arena> arena_;
  const std::vector<uint32_t> ranks_;  // of a group, as the job that has all of them does
  mutable Leftovers leftovers_;
};

}  // namespace gradring::python
