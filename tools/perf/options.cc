#include "tools/perf/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <boost/program_options.hpp>
#include <cmath>
#include <iostream>
#include <limits>

#include "proto/reduction.h"
#include "proto/version.h"
#include "tools/common/option_error.h"
#include "tools/common/size.h"
#include "tools/common/text.h"

namespace gradring::tools {
namespace {

namespace po = boost::program_options;

constexpr int kRanksMax = 1024;  // processes on one host
constexpr int kTogetherMax = 4096;
constexpr uint64_t kSizeMax = uint64_t{1} << 40;

constexpr char kIntroduction[] =
    "usage: gradring-perf COLLECTIVE [OPTION]...\n"
    "\n"
    "Measures a collective as a trainer sees it, and prints the columns of nccl-tests: allreduce, "
    "broadcast,\n"
    "reduce, allgather, reduce-scatter, gather, scatter, alltoall or barrier.\n"
    "\n"
    "  gradring-perf allreduce --ranks 4 --check\n"
    "  gradring-run -np 8 -H alpha:4,beta:4 gradring-perf allreduce --max 64M\n"
    "  gradring-perf allreduce --ranks 8 --memory gpu\n"
    "\n"
    "With RANK (or GRADRING_RANK, OMPI_COMM_WORLD_RANK, SLURM_PROCID, ...) in the environment it "
    "is that\n"
    "rank of a job that somebody else started; else it starts --ranks of itself on this host.\n";

constexpr char kEnding[] =
    "\nSIZE is bytes, or a number with K, M, G or T (powers of 1024), of the larger of a rank's "
    "two\n"
    "buffers. These are used in place, but for alltoall. count is elements, in one block where "
    "buffers\n"
    "are in blocks. algbw is size / time; busbw is algbw x 2(n-1)/n for an allreduce of n ranks, "
    "algbw for\n"
    "broadcast and reduce, algbw x (n-1)/n for the others;\n"
    "GB are 10^9 bytes, time is that of rank 0. With --check each size is verified before and "
    "after it is\n"
    "timed, on every rank; #wrong counts the elements of all ranks.\n"
    "\n"
    "Exit code: 0 good, 1 wrong results or a failure, 2 usage.\n";

constexpr char kDtypeNames[] =
    "float32 float64 float16 bfloat16 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool "
    "float8_e4m3 float8_e5m2";
constexpr char kOpNames[] = "sum average min max product band bor bxor";

struct Raw {
  std::string collective, min, max, dtype, op, memory;
  int64_t factor = 4, root = 0;
  double scale = 1;
  bool all = false, uneven = false, chosen = false;  // chosen: a type or an operation
};

tl::expected<SizeRange, std::string> range_of(const Raw& raw) {
  const auto min = parse_size(raw.min), max = parse_size(raw.max);
  if (!min || !max || *min < 1 || *max < 1 || std::max(*min, *max) > kSizeMax) {
    return tl::unexpected(
        fmt::format("--min {} --max {}: sizes go from 1 to 1T, such as 4K or 256M",
                    printable(raw.min), printable(raw.max)));
  }
  if (*max < *min) {
    return tl::unexpected(fmt::format("--min {} is above --max {}; both have a default, see --help",
                                      printable(raw.min), printable(raw.max)));
  }
  if (raw.factor < 2 || raw.factor > 1024) {
    return tl::unexpected(std::string("--factor is the step from size to size, 2 to 1024"));
  }
  return SizeRange{*min, *max, static_cast<uint64_t>(raw.factor)};
}

tl::expected<std::vector<Case>, std::string> cases_for(Collective collective, const Raw& raw) {
  const auto range = range_of(raw);
  if (!range) return tl::unexpected(range.error());
  const auto dtype = parse_dtype(raw.dtype);
  if (!dtype) {
    return tl::unexpected(
        fmt::format("--dtype {} is none of {}", printable(raw.dtype), kDtypeNames));
  }
  const auto op = parse_reduce_op(raw.op);
  if (!op) {
    return tl::unexpected(fmt::format("--op {} is none of {}", printable(raw.op), kOpNames));
  }
  if (raw.root < 0 || raw.root > std::numeric_limits<int32_t>::max()) {
    return tl::unexpected(std::string("--root is a rank, from 0 on"));
  }
  const auto root = static_cast<uint32_t>(raw.root);
  if (raw.all && raw.chosen) {
    return tl::unexpected(
        std::string("--all is all types and operations; leave it out, or --dtype and --op"));
  }
  if (raw.all && raw.scale != 1) {
    return tl::unexpected(std::string("--scale is of one type and operation; leave --all out"));
  }
  if (raw.uneven && !in_blocks(collective)) {
    return tl::unexpected(
        fmt::format("--uneven is of collectives in blocks; {} has none", name_of(collective)));
  }
  if (raw.all) {
    auto cases = all_cases(collective, *range, root);
    for (Case& one : cases) one.uneven = raw.uneven;
    return cases;
  }
  if (Status fault = can_reduce(*dtype, *op); reduces(collective) && !fault.ok()) {
    return tl::unexpected("--op: " + fault.message());
  }
  if (Status fault = can_scale(collective, *dtype, raw.scale); !fault.ok()) {
    return tl::unexpected("--scale: " + fault.message());
  }
  auto cases = cases_of(collective, *range, *dtype, *op, root);
  for (Case& one : cases) {
    one.scale = raw.scale;
    one.uneven = raw.uneven;
  }
  return cases;
}

// Whoever measures several collectives gives all of them the same flags; but who believes to have
// measured a sum from rank 3 is told.
std::string unused_of(Collective collective, const po::variables_map& values) {
  std::vector<std::string> flags;
  if (!values["op"].defaulted() && !reduces(collective)) flags.emplace_back("--op");
  if (!values["root"].defaulted() && !has_root(collective)) flags.emplace_back("--root");
  if (flags.empty()) return "";
  return fmt::format("{} changes nothing here: {} has none", fmt::join(flags, " or "),
                     name_of(collective));
}

std::string judge(const PerfOptions& options, const po::variables_map& values) {
  if (values.count("ranks") > 0 && (options.ranks < 1 || options.ranks > kRanksMax)) {
    return fmt::format("--ranks takes 1 to {}", kRanksMax);
  }
  if (!options.wire.empty() && !parse_wire_type(options.wire)) {
    return fmt::format("--wire {} is none of native fp16 bf16 int8", printable(options.wire));
  }
  if (!options.wire.empty() && options.wire != "native" && !any_float32(options.cases)) {
    return fmt::format("--wire {} is for float32, which is none of what is measured", options.wire);
  }
  const double scale = options.cases.front().scale;
  int exponent = 0;
  const bool exact =
      std::frexp(scale, &exponent) == 0.5 && options.cases.front().op != ReduceOp::kProduct;
  if (options.check && scale != 1 && !exact) {
    return "--check compares to the bit: --scale a sum, an average, min or max by a power of two";
  }
  if (options.together < 1 || options.together > kTogetherMax) {
    return fmt::format("--together takes 1 to {}", kTogetherMax);
  }
  if (options.iters < 0 || options.warmup < 0) return "--iters and --warmup are not negative";
  return "";
}

}  // namespace

tl::expected<std::optional<PerfOptions>, std::string> parse_perf_options(int argc,
                                                                         const char* const* argv) {
  PerfOptions options;
  Raw raw;
  po::options_description shown("Options", 100), all;
  // clang-format off
  shown.add_options()
    ("min", po::value(&raw.min)->default_value("4K")->value_name("SIZE"), "smallest size")
    ("max", po::value(&raw.max)->default_value("256M")->value_name("SIZE"), "largest size")
    ("factor", po::value(&raw.factor)->default_value(4)->value_name("F"), "from one size to the next")
    ("dtype", po::value(&raw.dtype)->default_value("float32")->value_name("TYPE"), kDtypeNames)
    ("op", po::value(&raw.op)->default_value("sum")->value_name("OP"), kOpNames)
    ("scale", po::value(&raw.scale)->default_value(1)->value_name("F"), "multiply inputs by F, and results by 1/F")
    ("wire", po::value(&options.wire)->value_name("WIRE"), "as what float32 travels between nodes: native, fp16, bf16 or int8; default: GRADRING_WIRE, else native")
    ("root", po::value(&raw.root)->default_value(0)->value_name("RANK"), "of broadcast, reduce, gather and scatter")
    ("uneven", po::bool_switch(&raw.uneven), "blocks of different lengths, some of them empty; the size is that of all together")
    ("all", po::bool_switch(&raw.all), "all types and operations")
    ("ranks", po::value(&options.ranks)->value_name("R"), "how many to start on this host")
    ("memory", po::value(&raw.memory)->default_value("host")->value_name("WHERE"), "where buffers lie: host, gpu (as a framework's tensors), gpu-registered, or gpu-pool (gradring_gpu_alloc)")
    ("gpu", po::value(&options.memory.gpu)->value_name("N"), "CUDA's number of it; default: each rank on a node the next one")
    ("iters", po::value(&options.iters)->value_name("N"), "timed repetitions; default: what takes about 0.3 s")
    ("together", po::value(&options.together)->default_value(1)->value_name("N"), "submit N ops at a time, each on memory of its own; time is that of all, divided by N")
    ("warmup", po::value(&options.warmup)->default_value(options.warmup)->value_name("N"), "repetitions before")
    ("check", po::bool_switch(&options.check), "verify every element")
    ("json", po::value(&options.json)->value_name("FILE"), "write the table for scripts too (tools/schema/perf.json)")
    ("runtime-dir", po::value(&options.runtime_dir)->value_name("DIR"), "of the daemon; default: GRADRING_RUNTIME_DIR, else /run/gradring")
    ("version", "print the version")
    ("help,h", "show this");
  // clang-format on
  all.add(shown);
  all.add_options()("collective", po::value(&raw.collective));
  po::positional_options_description positions;
  positions.add("collective", 1);
  po::variables_map values;
  try {
    const int style =
        po::command_line_style::default_style & ~po::command_line_style::allow_guessing;
    po::store(
        po::command_line_parser(argc, argv).options(all).positional(positions).style(style).run(),
        values);
    po::notify(values);
  } catch (const po::error& error) {
    return tl::unexpected(fmt::format("{}; see --help", printable(words_of(error))));
  }
  if (values.count("help") > 0) {
    std::cout << kIntroduction << "\n" << shown << kEnding;
    return std::optional<PerfOptions>();
  }
  if (values.count("version") > 0) {
    std::cout << "gradring-perf " << kProductVersion << "\n";
    return std::optional<PerfOptions>();
  }
  const auto collective = parse_collective(raw.collective);
  // A join has nothing to time: it is how a rank says that it has no more data.
  if (!collective || *collective == Collective::kJoin || *collective == Collective::kJoinPoint) {
    return tl::unexpected(
        fmt::format("what to measure? \"{}\" is none of allreduce broadcast reduce allgather "
                    "reduce-scatter gather scatter alltoall barrier; see --help",
                    printable(raw.collective)));
  }
  options.collective = *collective;
  const auto kind = parse_memory_kind(raw.memory);
  if (!kind) {
    return tl::unexpected(fmt::format("--memory {} is none of host gpu gpu-registered gpu-pool",
                                      printable(raw.memory)));
  }
  options.memory.kind = *kind;
  if (values.count("json") > 0 && options.json.empty()) {
    return tl::unexpected(std::string("--json takes the name of a file, not nothing"));
  }
  raw.chosen = !values["dtype"].defaulted() || !values["op"].defaulted();
  if (values.count("gpu") > 0 && (options.memory.gpu < 0 || *kind == MemoryKind::kHost)) {
    return tl::unexpected(
        std::string("--gpu is a number from 0 on, for a --memory that is a GPU's"));
  }
  auto cases = cases_for(*collective, raw);
  if (!cases) return tl::unexpected(cases.error());
  options.cases = std::move(*cases);
  if (std::string wrong = judge(options, values); !wrong.empty()) return tl::unexpected(wrong);
  options.unused = unused_of(*collective, values);
  return options;
}

}  // namespace gradring::tools
