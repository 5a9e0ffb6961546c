#include <gmock/gmock.h>
#include <unistd.h>

#include <cstdlib>

#include "tests/client/trainer.h"

namespace gradring::test {
namespace {

using ::testing::HasSubstr;

// A clean environment for each case, and the old one after it.
class Environment : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : kNames) {
      const char* value = std::getenv(name);
      if (value != nullptr) saved_.emplace_back(name, value);
      ::unsetenv(name);
    }
  }
  void TearDown() override {
    for (const char* name : kNames) ::unsetenv(name);
    for (const auto& [name, value] : saved_) ::setenv(name.c_str(), value.c_str(), 1);
  }

  static void set(const char* name, const std::string& value) { ::setenv(name, value.c_str(), 1); }
  static gradring_options init() {
    gradring_options options;
    gradring_options_init(&options);
    return options;
  }
  static std::string host() {
    char name[256] = {};
    ::gethostname(name, sizeof(name) - 1);
    return name;
  }

 private:
  static constexpr const char* kNames[] = {"GRADRING_RUNTIME_DIR",
                                           "GRADRING_JOB",
                                           "GRADRING_JOB_TOKEN",
                                           "GRADRING_POLICY",
                                           "GRADRING_WIRE",
                                           "GRADRING_COMPRESSION",
                                           "GRADRING_PRIORITIES",
                                           "GRADRING_DETERMINISTIC",
                                           "GRADRING_JOIN_TIMEOUT",
                                           "GRADRING_GPU_STAGE_MIB",
                                           "GRADRING_SUBMIT",
                                           "GRADRING_RANK",
                                           "GRADRING_SIZE",
                                           "GRADRING_LOCAL_RANK",
                                           "GRADRING_LOCAL_SIZE",
                                           "RANK",
                                           "WORLD_SIZE",
                                           "LOCAL_RANK",
                                           "LOCAL_WORLD_SIZE",
                                           "GROUP_WORLD_SIZE",
                                           "MASTER_ADDR",
                                           "MASTER_PORT",
                                           "TORCHELASTIC_RUN_ID",
                                           "TORCHELASTIC_RESTART_COUNT",
                                           "OMPI_COMM_WORLD_RANK",
                                           "OMPI_COMM_WORLD_SIZE",
                                           "OMPI_COMM_WORLD_LOCAL_RANK",
                                           "OMPI_COMM_WORLD_LOCAL_SIZE",
                                           "OMPI_MCA_orte_ess_jobid",
                                           "OMPI_MCA_ess_base_jobid",
                                           "PMIX_NAMESPACE",
                                           "PMI_RANK",
                                           "PMI_SIZE",
                                           "MPI_LOCALRANKID",
                                           "MPI_LOCALNRANKS",
                                           "SLURM_PROCID",
                                           "SLURM_NTASKS",
                                           "SLURM_LOCALID",
                                           "SLURM_JOB_ID",
                                           "SLURM_STEP_ID"};
  std::vector<std::pair<std::string, std::string>> saved_;
};

TEST_F(Environment, NamesThePolicy) {
  set("GRADRING_POLICY", "elastic min=2");
  EXPECT_STREQ(init().policy, "elastic min=2");
}

TEST_F(Environment, NamesTheWireType) {
  set("GRADRING_COMPRESSION", "fp16");
  EXPECT_STREQ(init().wire, "fp16");
  set("GRADRING_WIRE", "bf16");
  EXPECT_STREQ(init().wire, "bf16");
}

TEST_F(Environment, NamesTheWayToPriorities) {
  set("GRADRING_PRIORITIES", "learned");
  EXPECT_STREQ(init().priorities, "learned");
  set("GRADRING_DETERMINISTIC", "on");
  EXPECT_STREQ(init().deterministic, "on");
}

TEST_F(Environment, NamesTheSecondsToWaitForAllRanks) {
  set("GRADRING_JOIN_TIMEOUT", "30");
  EXPECT_EQ(init().join_timeout_ms, 30000);
  for (const char* bad : {"30s", "-1", "soon", "0.5"}) {
    set("GRADRING_JOIN_TIMEOUT", bad);
    gradring_options options = init();
    EXPECT_EQ(options.join_timeout_ms, -1);
    options.rank = 0;
    options.size = 1;
    options.job = "j";
    gradring_comm* comm = nullptr;
    EXPECT_EQ(gradring_open(&options, &comm), GRADRING_ERR_INVALID);
    EXPECT_THAT(gradring_last_error(),
                HasSubstr("GRADRING_JOIN_TIMEOUT is no whole number of seconds"));
  }
}

TEST_F(Environment, NamesAWayOfSubmissionThatThereIs) {
  set("GRADRING_SUBMIT", "rings");
  gradring_options options = init();
  options.rank = 0;
  options.size = 1;
  options.job = "j";
  gradring_comm* comm = nullptr;
  EXPECT_EQ(gradring_open(&options, &comm), GRADRING_ERR_INVALID);
  EXPECT_STREQ(gradring_last_error(), "GRADRING_SUBMIT is neither ring nor zmq");
}

TEST_F(Environment, ThatSaysNothingLeavesEverythingOpen) {
  const gradring_options options = init();
  EXPECT_EQ(options.struct_size, sizeof(options));
  EXPECT_STREQ(options.runtime_dir, "/run/gradring");
  EXPECT_STREQ(options.policy, "fail");
  EXPECT_STREQ(options.wire, "native");
  EXPECT_STREQ(options.priorities, "given");
  EXPECT_STREQ(options.deterministic, "off");
  EXPECT_EQ(options.job, nullptr);
  EXPECT_STREQ(options.token, "");
  EXPECT_EQ(options.rank, -1);
  EXPECT_EQ(options.size, -1);
  EXPECT_EQ(options.local_rank, -1);
  EXPECT_EQ(options.local_size, -1);
  EXPECT_EQ(options.join_timeout_ms, 0);
}

TEST_F(Environment, OfGradringRun) {
  set("GRADRING_RUNTIME_DIR", "/tmp/there");
  set("GRADRING_JOB", "digits");
  set("GRADRING_JOB_TOKEN", "t");
  set("GRADRING_RANK", "3");
  set("GRADRING_SIZE", "8");
  set("GRADRING_LOCAL_RANK", "1");
  set("GRADRING_LOCAL_SIZE", "2");
  const gradring_options options = init();
  EXPECT_STREQ(options.runtime_dir, "/tmp/there");
  EXPECT_STREQ(options.job, "digits");
  EXPECT_STREQ(options.token, "t");
  EXPECT_EQ(options.rank, 3);
  EXPECT_EQ(options.size, 8);
  EXPECT_EQ(options.local_rank, 1);
  EXPECT_EQ(options.local_size, 2);
}

TEST_F(Environment, OfTorchrun) {
  set("RANK", "5");
  set("WORLD_SIZE", "6");
  set("LOCAL_RANK", "2");
  set("LOCAL_WORLD_SIZE", "3");
  set("MASTER_ADDR", "node-a");
  set("MASTER_PORT", "29500");
  set("TORCHELASTIC_RUN_ID", "none");
  const gradring_options options = init();
  EXPECT_EQ(options.rank, 5);
  EXPECT_EQ(options.size, 6);
  EXPECT_EQ(options.local_rank, 2);
  EXPECT_EQ(options.local_size, 3);
  EXPECT_STREQ(options.job, "node-a:29500");
  set("TORCHELASTIC_RUN_ID", "run-17");
  EXPECT_STREQ(init().job, "run-17");
}

TEST_F(Environment, OfALoopbackMasterIsOfThisHostAlone) {
  set("MASTER_PORT", "29500");
  for (const std::string address : {"127.0.0.1", "127.1.2.3", "localhost", "::1"}) {
    set("MASTER_ADDR", address);
    EXPECT_EQ(init().job, host() + "/" + address + ":29500");
  }
  set("MASTER_ADDR", "1270.example");
  EXPECT_STREQ(init().job, "1270.example:29500");
}

TEST_F(Environment, OfAMasterWithoutAPortNamesNoJob) {
  set("MASTER_ADDR", "node-a");
  EXPECT_EQ(init().job, nullptr);
}

TEST_F(Environment, OfOpenMpi) {
  set("OMPI_COMM_WORLD_RANK", "1");
  set("OMPI_COMM_WORLD_SIZE", "4");
  set("OMPI_COMM_WORLD_LOCAL_RANK", "0");
  set("OMPI_COMM_WORLD_LOCAL_SIZE", "2");
  set("OMPI_MCA_orte_ess_jobid", "1934");
  gradring_options options = init();
  EXPECT_EQ(options.rank, 1);
  EXPECT_EQ(options.size, 4);
  EXPECT_EQ(options.local_rank, 0);
  EXPECT_EQ(options.local_size, 2);
  EXPECT_STREQ(options.job, "1934");
  set("PMIX_NAMESPACE", "prterun-1");
  EXPECT_STREQ(init().job, "prterun-1");
}

TEST_F(Environment, OfMpich) {
  set("PMI_RANK", "2");
  set("PMI_SIZE", "3");
  set("MPI_LOCALRANKID", "1");
  set("MPI_LOCALNRANKS", "2");
  const gradring_options options = init();
  EXPECT_EQ(options.rank, 2);
  EXPECT_EQ(options.size, 3);
  EXPECT_EQ(options.local_rank, 1);
  EXPECT_EQ(options.local_size, 2);
}

TEST_F(Environment, OfSlurm) {
  set("SLURM_PROCID", "7");
  set("SLURM_NTASKS", "16");
  set("SLURM_LOCALID", "3");
  set("SLURM_JOB_ID", "4242");
  set("SLURM_STEP_ID", "0");
  const gradring_options options = init();
  EXPECT_EQ(options.rank, 7);
  EXPECT_EQ(options.size, 16);
  EXPECT_EQ(options.local_rank, 3);
  EXPECT_STREQ(options.job, "4242.0");
  set("TORCHELASTIC_RUN_ID", "none");
  EXPECT_STREQ(init().job, "4242.0");
  set("TORCHELASTIC_RUN_ID", "run");
  EXPECT_STREQ(init().job, "4242.0/run") << "a step may run several torchruns";
}

TEST_F(Environment, OfTheShellOfASlurmAllocationIsNoTrainers) {
  set("SLURM_PROCID", "0");
  set("SLURM_NTASKS", "16");
  set("SLURM_LOCALID", "0");
  set("SLURM_JOB_ID", "4242");
  for (const char* step : {"", "4294967290", "4294967291"}) {
    set("SLURM_STEP_ID", step);
    const gradring_options options = init();
    EXPECT_EQ(options.rank, -1) << step;
    EXPECT_EQ(options.size, -1) << step;
    EXPECT_EQ(options.local_rank, -1) << step;
    EXPECT_EQ(options.job, nullptr) << step;
  }
}

TEST_F(Environment, OfAnMpirunInASlurmAllocationIsTheSameOnAllNodes) {
  set("SLURM_JOB_ID", "4242");
  set("PMIX_NAMESPACE", "1934");
  set("OMPI_COMM_WORLD_RANK", "1");
  EXPECT_STREQ(init().job, "1934") << "where mpirun is";
  set("SLURM_STEP_ID", "0");
  EXPECT_STREQ(init().job, "1934") << "where its srun has started it";
}

TEST_F(Environment, GoesByTheDocumentedOrder) {
  set("SLURM_JOB_ID", "8");
  set("SLURM_STEP_ID", "1");
  set("SLURM_PROCID", "5");
  EXPECT_EQ(init().rank, 5);
  set("PMI_RANK", "4");
  EXPECT_EQ(init().rank, 4);
  set("OMPI_COMM_WORLD_RANK", "3");
  EXPECT_EQ(init().rank, 3);
  set("RANK", "2");
  EXPECT_EQ(init().rank, 2);
  set("GRADRING_RANK", "1");
  EXPECT_EQ(init().rank, 1);

  set("SLURM_STEP_ID", "");
  set("OMPI_COMM_WORLD_RANK", "");
  set("MASTER_ADDR", "a");
  set("MASTER_PORT", "1");
  EXPECT_STREQ(init().job, "a:1");
  set("TORCHELASTIC_RUN_ID", "elastic");
  EXPECT_STREQ(init().job, "elastic");
  set("PMIX_NAMESPACE", "pmix");
  EXPECT_STREQ(init().job, "pmix");
  set("SLURM_STEP_ID", "1");
  EXPECT_STREQ(init().job, "8.1/elastic");
  set("OMPI_COMM_WORLD_RANK", "3");
  EXPECT_STREQ(init().job, "pmix");
  set("GRADRING_JOB", "mine");
  EXPECT_STREQ(init().job, "mine");
}

TEST_F(Environment, OfARestartedWorkerGroupGivesAnotherToken) {
  set("TORCHELASTIC_RESTART_COUNT", "0");
  const std::string first = init().token;
  EXPECT_NE(first, "");
  set("TORCHELASTIC_RESTART_COUNT", "1");
  EXPECT_NE(init().token, first);
  set("GROUP_WORLD_SIZE", "1");
  EXPECT_STRNE(init().token, "");
  // Here another node's count may be 0, and both must meet.
  set("GROUP_WORLD_SIZE", "2");
  EXPECT_STREQ(init().token, "");
  set("GRADRING_JOB_TOKEN", "set by hand");
  EXPECT_STREQ(init().token, "set by hand");
}

TEST_F(Environment, WithSomethingThatIsNoNumberIsToldByOpen) {
  set("GRADRING_RANK", "first");
  set("GRADRING_SIZE", "2");
  set("GRADRING_JOB", "job");
  const gradring_options options = init();
  EXPECT_EQ(options.rank, -2);
  const Refusal refused = open_refused(options);
  EXPECT_EQ(refused.code, GRADRING_ERR_INVALID);
  EXPECT_THAT(refused.message, HasSubstr("GRADRING_RANK is 'first', which is not a number"));
}

TEST_F(Environment, WithANumberThatIsNoRankIsToldWhichAreTaken) {
  set("RANK", "-1");
  set("WORLD_SIZE", "99999999999");
  EXPECT_THAT(open_refused(init()).message,
              HasSubstr("RANK is '-1', which is not a number from 0 to 2147483647"));
  set("RANK", "0");
  EXPECT_THAT(open_refused(init()).message,
              HasSubstr("WORLD_SIZE is '99999999999', which is not a number from 0 to 2147483647"));
}

TEST_F(Environment, TakesNoNumberThatOnlyBeginsAsOne) {
  for (const char* value : {"1x", "-1", "+1", " 1", "99999999999", "0x1"}) {
    set("RANK", value);
    EXPECT_EQ(init().rank, -2) << value;
  }
}

TEST_F(Environment, WithALocalRankThatIsNoNumberIsToldByOpen) {
  set("RANK", "0");
  set("WORLD_SIZE", "1");
  set("GRADRING_JOB", "job");
  set("LOCAL_RANK", "$INDEX");
  EXPECT_THAT(open_refused(init()).message,
              HasSubstr("LOCAL_RANK is '$INDEX', which is not a number"));
}

TEST_F(Environment, ThatIsEmptyCountsAsUnset) {
  set("GRADRING_RANK", "");
  set("RANK", "4");
  EXPECT_EQ(init().rank, 4);
}

}  // namespace
}  // namespace gradring::test
