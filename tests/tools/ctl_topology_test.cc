// What gradringctl topology prints and draws.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "tests/tools/expect_sound.h"
#include "tests/tools/process.h"
#include "tools/ctl/topology/names.h"
#include "tools/ctl/topology/recordings.h"
#include "tools/ctl/topology/show.h"

namespace gradring::tools {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

TopologyReports replay(const std::string& name) {
  auto reports = replay_machine(GRADRING_MACHINES "/" + name);
  EXPECT_TRUE(reports) << reports.error().message();
  return reports ? *reports : TopologyReports{};
}

// A job on so many nodes, two ranks each, over two lanes.
TopologyReports ring_of(int nodes) {
  wire::TopologyReport report;
  report.set_node("n0");
  report.mutable_machine()->set_fault("nobody has looked at it");
  for (const char* device : {"mlx5_0:1 (RDMA)", "mlx5_1:1 (RDMA)"}) {
    auto* lane = report.add_lanes();
    lane->set_device(device);
    lane->set_nic(-1);
    lane->set_reason("named in the configuration");
  }
  auto* ring = report.add_rings();
  ring->set_job("evening");
  ring->set_incarnation("0123456789abcdef");
  ring->set_epoch(3);
  ring->set_reason("in the order of their lowest ranks: n0 has 0");
  for (int i = 0; i < nodes; ++i) {
    auto* member = ring->add_members();
    member->set_node("n" + std::to_string(i));
    member->add_ranks(uint32_t(2 * i));
    member->add_ranks(uint32_t(2 * i + 1));
  }
  return {report};
}

size_t count_of(const std::string& text, const std::string& word) {
  size_t count = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++count;
  return count;
}

TEST(ShowTopology, SaysWhereWhatLiesOnGpusIsSummed) {
  TopologyReports reports = replay("server-4x2");
  auto* const sums = reports[0].mutable_gpu_sums();
  sums->set_reason("gpu-sums is off");
  EXPECT_THAT(show(reports, Style{}).text,
              HasSubstr("summed in the host's memory: gpu-sums is off"));
  sums->set_on_gpus(true);
  sums->set_by("4 GPUs, NVIDIA H100");
  sums->set_reason("gpu-sums is on");
  sums->set_way("by NCCL 2.28.9");
  sums->set_network("from the GPUs' memory");
  const Answer answer = show(reports, Style{});
  expect_sound(answer, "topology");
  EXPECT_THAT(answer.text, HasSubstr("summed on 4 GPUs, NVIDIA H100: gpu-sums is on; of several "
                                     "GPUs by NCCL 2.28.9; in turns with trainers' kernels (no "
                                     "MPS); it goes from the GPUs' memory\n"));
  EXPECT_EQ(answer.json["nodes"][0]["gpu_sums"]["network"], "from the GPUs' memory");
  EXPECT_EQ(answer.json["nodes"][0]["gpu_sums"]["way"], "by NCCL 2.28.9");
  EXPECT_EQ(answer.json["nodes"][0]["gpu_sums"]["by"], "4 GPUs, NVIDIA H100");
  EXPECT_EQ(answer.json["nodes"][0]["gpu_sums"]["mps"], false);
  sums->set_mps(true);
  EXPECT_THAT(show(reports, Style{}).text, HasSubstr("; beside trainers' kernels (MPS); it goes"));
}

TEST(ShowTopology, SaysWhichGpusHaveErrorsAndWhatTheyMean) {
  TopologyReports reports = replay("server-4x2");
  auto* const told = reports[0].mutable_gpu_errors();
  told->set_watched(true);
  EXPECT_THAT(show(reports, Style{}).text, Not(HasSubstr("UUID")));
  auto* error = told->add_errors();
  error->set_gpu(reports[0].machine().gpus(2).uuid());
  error->set_pci(reports[0].machine().gpus(2).place().pci());
  error->set_error("Xid 79");
  error->set_verdict("unusable");
  error->set_what("has fallen off the bus");
  error->set_remedy("power it off and on");
  error->set_count(1);
  error->set_last_ms(3'000);
  error = told->add_errors();
  error->set_gpu("MIG-1234");
  error->set_pci("0000:ee:00.0");
  error->set_error("Xid 31");
  error->set_verdict("note");
  error->set_what("had a kernel that did wrong");
  error->set_count(12);
  const Answer answer = show(reports, Style{});
  expect_sound(answer, "topology");
  EXPECT_THAT(answer.text, HasSubstr("  Xid 79      1  3.0 s ago  unusable: it has fallen off"));
  EXPECT_THAT(answer.text, HasSubstr("\nGPU2          "));
  EXPECT_THAT(answer.text, HasSubstr("0000:ee:00.0  MIG-1234"));
  EXPECT_THAT(answer.problems, ElementsAre(AllOf(HasSubstr("has fallen off the bus (Xid 79)"),
                                                 HasSubstr("power it off and on"))));
  EXPECT_EQ(answer.json["nodes"][0]["gpu_errors"]["errors"][1]["count"], 12);
  told->set_reason("the process ended");
  EXPECT_THAT(show(reports, Style{}).text, HasSubstr("not heard of: the process ended"));
}

TEST(ShowTopology, PrintsTheMatrixAsNvidiaSmiDoes) {
  const Answer answer = show(replay("server-4x2"), Style{});
  expect_sound(answer, "topology");
  EXPECT_THAT(answer.problems, IsEmpty());
  EXPECT_THAT(
      answer.text,
      HasSubstr("      GPU0  GPU1  GPU2  GPU3  NIC0  NIC1  NIC2  NIC3  NIC4  CPU affinity   NUMA\n"
                "GPU0  X     NV12  SYS   SYS   PXB   SYS   PXB   PHB   SYS   0,2,4,...,126  0\n"
                "GPU1  NV12  X     SYS   SYS   PXB   SYS   PXB   PHB   SYS   0,2,4,...,126  0\n"
                "GPU2  SYS   SYS   X     NV12  SYS   PXB   SYS   SYS   PXB   1,3,5,...,127  1\n"
                "GPU3  SYS   SYS   NV12  X     SYS   PXB   SYS   SYS   PXB   1,3,5,...,127  1\n"
                "NIC0  PXB   PXB   SYS   SYS   X     SYS   PIX   PHB   SYS   0,2,4,...,126  0\n"
                "NIC1  SYS   SYS   PXB   PXB   SYS   X     SYS   SYS   PIX   1,3,5,...,127  1\n"));
  EXPECT_THAT(answer.text,
              AllOf(HasSubstr("PXB   over several PCIe switches"), Not(HasSubstr("NODE  between"))))
      << "the legend tells the codes that are there";
  EXPECT_THAT(answer.text, HasSubstr("mlx5_bond_1  PXB  over PCIe switches alone, the nearest\n"));
  EXPECT_THAT(answer.text, HasSubstr("mlx5_bond_0:1  active  Ethernet  100G  0    RoCE v1"));
  EXPECT_THAT(answer.text, HasSubstr("yes: up, 200 Gbit/s, RDMA, as a bond\n"));
  EXPECT_THAT(answer.text, HasSubstr("with mlx5_bond_0\n"));
  EXPECT_THAT(answer.text, HasSubstr("this is not the machine here"));
}

TEST(ShowTopology, HasAllOfItForScripts) {
  for (const char* name : {"dgx-h100", "consumer", "server-4x2", "vm-flat"}) {
    const Answer answer = show(replay(name), Style{});
    expect_sound(answer, "topology");
    const auto& machine = answer.json["nodes"][0]["machine"];
    const size_t devices = machine["gpus"].size() + machine["nics"].size();
    EXPECT_EQ(machine["distances"].size(), devices * devices) << name;
    EXPECT_EQ(machine["affinity"].size(), machine["gpus"].size()) << name;
  }
}

TEST(ShowTopology, TellsWhatPortsAreAndCount) {
  TopologyReports reports = ring_of(2);
  auto* port = reports[0].mutable_lanes(0)->add_ports();
  port->set_port("mlx5_0:1");
  port->set_state("down");
  port->set_state_ms(12'000);
  port->set_last_change("addresses");
  port->set_last_change_ms(3'000);
  for (const auto& [name, value] : {std::pair{"rnr", 0}, std::pair{"retransmits", 7}}) {
    auto* counter = port->add_counters();
    counter->set_name(name);
    counter->set_value(uint64_t(value));
  }
  const Answer answer = show(reports, Style{});
  expect_sound(answer, "topology");
  EXPECT_THAT(answer.text,
              HasSubstr("mlx5_0:1  down  12.0 s  addresses, 3.0 s ago  retransmits 7\n"));
  EXPECT_THAT(answer.text, Not(HasSubstr("rnr")));

  reports = replay("server-4x2");
  auto* card = reports[0].mutable_machine()->mutable_nics(0)->mutable_rdma()->mutable_ports(0);
  auto* counter = card->add_counters();
  counter->set_name("out_of_sequence");
  counter->set_value(4);
  const Answer counted = show(reports, Style{});
  expect_sound(counted, "topology");
  EXPECT_THAT(counted.text, HasSubstr("mlx5_bond_0:1  out_of_sequence 4\n"));
}

TEST(ShowTopology, TellsLanesNodesAndRings) {
  TopologyReports reports = ring_of(3);
  auto* peer = reports[0].add_peers();
  peer->set_node("n1");
  peer->set_address("10.0.0.2:7300");
  peer->set_state("up");
  auto* lane = peer->add_lanes();
  lane->set_device("mlx5_1:1 (RDMA)");
  lane->set_state("lost");
  const Answer answer = show(reports, Style{});
  expect_sound(answer, "topology");
  EXPECT_THAT(answer.text, HasSubstr("ring of job evening (epoch 3):\n"
                                     "  n0 [0-1] -> n1 [2-3] -> n2 [4-5] -> n0\n"
                                     "  in the order of their lowest ranks: n0 has 0\n"));
  EXPECT_THAT(answer.text, HasSubstr("1     mlx5_1:1 (RDMA)  -     named in the configuration\n"));
  EXPECT_THAT(answer.text, HasSubstr("n1    10.0.0.2:7300  up     mlx5_1:1 (RDMA) (lost)\n"));
  EXPECT_THAT(answer.problems, ElementsAre("n0: the lane on mlx5_1:1 (RDMA) to n1 is not used"));
}

TEST(ShowTopology, SaysWhyThereIsNoMachine) {
  TopologyReports reports = ring_of(2);
  reports[0].mutable_machine()->set_fault("its driver hangs\x1b[2J");
  const Answer answer = show(reports, Style{});
  expect_sound(answer, "topology");
  EXPECT_THAT(answer.text, HasSubstr("cannot be shown: its driver hangs\\x1b[2J"));
  EXPECT_THAT(answer.text, HasSubstr("ring of job evening"));
}

TEST(ShowTopology, BelievesNoIndex) {
  using Bend = void (*)(wire::TopologyReport*);
  const std::vector<Bend> bends = {
      [](auto* r) { r->mutable_machine()->mutable_distances()->RemoveLast(); },
      [](auto* r) { r->mutable_machine()->mutable_gpus(0)->mutable_place()->set_socket(2); },
      [](auto* r) { r->mutable_machine()->mutable_nics(0)->mutable_place()->set_socket(-2); },
      [](auto* r) { r->mutable_machine()->mutable_numa(0)->set_socket(9); },
      [](auto* r) { r->mutable_machine()->mutable_gpus(0)->mutable_nvlinks(0)->set_gpu(8); },
      [](auto* r) { r->mutable_machine()->mutable_rails(0)->set_nics(0, 10); },
      [](auto* r) { r->mutable_machine()->mutable_rails(0)->clear_nics(); },
      [](auto* r) { r->mutable_machine()->mutable_affinity(0)->set_gpu(8); },
      [](auto* r) {
        r->mutable_machine()->mutable_affinity(0)->mutable_choices(0)->set_nic(0x80000001);
      },
      [](auto* r) { r->add_lanes()->set_nic(10); },
  };
  const TopologyReports good = replay("dgx-h100");
  ASSERT_EQ(nonsense_in(good[0]), "");
  for (size_t i = 0; i < bends.size(); ++i) {
    TopologyReports reports = good;
    bends[i](&reports[0]);
    EXPECT_NE(nonsense_in(reports[0]), "") << i;
    const Answer answer = show(reports, Style{});
    expect_sound(answer, "topology");
    EXPECT_THAT(answer.problems, ElementsAre(HasSubstr("contradicts itself"))) << i;
    EXPECT_THAT(svg_of(reports), HasSubstr("</svg>"));
    EXPECT_THAT(dot_of(reports), HasSubstr("digraph"));
  }
}

TEST(DrawTopology, ShowsEveryDeviceOnce) {
  const std::string svg = svg_of(replay("dgx-h100"));
  for (int i = 0; i < 8; ++i) EXPECT_EQ(count_of(svg, ">" + gpu_name(i) + "<"), 1u) << i;
  for (int i = 0; i < 9; ++i) EXPECT_EQ(count_of(svg, ">mlx5_" + std::to_string(i) + "<"), 1u) << i;
  EXPECT_EQ(count_of(svg, "class=\"affinity\""), 9u) << "one for each GPU, and one in the legend";
  EXPECT_EQ(count_of(svg, "class=\"nvlink\""), 9u);
  EXPECT_THAT(svg, HasSubstr("NVSwitch: 18 NVLinks from each GPU"));
  EXPECT_THAT(svg, HasSubstr(">PCIe switch 16:00.0<"));
}

TEST(DrawTopology, PicturesInTheDocumentsAreOfThisBuild) {
  const std::vector<std::pair<std::string, std::string>> pictures = {
      {"dgx-h100.svg", svg_of(replay("dgx-h100"))}, {"ring.svg", svg_of(ring_of(4))}};
  for (const auto& [name, drawn] : pictures) {
    std::ifstream file(std::string(GRADRING_PICTURES) + "/" + name);
    const std::string kept{std::istreambuf_iterator<char>(file), {}};
    if (kept == drawn) continue;
    const std::string now = ::testing::TempDir() + name;
    std::ofstream(now) << drawn;
    ADD_FAILURE() << "docs/topology/" << name << " is of another build; look at " << now
                  << ", and put it there";
  }
}

TEST(DrawTopology, DrawsRingsOfAnySize) {
  for (const int nodes : {1, 2, 4, 16, 100}) {
    const std::string svg = svg_of(ring_of(nodes));
    const size_t arrows = nodes == 1 ? 0 : size_t(nodes);
    EXPECT_EQ(count_of(svg, "<path class=\"lane0\""), arrows) << nodes;
    EXPECT_EQ(count_of(svg, "<path class=\"lane1\""), arrows) << nodes;
    EXPECT_EQ(count_of(svg, "class=\"node\""), size_t(nodes));
  }
}

TEST(DrawTopology, TheLegendOfAMachineHasRoom) {
  const std::string svg = svg_of(replay("server-4x2"));
  const std::string width = "width=\"", last = "<path class=\"system\" d=\"M";
  ASSERT_THAT(svg, HasSubstr(last));
  const double from = std::stod(svg.substr(svg.rfind(last) + last.size()));
  EXPECT_GT(std::stod(svg.substr(svg.find(width) + width.size())), from + 29 + 100)
      << "between sockets: it is the last there";
}

TEST(DrawTopology, TheLegendOfManyLanesHasRoom) {
  TopologyReports reports = ring_of(4);
  for (int i = 2; i < 8; ++i) {
    reports[0].add_lanes()->set_device("mlx5_" + std::to_string(i) + ":1 (RDMA)");
  }
  const std::string svg = svg_of(reports);
  EXPECT_EQ(count_of(svg, "<path class=\"key"), 8u);
  const std::string first = "<path class=\"key0\" d=\"M";
  ASSERT_THAT(svg, HasSubstr(first));
  EXPECT_GT(std::stod(svg.substr(svg.find(first) + first.size())), 0);
}

TEST(DrawTopology, NamesCannotBreakOut) {
  TopologyReports reports = ring_of(2);
  reports[0].mutable_rings(0)->set_job("</text><script>\"&\x01\xff");
  reports[0].mutable_rings(0)->mutable_members(0)->set_node("a\"]; b [label=\"\\");
  const std::string svg = svg_of(reports), dot = dot_of(reports);
  EXPECT_THAT(svg, Not(HasSubstr("<script>")));
  EXPECT_THAT(svg, HasSubstr("&lt;script&gt;&quot;&amp;\\x01\\xff"));
  EXPECT_THAT(dot, Not(HasSubstr("a\"]; b")));
  EXPECT_THAT(dot, HasSubstr("a\\\"]; b"));
}

TEST(CtlTopology, ReplaysAndDraws) {
  const TemporaryFolder folder;
  const std::string svg = folder.path() + "/a.svg", dot = folder.path() + "/a.dot";
  const std::string consumer = GRADRING_MACHINES "/consumer";
  const auto outcome =
      run({GRADRINGCTL, "--json", "topology", "--replay", consumer, "--svg", svg, "--dot", dot});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(offence(schema_of("topology"), nlohmann::json::parse(outcome.out)), "");
  std::string first;
  std::getline(std::ifstream(svg), first);
  EXPECT_THAT(first, HasSubstr("<svg"));
  std::getline(std::ifstream(dot), first);
  EXPECT_EQ(first, "digraph topology {");
}

TEST(CtlTopology, RecordsThisMachine) {
  const TemporaryFolder folder;
  const std::string to = folder.path() + "/here";
  // hwloc unloads its plugins at the end: what their libraries keep for good looks like a leak.
  const auto recorded =
      run({"ASAN_OPTIONS=detect_leaks=0", GRADRINGCTL, "--json", "topology", "--record", to});
  EXPECT_EQ(recorded.exit_code, 0) << recorded.err;
  EXPECT_EQ(offence(schema_of("topology"), nlohmann::json::parse(recorded.out)), "");
  const auto shown = run({GRADRINGCTL, "topology", "--replay", to});
  EXPECT_EQ(shown.exit_code, 0) << shown.err;
  EXPECT_THAT(shown.out, HasSubstr("NUMA node 0"));
}

TEST(CtlTopology, SaysWhatIsWrong) {
  const TemporaryFolder folder;
  const auto nowhere = run({GRADRINGCTL, "topology", "--replay", folder.path() + "/no"});
  EXPECT_EQ(nowhere.exit_code, 1);
  EXPECT_THAT(nowhere.err, HasSubstr("a recording is a folder with"));
  std::ofstream(folder.path() + "/machine.yaml") << "gradring-machine: 1\n";
  std::ofstream(folder.path() + "/hwloc.xml") << "nonsense";
  const auto broken = run({GRADRINGCTL, "topology", "--replay", folder.path()});
  EXPECT_EQ(broken.exit_code, 1);
  EXPECT_THAT(broken.err, HasSubstr("hwloc.xml"));
  const std::string where = GRADRING_MACHINES "/consumer";
  const auto unwritable =
      run({GRADRINGCTL, "topology", "--replay", where, "--svg", folder.path() + "/no/a.svg"});
  EXPECT_EQ(unwritable.exit_code, 1);
  EXPECT_THAT(unwritable.err, HasSubstr("cannot write"));
  EXPECT_EQ(run({GRADRINGCTL, "topology", "--replay"}).exit_code, 2);
  EXPECT_EQ(run({GRADRINGCTL, "topology", "extra"}).exit_code, 2);
  EXPECT_EQ(run({GRADRINGCTL, "topology", "--replay", where, "--record", where}).exit_code, 2);
  EXPECT_EQ(run({GRADRINGCTL, "--runtime-dir=" + folder.path(), "topology"}).exit_code, 3);
  const std::string to = folder.path() + "/to";
  EXPECT_EQ(run({GRADRINGCTL, "topology", "--record", to, "--svg", to}).exit_code, 2);
  EXPECT_EQ(run({GRADRINGCTL, "topology", "--record", to, "--all"}).exit_code, 2);
  EXPECT_EQ(run({GRADRINGCTL, "topology", "--replay", where, "--node", "n1"}).exit_code, 2);
  EXPECT_EQ(run({GRADRINGCTL, "topology", "--all", "--node", "n1"}).exit_code, 2);
  EXPECT_EQ(run({GRADRINGCTL, "topology", "--replay", where, "--svg", ""}).exit_code, 2);
  EXPECT_EQ(run({GRADRINGCTL, "bandwidth", "--matrix", "--svg", ""}).exit_code, 2);
  EXPECT_EQ(run({GRADRINGCTL, "top", "--once", "--all", "--node", "n1"}).exit_code, 2);
}

}  // namespace
}  // namespace gradring::tools
