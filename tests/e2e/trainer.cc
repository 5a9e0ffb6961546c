// gradring-e2e-trainer: a trainer that misbehaves on order and reports each step as a line of JSON,
// with CLOCK_MONOTONIC in seconds, so that a test can compare times between processes.
#include <gradring/gradring.h>
#include <unistd.h>

#include <boost/program_options.hpp>
#include <chrono>
#include <cstring>
#include <iostream>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

namespace {

namespace po = boost::program_options;
using Json = nlohmann::ordered_json;

struct Options {
  uint64_t ops = 1;
  uint64_t count = 1024;
  std::string collective = "allreduce";
  uint64_t delay_ms = 0;
  int64_t at = -1;
  std::string act = "nothing";
  bool keep_going = false;
  int64_t patience_ms = 60'000;
  int64_t join_timeout_ms = 0;
};

void say(Json line) {
  const std::chrono::duration<double> now = std::chrono::steady_clock::now().time_since_epoch();
  line["time"] = now.count();
  std::cout << line.dump() << std::endl;
}

// Ends only by a signal: what the tests send.
[[noreturn]] void hang() {
  for (;;) pause();
}

// What the ranks sum: small whole numbers, whose sum is exact in every type. It differs from op to
// op, so that an old result is not taken for a new one.
float input_of(int rank, uint64_t op) { return static_cast<float>((rank + 1) * (op % 7 + 1)); }

float output_of(int size, uint64_t op) {
  const uint64_t ranks = static_cast<uint64_t>(size) * (size + 1) / 2;  // 1 + 2 + ... + size
  return static_cast<float>(ranks * (op % 7 + 1));
}

gradring_op describe(const Options& options, float* buffer) {
  gradring_op op{};
  op.struct_size = sizeof op;
  op.collective = options.collective == "broadcast" ? GRADRING_BROADCAST
                  : options.collective == "barrier" ? GRADRING_BARRIER
                                                    : GRADRING_ALLREDUCE;
  op.dtype = GRADRING_FLOAT32;
  op.op = GRADRING_SUM;
  op.count = options.count;
  op.input = buffer;
  op.output = buffer;
  return op;
}

// The op that no other rank submits.
void make_odd(const std::string& act, int rank, gradring_op& op) {
  if (act == "odd-count") op.count /= 2;
  if (act == "odd-dtype") op.dtype = GRADRING_INT32;
  if (act == "odd-op") op.op = GRADRING_MAX;
  if (act == "odd-root") op.root = static_cast<uint32_t>(rank);
  if (act == "odd-collective") op.collective = GRADRING_BARRIER;
}

// A value that spoils the sum of one element, in the middle.
void spoil(const Options& options, float* buffer) {
  using Limits = std::numeric_limits<float>;
  if (options.act == "nan") buffer[options.count / 2] = Limits::quiet_NaN();
  if (options.act == "largest") buffer[options.count / 2] = Limits::max();
}

bool is_right(const Options& options, int size, uint64_t op, const float* buffer) {
  const float expected = options.collective == "allreduce" ? output_of(size, op) : input_of(0, op);
  for (uint64_t i = 0; options.collective != "barrier" && i < options.count; ++i) {
    if (buffer[i] != expected) return false;
  }
  return true;
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
          {"message", code == GRADRING_OK ? "" : gradring_last_error()}};
}

int train(const Options& options, gradring_comm* comm) {
  const int rank = gradring_rank(comm), size = gradring_size(comm);
  void* memory = nullptr;
  if (gradring_alloc(comm, options.count * sizeof(float), &memory) != GRADRING_OK) {
    say({{"event", "refused"}, {"message", gradring_last_error()}});
    return 1;
  }
  auto* buffer = static_cast<float*>(memory);
  int status = 0;
  for (uint64_t number = 0; number < options.ops; ++number) {
    std::this_thread::sleep_for(std::chrono::milliseconds(options.delay_ms));
    const bool now = options.at == static_cast<int64_t>(number);
    if (now && options.act == "hang") {
      say({{"event", "hanging"}, {"op", number}});
      hang();
    }
    if (now && options.act == "exit") {
      say({{"event", "exiting"}, {"op", number}});
      _exit(0);
    }
    if (now && options.act == "leave") break;
    std::fill_n(buffer, options.count, input_of(rank, number));
    gradring_op op = describe(options, buffer);
    if (now) {
      make_odd(options.act, rank, op);
      spoil(options, buffer);
    }
    gradring_request request = 0;
    gradring_code code = gradring_submit(comm, &op, &request);
    if (code != GRADRING_OK) {
      say({{"event", "refused"},
           {"op", number},
           {"code", code},
           {"message", gradring_last_error()}});
      return 1;
    }
    say({{"event", "submitted"}, {"op", number}});
    if (now && options.act == "submit-and-hang") hang();
    gradring_result result{};
    result.struct_size = sizeof result;
    code = gradring_wait(comm, request, options.patience_ms, &result);
    Json line = report(number, code, result);
    if (code == GRADRING_OK) line["right"] = is_right(options, size, number, buffer);
    say(line);
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
    ("collective", po::value(&options.collective), "allreduce (sum), broadcast (from rank 0) or barrier")
    ("delay-ms", po::value(&options.delay_ms), "sleep so long before each op")
    ("at", po::value(&options.at), "the op, from 0, at which to --act")
    ("act", po::value(&options.act), "hang, submit-and-hang, exit, leave, or submit what no other rank does: "
                                     "odd-count, odd-dtype, odd-op, odd-root, odd-collective; "
                                     "or put a NaN (nan) or the largest number (largest) among the values")
    ("keep-going", po::bool_switch(&options.keep_going), "after an op that failed")
    ("patience-ms", po::value(&options.patience_ms), "how long to wait for an op")
    ("join-timeout-ms", po::value(&options.join_timeout_ms), "how long to wait for the other ranks");
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
       {"node", gradring_node(comm)},
       {"pid", getpid()}});
  const int status = train(options, comm);
  gradring_close(comm);
  say({{"event", "left"}});
  return status;
}
