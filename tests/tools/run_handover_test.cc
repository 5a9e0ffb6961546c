// gradring-run hands over: to whom, with which words, and what it refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/tools/process.h"
#include "tools/run/handover.h"
#include "tools/run/launch.h"
#include "tools/run/options.h"
#include "tools/run/rank.h"

namespace gradring::tools {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Not;

// An environment with the launchers in PATH that a test wants, and of Slurm what it sets.
class Handing : public ::testing::Test {
 protected:
  Handing() {
    for (const char* name : kVariables) unsetenv(name);
    set("PATH", folder_.path());
  }
  ~Handing() override {
    for (const char* name : kVariables) unsetenv(name);
    setenv("PATH", path_.c_str(), 1);
  }

  static void set(const char* name, const std::string& value) { setenv(name, value.c_str(), 1); }
  void install(const std::string& program) {
    const std::string file = folder_.path() + "/" + program;
    std::ofstream(file) << "#!/bin/sh\n";
    chmod(file.c_str(), 0755);
  }
  void enter_allocation() {
    install("srun");
    set("SLURM_JOB_ID", "42");
    set("SLURM_JOB_NUM_NODES", "4");
  }

  static tl::expected<std::optional<RunOptions>, std::string> parse(std::vector<std::string> words,
                                                                    const char* ranks = "8") {
    words.insert(words.begin(), {"-np", ranks});
    words.insert(words.end(), {"trainer", "--flag"});
    return parse_run_options(words);
  }
  static std::string own_program() { return std::filesystem::read_symlink("/proc/self/exe"); }
  static Launcher chosen(const std::vector<std::string>& words) {
    const auto options = parse(words);
    EXPECT_TRUE(options) << options.error();
    return options ? (*options)->launcher : Launcher::kOwn;
  }
  static std::string refused(const std::vector<std::string>& words) {
    const auto options = parse(words);
    return options ? "" : options.error();
  }
  static Handover handed(const std::vector<std::string>& words, const char* ranks = "8",
                         const std::vector<std::string>& environment = {}) {
    const auto options = **parse(words, ranks);
    Launch launch;
    launch.job = options.job;
    launch.token = "secret";
    launch.policy = options.policy;
    launch.environment = variables_to_set(options.send);
    launch.environment.insert(launch.environment.end(), environment.begin(), environment.end());
    launch.command = options.command;
    return hand_over(options, launch);
  }

 private:
  static constexpr const char* kVariables[] = {"SLURM_JOB_ID",
                                               "SLURM_STEP_ID",
                                               "SLURM_JOB_NUM_NODES",
                                               "SLURM_NTASKS",
                                               "SLURM_CPUS_PER_TASK",
                                               "SLURM_PROCID",
                                               "SLURM_STEP_NUM_TASKS",
                                               "SLURM_LOCALID",
                                               "SLURM_GTIDS",
                                               "OMPI_COMM_WORLD_RANK",
                                               "OMPI_COMM_WORLD_SIZE",
                                               "OMPI_COMM_WORLD_LOCAL_RANK",
                                               "OMPI_COMM_WORLD_LOCAL_SIZE",
                                               "RANK",
                                               "GRADRING_RANK",
                                               "GRADRING_JOB",
                                               "MINE",
                                               "PYTHONUNBUFFERED"};
  TemporaryFolder folder_;
  std::string path_ = std::getenv("PATH");
};

TEST_F(Handing, AutoIsSrunInAnAllocationAlone) {
  EXPECT_EQ(chosen({}), Launcher::kOwn);
  set("SLURM_JOB_ID", "42");
  EXPECT_EQ(chosen({}), Launcher::kOwn) << "without srun";
  install("srun");
  EXPECT_EQ(chosen({}), Launcher::kSrun);
  EXPECT_EQ(chosen({"--launcher", "auto"}), Launcher::kSrun);
  EXPECT_EQ(chosen({"--launcher", "ssh"}), Launcher::kOwn);
  EXPECT_EQ(chosen({"-H", "a:8"}), Launcher::kOwn);
  set("SLURM_STEP_ID", "0");
  EXPECT_EQ(chosen({}), Launcher::kOwn) << "srun would wait for the processors of its own step";
  for (const char* shell : {"4294967290", "4294967291"}) {
    set("SLURM_STEP_ID", shell);
    EXPECT_EQ(chosen({}), Launcher::kSrun) << shell;
  }
}

TEST_F(Handing, OthersAreTakenWhereTheyAreNamed) {
  EXPECT_THAT(refused({"--launcher", "srun"}), HasSubstr("there is no srun in PATH"));
  EXPECT_THAT(refused({"--launcher", "mpirun"}), HasSubstr("there is no mpirun in PATH"));
  install("srun");
  install("mpirun");
  EXPECT_EQ(chosen({"--launcher", "srun"}), Launcher::kSrun) << "which asks for an allocation";
  EXPECT_EQ(chosen({"--launcher", "mpirun", "-H", "a:4,b:4"}), Launcher::kMpirun);
  EXPECT_THAT(refused({"--launcher", "pdsh"}), HasSubstr("one of ssh, srun, mpirun and auto"));
}

TEST_F(Handing, RefusesWhatTheyCannotDo) {
  enter_allocation();
  install("mpirun");
  const auto srun = [](std::vector<std::string> words) {
    words.insert(words.begin(), {"--launcher", "srun"});
    return refused(words);
  };
  EXPECT_THAT(srun({"-H", "a:8"}), HasSubstr("leave -H and --hostfile away"));
  EXPECT_THAT(srun({"--prefix-output-with-timestamp"}), HasSubstr("shows no times"));
  EXPECT_THAT(srun({"--output-filename", "logs"}), HasSubstr("--launcher-args \"--output ...\""));
  EXPECT_THAT(refused({"--policy", "elastic", "--restarts", "1"}),
              HasSubstr("inside a Slurm allocation srun starts the ranks. srun cannot start a rank "
                        "anew: leave --restarts away; or say --launcher ssh"));
  EXPECT_THAT(refused({"--launcher", "mpirun", "--min-np", "2"}), HasSubstr("cannot be elastic"));
  EXPECT_THAT(refused({"--launcher", "mpirun", "--output-filename", "logs"}),
              HasSubstr("\"--output-filename ...\""));
  EXPECT_THAT(refused({"--launcher", "ssh", "--launcher-args", "--overlap"}),
              HasSubstr("neither starts the ranks"));
}

TEST_F(Handing, SrunIsToldHowMany) {
  enter_allocation();
  EXPECT_THAT(
      handed({}).command,
      ElementsAre("srun", "--ntasks=8", "--ntasks-per-node=2", "--export=ALL", "--input=none",
                  "--kill-on-bad-exit=1", own_program(), "--rank", "--", "trainer", "--flag"));
  EXPECT_THAT(handed({}, "6").command, Contains("--ntasks-per-node=2"));
  EXPECT_THAT(handed({}, "3").command, IsSupersetOf({"--nodes=3", "--ntasks-per-node=1"}));
  set("SLURM_NTASKS", "8");
  set("SLURM_CPUS_PER_TASK", "6");
  EXPECT_THAT(handed({}).command, Not(Contains(HasSubstr("--ntasks-per-node"))))
      << "the allocation has said where";
  EXPECT_THAT(handed({}).command, Contains("--cpus-per-task=6"));
  const auto elastic = handed({"--policy", "elastic min=2", "--tag"});
  EXPECT_THAT(elastic.command,
              IsSupersetOf({"--kill-on-bad-exit=0", "--wait=0", "--no-kill", "--label"}));
  EXPECT_THAT(elastic.environment, Contains("GRADRING_POLICY=elastic min=2"));
  EXPECT_EQ(handed({"--launcher-args", " --overlap  --gpus-per-task=1"}).command[6], "--overlap");
}

TEST_F(Handing, TheLauncherNamesTheJobAndThePlaces) {
  enter_allocation();
  set("RANK", "3");
  set("GRADRING_RANK", "4");
  const auto handover = handed({"-x", "MINE=5", "--runtime-dir", "/run/%h"});
  EXPECT_THAT(handover.command, Contains("--runtime-dir=/run/%h")) << "each rank knows its host";
  for (const char* variable :
       {"GRADRING_JOB_TOKEN=secret", "MINE=5", "SLURM_JOB_ID=42", "PYTHONUNBUFFERED=1"})
    EXPECT_THAT(handover.environment, Contains(variable));
  for (const char* name : {"RANK=", "GRADRING_RANK=", "GRADRING_JOB="})
    EXPECT_THAT(handover.environment, Not(Contains(::testing::StartsWith(name))));
  EXPECT_THAT(handed({"--job", "mine"}).environment, Contains("GRADRING_JOB=mine"));
}

TEST_F(Handing, ARankIsToldItsPlaceInOurOwnVariables) {
  EXPECT_THAT(place_by_launcher().error(), HasSubstr("SLURM_PROCID is not set"));
  set("SLURM_PROCID", "5");
  set("SLURM_STEP_NUM_TASKS", "7");
  set("SLURM_LOCALID", "1");
  set("SLURM_GTIDS", "4,5,6");
  EXPECT_THAT(
      *place_by_launcher(),
      ElementsAre("RANK=5", "WORLD_SIZE=7", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=3", "HOROVOD_RANK=5",
                  "HOROVOD_SIZE=7", "HOROVOD_LOCAL_RANK=1", "HOROVOD_LOCAL_SIZE=3"));
  set("OMPI_COMM_WORLD_RANK", "2");
  EXPECT_THAT(place_by_launcher().error(), HasSubstr("by which mpirun tells"));
  set("OMPI_COMM_WORLD_SIZE", "4");
  set("OMPI_COMM_WORLD_LOCAL_RANK", "0");
  set("OMPI_COMM_WORLD_LOCAL_SIZE", "2");
  EXPECT_THAT(
      *place_by_launcher(),
      ElementsAre("RANK=2", "WORLD_SIZE=4", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=2", "HOROVOD_RANK=2",
                  "HOROVOD_SIZE=4", "HOROVOD_LOCAL_RANK=0", "HOROVOD_LOCAL_SIZE=2"));
}

TEST_F(Handing, MpirunIsToldWhereAndWhatGoesAlong) {
  install("mpirun");
  set("MINE", "secret too");
  const auto handover =
      handed({"--launcher", "mpirun", "-H", "a:4,b:4", "--rsh", "ssh -q", "-p", "22", "--tag",
              "--prefix-output-with-timestamp", "-x", "MINE", "--launcher-args", "--map-by node"},
             "8", {"MASTER_ADDR=a"});
  const std::vector<std::string> begin(handover.command.begin(), handover.command.begin() + 13);
  EXPECT_THAT(begin,
              ElementsAre("mpirun", "-np", "8", "--host", "a:4,b:4", "--mca", "plm_rsh_agent",
                          "ssh -q -p 22", "--stdin", "none", "--bind-to", "none", "--tag-output"));
  const std::vector<std::string> end(handover.command.end() - 7, handover.command.end());
  EXPECT_THAT(end,
              ElementsAre("--map-by", "node", own_program(), "--rank", "--", "trainer", "--flag"));
  EXPECT_THAT(handover.command, IsSupersetOf({"--timestamp-output", "GRADRING_JOB_TOKEN", "PATH",
                                              "MINE", "MASTER_ADDR", "PYTHONUNBUFFERED"}));
  EXPECT_THAT(handover.command, Not(Contains(HasSubstr("secret"))));
  EXPECT_THAT(handed({"--launcher", "mpirun"}).command, Not(Contains("plm_rsh_agent")));
}

}  // namespace
}  // namespace gradring::tools
