// Drivers that answer, refuse, crash and hang; and what this machine says of itself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/tools/process.h"
#include "tests/transport/machine/machine.h"
#include "transport/machine/assemble.h"
#include "transport/machine/look_apart.h"
#include "transport/machine/netdev.h"
#include "transport/machine/verbs.h"

namespace gradring::machine {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

namespace fs = std::filesystem;

// The fake driver's mood, as long as this is.
class Mood {
 public:
  explicit Mood(const char* how) { setenv("GRADRING_FAKE_NVML", how, 1); }
  ~Mood() { unsetenv("GRADRING_FAKE_NVML"); }
};

TEST(Nvml, TellsItsGpus) {
  const NvmlAnswers answers = ask_nvml(FAKE_NVML);
  EXPECT_EQ(answers.absent, "");
  EXPECT_EQ(answers.driver, "999.1");
  ASSERT_EQ(answers.gpus.size(), 2u) << "one has fallen off the bus";
  const NvmlGpu& gpu = answers.gpus[0];
  EXPECT_EQ(text_of(gpu.pci), "0000:a1:00.0");
  EXPECT_EQ(gpu.name, "NVIDIA Fake 1000");
  EXPECT_EQ(gpu.uuid, "GPU-67726164-7269-6e67-2074-77696e202330");
  EXPECT_EQ(gpu.memory_bytes, uint64_t{1} << 34);
  ASSERT_EQ(gpu.nvlinks.size(), 6u);
  EXPECT_EQ(text_of(gpu.nvlinks[3].gpu), "0000:a2:00.0");
  EXPECT_TRUE(gpu.nvlinks[4].to_switch);

  const Machine machine = assemble({}, {"host", answers, {}, {}});
  ASSERT_EQ(machine.gpus.size(), 2u);
  ASSERT_EQ(machine.gpus[1].nvlinks.size(), 2u);
  EXPECT_EQ(machine.gpus[1].nvlinks[0].gpu, -1);
  EXPECT_EQ(machine.gpus[1].nvlinks[0].count, 2u);
  EXPECT_EQ(machine.gpus[1].nvlinks[1].count, 4u);
  EXPECT_THAT(machine.notes, ElementsAre(HasSubstr("where hwloc sees nothing"),
                                         HasSubstr("where hwloc sees nothing")));
}

TEST(Nvml, SaysWhyItCannotTell) {
  EXPECT_THAT(ask_nvml("libno-such-library.so").absent,
              AllOf(HasSubstr("cannot be loaded"), HasSubstr("libno-such-library.so")));
  EXPECT_THAT(ask_nvml("libm.so.6").absent, HasSubstr("lacks functions of NVML"));
  const Mood mood("refuse");
  EXPECT_EQ(ask_nvml(FAKE_NVML).absent, "NVML does not start: Driver Not Loaded");
}

TEST(Assemble, ShowsWhatIsOnTheBusWithoutItsDriver) {
  Tree tree;
  PciDevice gpu;
  gpu.place.pci = *parse_pci("0000:01:00.0");
  gpu.kind = 0x0302;
  gpu.vendor = 0x10de;
  tree.devices.push_back(gpu);
  gpu.place.pci = *parse_pci("0000:02:00.0");
  gpu.vendor = 0x1a03;  // a board's own graphics
  tree.devices.push_back(gpu);
  Answers answers;
  answers.nvml.absent = "NVML is away";
  const Machine machine = assemble(tree, answers);
  ASSERT_EQ(machine.gpus.size(), 1u);
  EXPECT_THAT(machine.notes,
              ElementsAre("the GPU at 0000:01:00.0 is on the bus, but NVML is away"));
}

TEST(Verbs, RatesHaveTheNamesOfPeople) {
  EXPECT_EQ(rate_of_port(2, 128), 400'000'000'000u) << "4 lanes of NDR";
  EXPECT_EQ(rate_of_port(2, 64), 200'000'000'000u) << "4 of HDR";
  EXPECT_EQ(rate_of_port(2, 32), 100'000'000'000u) << "4 of EDR";
  EXPECT_EQ(rate_of_port(16, 64), 100'000'000'000u) << "2 of HDR";
  EXPECT_EQ(rate_of_port(1, 1), 2'500'000'000u);
  EXPECT_EQ(rate_of_port(3, 32), 0u);
  EXPECT_EQ(rate_of_port(2, 200), 0u);
}

TEST(NetDevices, AreReadFromSysfs) {
  const tools::TemporaryFolder folder;
  const fs::path root = folder.path();
  const fs::path net = root / "class/net";
  fs::create_directories(net);
  const auto make = [&](const std::string& device, const std::string& name) {
    const fs::path real = root / "devices" / device / "net" / name;
    fs::create_directories(real);
    fs::create_directory_symlink(root / "devices" / device, real / "device");
    fs::create_directory_symlink(real, net / name);
    return real;
  };
  const auto say = [](const fs::path& file, const std::string& text) {
    std::ofstream(file) << text;
  };
  const fs::path fast = make("pci0000:00/0000:00:02.0/0000:17:00.0", "net0");
  say(fast / "operstate", "up\n");
  say(fast / "speed", "400000\n");
  say(fast / "mtu", "9000\n");
  const fs::path virtio = make("pci0000:00/0000:00:03.0/virtio2", "net1");
  say(virtio / "operstate", "down\n");
  say(virtio / "speed", "-1\n");
  const fs::path soft = make("virtual", "net2");
  say(soft / "operstate", "unknown\n");
  say(soft / "carrier", "1\n");
  fs::create_directories(root / "bond7/bonding");
  fs::create_directory_symlink(root / "bond7", soft / "master");
  say(net / "bonding_masters", "bond7\n");
  fs::create_directories(net / "lo");

  const std::vector<NetDevice> devices = ask_netdevs(root);
  ASSERT_EQ(devices.size(), 3u);
  EXPECT_EQ(text_of(devices[0].pci.value()), "0000:17:00.0");
  EXPECT_TRUE(devices[0].up);
  EXPECT_EQ(devices[0].rate_bps, 400'000'000'000u);
  EXPECT_EQ(devices[0].mtu, 9000u);
  EXPECT_EQ(text_of(devices[1].pci.value()), "0000:00:03.0");
  EXPECT_FALSE(devices[1].up);
  EXPECT_EQ(devices[1].rate_bps, 0u);
  EXPECT_FALSE(devices[2].pci);
  EXPECT_TRUE(devices[2].up);
  EXPECT_EQ(devices[2].bond, "bond7");
  EXPECT_THAT(ask_netdevs(root / "nowhere"), IsEmpty());
}

TEST(Look, SeesThisMachine) {
  const auto sight = look({});
  ASSERT_TRUE(sight) << sight.error().message();
  EXPECT_FALSE(sight->seen.tree.numa.empty());
  EXPECT_NE(sight->answers.host, "");
  EXPECT_THAT(sight->seen.xml, HasSubstr("<topology"));
}

wire::MachineReport look_apart(const LookOptions& options, int patience_ms = 60'000) {
  LookApart look;
  look.start(options);
  EXPECT_THAT(look.report().fault(), HasSubstr("still being looked at"));
  look.wait(patience_ms);
  EXPECT_TRUE(look.over());
  return look.report();
}

TEST(LookApart, TellsTheSame) {
  const wire::MachineReport report = look_apart({folder_of("dgx-h100"), "", {}});
  EXPECT_EQ(report.fault(), "");
  EXPECT_EQ(report.gpus_size(), 8);
  EXPECT_EQ(report.distances_size(), 18 * 18);
  EXPECT_EQ(report.affinity(7).choices(0).distance(), "PIX");
  EXPECT_EQ(report.recording(), folder_of("dgx-h100"));
}

TEST(LookApart, ADriverThatCrashesCostsOnlyTheAnswer) {
  const Mood mood("crash");
  EXPECT_THAT(look_apart({"", FAKE_NVML, {}}).fault(), HasSubstr("ended by signal 6"));
}

TEST(LookApart, ADriverThatHangsIsGivenUp) {
  const Mood mood("hang");
  EXPECT_THAT(look_apart({"", FAKE_NVML, {}}, 2000).fault(), HasSubstr("took too long"));
}

}  // namespace
}  // namespace gradring::machine
