#include "client/python/binding/job.h"

#include <algorithm>
#include <mutex>
#include <string_view>
#include <utility>

namespace gradring::python {
namespace {

void set(const char*& field, const std::optional<std::string>& value) {
  if (value) field = value->c_str();
}

void set(int32_t& field, const std::optional<int32_t>& value) {
  if (value) field = *value;
}

std::shared_ptr<gradring_comm> owned(gradring_comm* comm) { return {comm, gradring_close}; }

// What a process is in; few, and of each no more than that.
class Opened {
 public:
  void add(const std::shared_ptr<gradring_comm>& comm) {
    const std::lock_guard lock(mutex_);
    std::erase_if(comms_, [](const auto& known) { return known.expired(); });
    comms_.push_back(comm);
  }
  std::vector<std::shared_ptr<gradring_comm>> all() {
    const std::lock_guard lock(mutex_);
    std::vector<std::shared_ptr<gradring_comm>> alive;
    for (const auto& known : comms_) {
      if (auto comm = known.lock()) alive.push_back(std::move(comm));
    }
    return alive;
  }

 private:
  std::mutex mutex_;
  std::vector<std::weak_ptr<gradring_comm>> comms_;
};

Opened& opened() {
  static Opened jobs;
  return jobs;
}

Opened& grouped() {
  static Opened groups;
  return groups;
}

// Groups first: their ops are what others wait in.
std::vector<std::shared_ptr<gradring_comm>> all() {
  std::vector<std::shared_ptr<gradring_comm>> comms = grouped().all();
  for (auto& comm : opened().all()) comms.push_back(std::move(comm));
  return comms;
}

// The first ones of a large group: a sentence is to be read.
std::string in_words(const std::vector<uint32_t>& ranks) {
  constexpr size_t kToldMost = 16;
  std::string here, there;
  for (size_t i = 0; i < ranks.size() && i < kToldMost; ++i) {
    const char* const between = here.empty() ? "" : ", ";
    here += between + std::to_string(i);
    there += between + std::to_string(ranks[i]);
  }
  const char* const more = ranks.size() > kToldMost ? ", ..." : "";
  return "ranks " + here + more + " of this group are " + there + more + " of the job";
}

bool same_numbers(const std::vector<uint32_t>& ranks) {
  bool same = true;
  for (size_t i = 0; i < ranks.size(); ++i) same = same && ranks[i] == i;
  return same;
}

Error in_numbers_of(const std::vector<uint32_t>& ranks, const Error& error) {
  if (same_numbers(ranks)) return error;
  gradring_result result = error.result();
  const int64_t blamed = result.blamed_rank;
  std::string which = in_words(ranks);
  if (blamed >= 0 && blamed < static_cast<int64_t>(ranks.size())) {
    result.blamed_rank = static_cast<int32_t>(ranks[static_cast<size_t>(blamed)]);
    which = "rank " + std::to_string(blamed) + " of this group is rank " +
            std::to_string(result.blamed_rank) + " of the job";
  }
  return {error.code(), error.what() + ("; " + which), result};
}

}  // namespace

Job::Job(std::shared_ptr<gradring_comm> comm, std::shared_ptr<Arena> arena,
         std::vector<uint32_t> ranks)
    : comm_(std::move(comm)), arena_(std::move(arena)), ranks_(std::move(ranks)) {}

std::shared_ptr<Job> Job::open(const JobOptions& options) {
  gradring_options all;
  gradring_options_init(&all);
  set(all.runtime_dir, options.runtime_dir);
  set(all.job, options.job);
  set(all.token, options.token);
  set(all.policy, options.policy);
  set(all.wire, options.wire);
  set(all.priorities, options.priorities);
  set(all.deterministic, options.deterministic);
  set(all.rank, options.rank);
  set(all.size, options.size);
  set(all.local_rank, options.local_rank);
  set(all.local_size, options.local_size);
  if (options.join_timeout_ms != 0) all.join_timeout_ms = options.join_timeout_ms;
  gradring_comm* made = nullptr;
  if (const gradring_code code = gradring_open(&all, &made); code != GRADRING_OK) {
    const Error error(code, gradring_last_error());
    // Which ranks are missing, or what became of the job.
    if (code == GRADRING_ERR_DEADLINE || code == GRADRING_ERR_FAILED) {
      throw in_numbers_of(options.ranks, error);
    }
    throw error;
  }
  auto comm = owned(made);
  opened().add(comm);
  return std::shared_ptr<Job>(new Job(comm, std::make_shared<Arena>(comm), options.ranks));
}

void Job::abort_all(const std::string& why) {
  for (const auto& comm : all()) static_cast<void>(gradring_abort(comm.get(), why.c_str()));
}

void Job::leave_all() {
  for (const auto& comm : all()) static_cast<void>(gradring_leave(comm.get()));
}

void Job::waited_for_input(uint64_t nanoseconds) {
  for (const auto& comm : opened().all()) gradring_waited_for_input(comm.get(), nanoseconds);
}

std::shared_ptr<Job> Job::group(const std::vector<uint32_t>& ranks, int64_t timeout_ms) const {
  gradring_comm* made = nullptr;
  const gradring_code code = gradring_group_timed(
      comm_.get(), ranks.data(), static_cast<uint32_t>(ranks.size()), timeout_ms, &made);
  if (code != GRADRING_OK) {
    const Error error(code, gradring_last_error());
    const Error of_the_job = in_numbers_of_all(error);
    if (of_the_job.result().cause != GRADRING_CAUSE_NONE) throw of_the_job;
    // Which ranks are missing, or what became of the group.
    if (code == GRADRING_ERR_DEADLINE || code == GRADRING_ERR_FAILED) {
      throw in_numbers_of(ranks, error);
    }
    throw error;
  }
  auto comm = owned(made);
  grouped().add(comm);
  return std::shared_ptr<Job>(new Job(std::move(comm), arena_, ranks));
}

Error Job::in_numbers_of_all(const Error& error) const {
  if (error.code() == GRADRING_ERR_UNAVAILABLE) return with_blame(error);
  if (error.code() != GRADRING_ERR_FAILED) return error;
  return in_numbers_of(ranks_, with_blame(error));
}

std::string Job::in_numbers_of_all(std::string sentence) const {
  return same_numbers(ranks_) ? std::move(sentence) : sentence + "; " + in_words(ranks_);
}

int32_t Job::number_of_all() const {
  const auto rank = static_cast<size_t>(gradring_rank(comm_.get()));
  return static_cast<int32_t>(rank < ranks_.size() ? ranks_[rank] : rank);
}

// What is submitted to a job that is over is refused in the words of its end, and by them alone: it
// failed, or the daemon is gone.
Error Job::with_blame(const Error& error) const {
  if (error.result().cause != GRADRING_CAUSE_NONE) return error;
  gradring_result result{};
  result.struct_size = sizeof(result);
  const bool over = gradring_failure(comm_.get(), &result) == GRADRING_ERR_FAILED;
  if (!over || std::string_view(gradring_last_error()) != error.what()) return error;
  return {error.code(), error.what(), result};
}

// A daemon that does not confirm it hears of it when the communicator is closed.
void Job::leave() const { static_cast<void>(gradring_leave(comm_.get())); }

Pending::Parts Job::prepare(Call& call) const {
  Pending::Parts parts;
  parts.comm = comm_;
  parts.arena = arena_;
  if (call.on_gpu) {
    call.op.input = call.input.at;
    call.op.output = call.output.at;
  } else {
    place(call, &parts);
  }
  call.op.struct_size = sizeof(call.op);
  call.op.name = call.name.empty() ? nullptr : call.name.c_str();
  call.op.counts = call.counts.empty() ? nullptr : call.counts.data();
  call.op.counts_length = call.counts.size();
  return parts;
}

// Where the memory is none of the arena's, a block of it stands in.
void Job::place(Call& call, Pending::Parts* parts) const {
  const auto place = [&](const Extent& extent) {
    auto block = arena_->around(extent.at, extent.bytes);
    const bool shared = block != nullptr;
    if (!shared) block = arena_->take(extent.bytes);
    std::byte* const at = shared ? static_cast<std::byte*>(extent.at) : block->data;
    parts->blocks.push_back(std::move(block));
    return std::pair(at, shared);
  };
  const bool in_place = call.input.at == call.output.at && call.output.bytes > 0;
  if (call.output.bytes > 0) {
    // In place the same block is read and written.
    const Extent whole{call.output.at,
                       std::max(call.output.bytes, in_place ? call.input.bytes : 0)};
    const auto [at, shared] = place(whole);
    call.op.output = at;
    if (!shared) parts->copy_out = {call.output.at, at, call.output.bytes};
    if (in_place && call.input.bytes > 0) {
      call.op.input = at;
      if (!shared) arena_->copy(at, call.input.at, call.input.bytes);
    }
  }
  if (!in_place && call.input.bytes > 0) {
    const auto [at, shared] = place(call.input);
    call.op.input = at;
    if (!shared) arena_->copy(at, call.input.at, call.input.bytes);
  }
}

std::unique_ptr<Pending> Job::start(Call& call) const {
  leftovers_.sweep();
  Pending::Parts parts = prepare(call);
  check(gradring_submit(comm_.get(), &call.op, &parts.request));
  return std::make_unique<Pending>(std::move(parts));
}

std::vector<std::unique_ptr<Pending>> Job::start_all(std::vector<Call>& calls) const {
  leftovers_.sweep();
  std::vector<Pending::Parts> parts;
  std::vector<gradring_op> ops;
  for (Call& call : calls) {
    parts.push_back(prepare(call));
    ops.push_back(call.op);
  }
  std::vector<gradring_request> requests(calls.size());
  check(gradring_submit_all(comm_.get(), ops.data(), static_cast<uint32_t>(ops.size()),
                            requests.data()));
  std::vector<std::unique_ptr<Pending>> started;
  for (size_t i = 0; i < parts.size(); ++i) {
    parts[i].request = requests[i];
    started.push_back(std::make_unique<Pending>(std::move(parts[i])));
  }
  return started;
}

void Job::drop(Pending& pending) const {
  if (auto parts = pending.leave()) leftovers_.add(std::move(*parts));
}

}  // namespace gradring::python
