// gradring-e2e-trainer: a trainer that misbehaves on order and reports each step as a line of JSON,
// with CLOCK_MONOTONIC in seconds, so that a test can compare times between processes.
#include "tests/e2e/trainer.h"

#include <unistd.h>

#include <boost/program_options.hpp>
#include <chrono>
#include <cstring>
#include <iostream>
#include <limits>
#include <thread>

namespace gradring::e2e {

void say(Json line) {
  const std::chrono::duration<double> now = std::chrono::steady_clock::now().time_since_epoch();
  line["time"] = now.count();
  std::cout << line.dump() << '\n' << std::flush;
}

void hang() {
  for (;;) pause();
}

gradring_op describe(const Options& options, float* buffer) {
  gradring_op op{};
  op.struct_size = sizeof op;
  op.collective = options.collective == "broadcast" ? GRADRING_BROADCAST
                  : options.collective == "barrier" ? GRADRING_BARRIER
                                                    : GRADRING_ALLREDUCE;
  op.dtype = GRADRING_FLOAT32;
  op.op = GRADRING_SUM;
  op.root = options.root;
  op.count = options.count;
  op.input = buffer;
  op.output = buffer;
  return op;
}

Json report(uint64_t op, gradring_code code, const gradring_result& result) {
  return {{"event", "done"},
          {"op", op},
          {"code", code},
          {"verdict", result.verdict},
          {"cause", result.cause},
          {"blamed_rank", result.blamed_rank},
          {"blamed_node", result.blamed_node},
          {"blamed_pid", result.blamed_pid},
          {"ranks", result.ranks_min},
          {"ranks_max", result.ranks_max},
          {"epoch", result.epoch},
          {"size", result.size},
          {"message", code == GRADRING_OK ? "" : gradring_last_error()}};
}

bool act_before(const Options& options, uint64_t number) {
  if (options.at != static_cast<int64_t>(number)) return false;
  if (options.act == "hang") {
    say({{"event", "hanging"}, {"op", number}});
    hang();
  }
  if (options.act == "exit") {
    say({{"event", "exiting"}, {"op", number}});
    _exit(0);
  }
  return options.act == "leave";
}

float* allocate(gradring_comm* comm, uint64_t count) {
  void* memory = nullptr;
  if (gradring_alloc(comm, count * sizeof(float), &memory) == GRADRING_OK) {
    return static_cast<float*>(memory);
  }
  say({{"event", "refused"}, {"message", gradring_last_error()}});
  return nullptr;
}

gradring_code submit_and_wait(const Options& options, gradring_comm* comm, uint64_t number,
                              const gradring_op& op, Json* line) {
  gradring_request request = 0;
  gradring_code code = gradring_submit(comm, &op, &request);
  if (code != GRADRING_OK) {
    *line = {
        {"event", "refused"}, {"op", number}, {"code", code}, {"message", gradring_last_error()}};
    return code;
  }
  say({{"event", "submitted"}, {"op", number}});
  if (options.at == static_cast<int64_t>(number) && options.act == "submit-and-hang") hang();
  gradring_result result{};
  result.struct_size = sizeof result;
  code = gradring_wait(comm, request, options.patience_ms, &result);
  *line = report(number, code, result);
  return code;
}

}  // namespace gradring::e2e

namespace {

using namespace gradring::e2e;
namespace po = boost::program_options;

// What the ranks sum: small whole numbers, whose sum is exact in every type. It differs from op to
// op, so that an old result is not taken for a new one.
float input_of(int rank, uint64_t op) { return static_cast<float>((rank + 1) * (op % 7 + 1)); }

float output_of(int size, uint64_t op) {
  const uint64_t ranks = static_cast<uint64_t>(size) * (size + 1) / 2;  // 1 + 2 + ... + size
  return static_cast<float>(ranks * (op % 7 + 1));
}

// The op that no other rank submits.
void make_odd(const std::string& act, int rank, gradring_op& op) {
  if (act == "odd-count") op.count /= 2;
  if (act == "odd-dtype") op.dtype = GRADRING_INT32;
  if (act == "odd-op") op.op = GRADRING_MAX;
  if (act == "odd-root") op.root = static_cast<uint32_t>(rank);
  if (act == "odd-wire") op.wire = GRADRING_WIRE_INT8;
  if (act == "odd-collective") op.collective = GRADRING_BARRIER;
}

// A value that spoils the sum of one element, in the middle.
void spoil(const Options& options, float* buffer) {
  using Limits = std::numeric_limits<float>;
  if (options.act == "nan") buffer[options.count / 2] = Limits::quiet_NaN();
  if (options.act == "largest") buffer[options.count / 2] = Limits::max();
}

bool is_right(const Options& options, int size, uint64_t op, const float* buffer) {
  const float expected = options.collective == "allreduce"
                             ? output_of(size, op)
                             : input_of(static_cast<int>(options.root), op);
  for (uint64_t i = 0; options.collective != "barrier" && i < options.count; ++i) {
    if (buffer[i] != expected) return false;
  }
  return true;
}

int train(const Options& options, gradring_comm* comm) {
  const int rank = gradring_rank(comm), size = gradring_size(comm);
  float* buffer = allocate(comm, options.count);
  if (buffer == nullptr) return 1;
  int status = 0;
  for (uint64_t number = 0; number < options.ops; ++number) {
    std::this_thread::sleep_for(std::chrono::milliseconds(options.delay_ms));
    if (act_before(options, number)) break;
    std::fill_n(buffer, options.count, input_of(rank, number));
    gradring_op op = describe(options, buffer);
    if (options.at == static_cast<int64_t>(number)) {
      make_odd(options.act, rank, op);
      spoil(options, buffer);
    }
    Json line;
    const gradring_code code = submit_and_wait(options, comm, number, op, &line);
    if (code == GRADRING_OK) line["right"] = is_right(options, size, number, buffer);
    say(line);
    if (line["event"] == "refused") return 1;
    if (code != GRADRING_OK || !line["right"]) status = 1;
    if (status != 0 && !options.keep_going) break;
  }
  return status;
}

bool parse(int argc, char** argv, Options& options) {
  po::options_description known(
      "A trainer for tests. Rank, size and job come from the environment");
  // clang-format off
  known.add_options()
    ("help", "show this")
    ("ops", po::value(&options.ops), "how many ops, one after the other")
    ("count", po::value(&options.count), "float32 elements of each")
    ("collective", po::value(&options.collective), "allreduce (sum), broadcast or barrier")
    ("root", po::value(&options.root), "the rank to broadcast from")
    ("delay-ms", po::value(&options.delay_ms), "sleep so long before each op")
    ("at", po::value(&options.at), "the op, from 0, at which to --act")
    ("act", po::value(&options.act), "hang, submit-and-hang, exit, leave, or submit what no other rank does: "
                                     "odd-count, odd-dtype, odd-op, odd-root, odd-wire, odd-collective; "
                                     "or put a NaN (nan) or the largest number (largest) among the values")
    ("keep-going", po::bool_switch(&options.keep_going), "after an op that failed")
    ("patience-ms", po::value(&options.patience_ms), "how long to wait for an op")
    ("join-timeout-ms", po::value(&options.join_timeout_ms), "how long to wait for the other ranks")
    ("policy", po::value(&options.policy), "of the job; default: as the environment says")
    ("wire", po::value(&options.wire), "as what float32 travels between nodes; default: as the environment says")
    ("uneven", po::bool_switch(&options.uneven), "ranks with unequal numbers of ops: those that have no more join")
    ("pairs", po::bool_switch(&options.pairs), "send to both neighbours and receive from them, instead of ops of all")
    ("groups", po::value(&options.groups), "of ranks, as in 0,1/2,3,4: each op is one of each of this rank's groups, then one of "
                                           "the job, all in the same memory")
    ("join-every", po::value(&options.join_every), "a join point before the first op and every so many; 0: none. Inputs are "
                                                   "then powers of two, so that a sum tells who is in it");
  // clang-format on
  po::variables_map values;
  po::store(po::parse_command_line(argc, argv, known), values);
  po::notify(values);
  if (values.count("help") > 0) std::cout << known;
  return values.count("help") == 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  try {
    if (!parse(argc, argv, options)) return 0;
  } catch (const po::error& error) {
    std::cerr << "gradring-e2e-trainer: " << error.what() << "\n";
    return 2;
  }
  gradring_options join;
  gradring_options_init(&join);
  if (!options.policy.empty()) join.policy = options.policy.c_str();
  if (!options.wire.empty()) join.wire = options.wire.c_str();
  if (options.join_timeout_ms > 0) join.join_timeout_ms = options.join_timeout_ms;
  say({{"event", "started"}, {"pid", getpid()}});
  gradring_comm* comm = nullptr;
  const gradring_code code = gradring_open(&join, &comm);
  if (code != GRADRING_OK) {
    say({{"event", "refused"}, {"code", code}, {"message", gradring_last_error()}});
    return 1;
  }
  say({{"event", "joined"},
       {"rank", gradring_rank(comm)},
       {"size", gradring_size(comm)},
       {"local_rank", gradring_local_rank(comm)},
       {"node", gradring_node(comm)},
       {"epoch", gradring_epoch(comm)},
       {"pid", getpid()}});
  const int status = options.pairs             ? train_in_pairs(options, comm)
                     : options.uneven          ? train_on_uneven_data(options, comm)
                     : !options.groups.empty() ? train_in_groups(options, comm)
                     : options.join_every > 0  ? train_elastic(options, comm)
                                               : train(options, comm);
  gradring_close(comm);
  say({{"event", "left"}});
  return status;
}
