// gradring-run becomes srun where that starts the ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/tools/launcher.h"

namespace gradring::tools {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

TEST(RunBecomes, SrunInsideAnAllocation) {
  Pids fake;
  const std::string srun = fake.file("srun");
  // Starts one rank of them, as srun would on its node.
  std::ofstream(srun)
      << "#!/bin/sh\necho $GRADRING_JOB_TOKEN ${RANK-none} $1 $2\n"
         "export SLURM_PROCID=3 SLURM_STEP_NUM_TASKS=4 SLURM_LOCALID=1 SLURM_GTIDS=2,3\n"
         "export SLURM_STEP_ID=2 SLURM_STEP_NODELIST=gpu[03-04]\n"
         "while [ ${1#/} = $1 ]; do shift; done\nexec \"$@\"\n";
  chmod(srun.c_str(), 0755);
  const auto inside = [&](std::vector<std::string> options) {
    auto words =
        launch("4",
               "echo $GRADRING_JOB_TOKEN $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE "
               "$GRADRING_RUNTIME_DIR $MASTER_ADDR:$MASTER_PORT; [ ! \"$SLURM_PROCID\" ] || exit 5",
               options);
    words.insert(words.begin(),
                 {"PATH=" + fake.folder.path() + ":/usr/bin:/bin", "SLURM_JOB_ID=7",
                  "SLURM_JOB_NUM_NODES=2", "RANK=9", "MASTER_ADDR=outer", "MASTER_PORT=1"});
    return run(words);
  };
  const auto outcome = inside({"--verbose", "--runtime-dir", "/run/%h"});
  EXPECT_EQ(outcome.exit_code, 5);
  EXPECT_THAT(outcome.out, ContainsRegex("^[0-9a-f]{32} none --ntasks=4 --ntasks-per-node=2\n"
                                         "[0-9a-f]{32} 3 4 1 2 /run/[^%]+ gpu03:20209\n"));
  EXPECT_THAT(outcome.err, HasSubstr("gradring-run: becomes srun --ntasks=4"));
  EXPECT_EQ(inside({"--launcher", "ssh"}).exit_code, 0);
  const auto refused = inside({"--launcher", "mpirun", "--restarts", "2", "--policy", "elastic"});
  EXPECT_EQ(refused.exit_code, 2);
}

}  // namespace
}  // namespace gradring::tools
