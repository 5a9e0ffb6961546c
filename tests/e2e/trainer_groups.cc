// The trainer of a job with groups: sums in each group that this rank is in, then in the job.
#include <algorithm>
#include <chrono>
#include <sstream>
#include <thread>
#include <vector>

#include "tests/e2e/trainer.h"

namespace gradring::e2e {
namespace {

struct Group {
  std::string name;  // as in the option
  std::vector<uint32_t> ranks;
  gradring_comm* comm = nullptr;
  bool over = false;
};

std::vector<Group> groups_with(uint32_t rank, const std::string& words) {
  std::vector<Group> found;
  std::istringstream lists(words);
  for (std::string list; std::getline(lists, list, '/');) {
    Group group{list, {}, nullptr, false};
    std::istringstream numbers(list);
    for (std::string number; std::getline(numbers, number, ',');) {
      group.ranks.push_back(static_cast<uint32_t>(std::stoul(number)));
    }
    const auto own = std::find(group.ranks.begin(), group.ranks.end(), rank);
    if (own != group.ranks.end()) found.push_back(group);
  }
  return found;
}

// Powers of two: a sum tells whose it is.
float input_of(uint32_t rank, uint64_t number) {
  return static_cast<float>((1u << rank) * (number % 7 + 1));
}

float sum_of(const std::vector<uint32_t>& ranks, uint64_t number) {
  float sum = 0;
  for (const uint32_t rank : ranks) sum += input_of(rank, number);
  return sum;
}

class Trainer {
 public:
  Trainer(const Options& options, gradring_comm* comm)
      : options_(options), comm_(comm), rank_(static_cast<uint32_t>(gradring_rank(comm))) {}

  int run() {
    const auto size = static_cast<uint32_t>(gradring_size(comm_));
    for (uint32_t rank = 0; rank < size; ++rank) all_.push_back(rank);
    buffer_ = allocate(comm_, options_.count);
    if (buffer_ == nullptr || !open_groups()) return 1;
    int status = 0;
    for (uint64_t number = 0; number < options_.ops; ++number) {
      std::this_thread::sleep_for(std::chrono::milliseconds(options_.delay_ms));
      if (act_before(options_, number)) break;
      for (Group& group : groups_) {
        if (!group.over && !step(group.comm, group.name, group.ranks, number)) group.over = true;
        if (group.over) status = 1;
      }
      if (!step(comm_, "", all_, number)) status = 1;
      if (status != 0 && !options_.keep_going) break;
    }
    for (const Group& group : groups_) gradring_close(group.comm);
    return status;
  }

 private:
  bool open_groups() {
    groups_ = groups_with(rank_, options_.groups);
    for (Group& group : groups_) {
      const gradring_code code = gradring_group(
          comm_, group.ranks.data(), static_cast<uint32_t>(group.ranks.size()), &group.comm);
      if (code == GRADRING_OK) continue;
      say({{"event", "refused"}, {"code", code}, {"message", gradring_last_error()}});
      return false;
    }
    return true;
  }

  // An op that lost contributions is right where its elements are all the same.
  bool step(gradring_comm* comm, const std::string& group, const std::vector<uint32_t>& ranks,
            uint64_t number) {
    std::fill_n(buffer_, options_.count, input_of(rank_, number));
    gradring_request request = 0;
    const gradring_op op = describe(options_, buffer_);
    gradring_code code = gradring_submit(comm, &op, &request);
    gradring_result result{};
    result.struct_size = sizeof result;
    if (code == GRADRING_OK) code = gradring_wait(comm, request, options_.patience_ms, &result);
    Json line = report(number, code, result);
    const float expected =
        result.verdict == GRADRING_VERDICT_OK_SHRUNK ? buffer_[0] : sum_of(ranks, number);
    line["group"] = group;
    line["right"] = std::all_of(buffer_, buffer_ + options_.count,
                                [&](float value) { return value == expected; });
    if (options_.policy == "elastic" && group.empty()) {
      line["right"] = code == GRADRING_OK;  // who is in it, the elastic trainer looks at
    }
    say(line);
    return code == GRADRING_OK && line["right"];
  }

  const Options& options_;
  gradring_comm* const comm_;
  const uint32_t rank_;
  std::vector<uint32_t> all_;
  std::vector<Group> groups_;
  float* buffer_ = nullptr;
};

}  // namespace

int train_in_groups(const Options& options, gradring_comm* comm) {
  return Trainer(options, comm).run();
}

}  // namespace gradring::e2e
