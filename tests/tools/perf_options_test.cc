// The command line of gradring-perf.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/tools/process.h"
#include "tools/perf/options.h"

namespace gradring::tools {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::StartsWith;

auto parse(std::vector<const char*> words) {
  words.insert(words.begin(), "gradring-perf");
  return parse_perf_options(static_cast<int>(words.size()), words.data());
}

TEST(PerfOptions, AsInTheManual) {
  const auto options =
      parse({"allreduce", "--min", "4K", "--max", "256M", "--factor", "4", "--dtype", "float32",
             "--op", "sum", "--ranks", "2", "--check", "--iters", "7"});
  ASSERT_TRUE(options && *options) << options.error();
  EXPECT_EQ((*options)->collective, Collective::kAllreduce);
  EXPECT_THAT((*options)->cases, SizeIs(9));
  EXPECT_EQ((*options)->cases.back().bytes(), 256u << 20);
  EXPECT_EQ((*options)->ranks, 2);
  EXPECT_EQ((*options)->iters, 7);
  EXPECT_TRUE((*options)->check);
  EXPECT_THAT((*parse({"allreduce", "--all", "--min=8", "--max=8"}))->cases, SizeIs(83));
}

// Scripts give all collectives the same flags, so they are taken; people are told.
TEST(PerfOptions, OfOtherCollectivesAreTakenAndSaidToChangeNothing) {
  EXPECT_EQ((*parse({"allreduce", "--root", "7"}))->unused,
            "--root changes nothing here: allreduce has none");
  EXPECT_EQ((*parse({"broadcast", "--op", "max"}))->unused,
            "--op changes nothing here: broadcast has none");
  EXPECT_EQ((*parse({"barrier", "--op=max", "--root=1"}))->unused,
            "--op or --root changes nothing here: barrier has none");
  EXPECT_EQ((*parse({"reduce", "--op", "max", "--root", "1"}))->unused, "");
  EXPECT_EQ((*parse({"barrier"}))->unused, "") << "it said so of defaults";
}

TEST(PerfOptions, AreRefusedInWords) {
  EXPECT_THAT(parse({}).error(), HasSubstr("what to measure"));
  for (const char* join : {"join", "join point"}) {
    EXPECT_THAT(parse({join}).error(), HasSubstr("what to measure")) << join;
  }
  EXPECT_THAT(parse({"alltoeverybody"}).error(), HasSubstr("alltoeverybody"));
  EXPECT_THAT(parse({"allreduce", "broadcast"}).error(), HasSubstr("a word too many"));
  EXPECT_THAT(parse({"allreduce", "--min", "4X"}).error(), HasSubstr("--min 4X"));
  EXPECT_THAT(parse({"allreduce", "--min", "8K", "--max", "4K"}).error(),
              HasSubstr("--min 8K is above --max 4K"));
  EXPECT_THAT(parse({"allreduce", "--max", "2T"}).error(), HasSubstr("go from 1 to 1T"));
  EXPECT_THAT(parse({"allreduce", "--factor", "1"}).error(), HasSubstr("--factor"));
  EXPECT_THAT(parse({"allreduce", "--dtype", "int128"}).error(), HasSubstr("int128"));
  EXPECT_THAT(parse({"allreduce", "--op", "none"}).error(), HasSubstr("none"));
  EXPECT_THAT(parse({"allreduce", "--dtype", "int32", "--op", "average"}).error(),
              HasSubstr("average"));
  EXPECT_THAT(parse({"broadcast", "--root", "-1"}).error(), HasSubstr("--root"));
  EXPECT_FALSE(parse({"allreduce", "--json", ""})) << "a variable of the shell that is not set";
  const auto no_rank = parse({"broadcast", "--root", "4294967297"});
  ASSERT_FALSE(no_rank) << "it was rank 1";
  EXPECT_THAT(no_rank.error(), HasSubstr("--root"));
  EXPECT_THAT(parse({"allreduce", "--ranks", "0"}).error(), HasSubstr("--ranks"));
  EXPECT_THAT(parse({"allreduce", "--together", "0"}).error(), HasSubstr("--together"));
  EXPECT_THAT(parse({"allreduce", "--iters", "-1"}).error(), HasSubstr("--iters"));
  EXPECT_THAT(parse({"allreduce", "--iters", "%value%"}).error(), HasSubstr("--iters"));
}

TEST(PerfOptions, MemoryIsTheHostsOrAGpus) {
  EXPECT_EQ((*parse({"allreduce"}))->memory.kind, MemoryKind::kHost);
  const auto options = parse({"allreduce", "--memory", "gpu-pool", "--gpu", "3"});
  EXPECT_EQ((*options)->memory.kind, MemoryKind::kPool);
  EXPECT_EQ((*options)->memory.gpu, 3);
  EXPECT_EQ((*parse({"allreduce", "--memory", "gpu"}))->memory.gpu, -1);
  EXPECT_THAT(parse({"allreduce", "--memory", "tape"}).error(), HasSubstr("--memory tape"));
  EXPECT_THAT(parse({"allreduce", "--gpu", "0"}).error(), HasSubstr("--gpu"));
  EXPECT_THAT(parse({"allreduce", "--memory", "gpu", "--gpu", "-2"}).error(), HasSubstr("--gpu"));
}

TEST(PerfOptions, AWireTypeIsNamed) {
  EXPECT_EQ((*parse({"allreduce", "--wire", "bf16", "--check"}))->wire, "bf16");
  EXPECT_THAT(parse({"allreduce", "--wire", "int4"}).error(), HasSubstr("--wire int4"));
  EXPECT_THAT(parse({"allreduce", "--wire", "int8", "--dtype", "float64"}).error(),
              HasSubstr("--wire int8"));
  EXPECT_TRUE(parse({"allreduce", "--wire", "native", "--dtype", "float64"}));
  EXPECT_TRUE(parse({"allreduce", "--wire", "bf16", "--all"}));
}

TEST(PerfOptions, BlocksAreUnevenWhereThereAreSome) {
  EXPECT_TRUE((*parse({"alltoall", "--uneven", "--check"}))->cases.back().uneven);
  EXPECT_TRUE((*parse({"gather", "--uneven", "--all"}))->cases.back().uneven);
  EXPECT_FALSE((*parse({"gather"}))->cases.back().uneven);
  EXPECT_THAT(parse({"allreduce", "--uneven"}).error(), HasSubstr("allreduce has none"));
}

TEST(PerfOptions, AFactorIsOfFloatsAndCheckedOnlyWhereItIsExact) {
  EXPECT_EQ((*parse({"allreduce", "--scale", "0.25", "--check"}))->cases.back().scale, 0.25);
  EXPECT_THAT(parse({"allreduce", "--scale", "3", "--check"}).error(), HasSubstr("power of two"));
  EXPECT_EQ((*parse({"allreduce", "--scale", "3"}))->cases.back().scale, 3);
  EXPECT_THAT(parse({"allreduce", "--scale", "2", "--op", "product", "--check"}).error(),
              HasSubstr("--scale a sum"));
  EXPECT_THAT(parse({"allreduce", "--scale", "2", "--dtype", "int32"}).error(),
              HasSubstr("int32 cannot be scaled"));
  EXPECT_THAT(parse({"broadcast", "--scale", "2"}).error(), HasSubstr("cannot be scaled"));
  EXPECT_THAT(parse({"allreduce", "--scale", "2", "--all"}).error(), HasSubstr("leave --all out"));
  for (const char* one : {"--dtype=int8", "--op=max"}) {
    EXPECT_THAT(parse({"allreduce", "--all", one}).error(), HasSubstr("leave it out")) << one;
  }
}

TEST(PerfOptions, ARankOfTheEnvironmentThatIsNoNumberIsNamed) {
  const auto outcome = run({"RANK=$INDEX", "WORLD_SIZE=4", GRADRING_PERF, "allreduce"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, StartsWith("gradring-perf: the rank is not known"));
  EXPECT_THAT(outcome.err, HasSubstr("RANK is '$INDEX', which is not a number"));
}

TEST(PerfOptions, HelpThatCannotBeWrittenIsToldInWords) {
  const auto outcome = run_without_room({GRADRING_PERF, "--help"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_NE(outcome.err.find("cannot write the answer"), std::string::npos) << outcome.err;
}

}  // namespace
}  // namespace gradring::tools
