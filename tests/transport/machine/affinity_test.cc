// Who gets which card where the machines recorded leave a choice, and how far things are apart.
#include "transport/machine/affinity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gradring::machine {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

Place at(uint8_t bus, std::vector<std::string> bridges, int numa = 0) {
  Place place;
  place.pci.bus = bus;
  place.numa = numa;
  place.bridges = std::move(bridges);
  return place;
}

void add_gpu(Machine* machine, std::vector<std::string> bridges, int numa = 0) {
  const auto bus = static_cast<uint8_t>(machine->gpus.size() + 1);
  machine->gpus.push_back({at(bus, std::move(bridges), numa), "gpu", "", 0, {}});
}

void add_nic(Machine* machine, std::vector<std::string> bridges, int numa = 0,
             uint64_t gigabits = 100) {
  const auto bus = static_cast<uint8_t>(machine->nics.size() + 128);
  NetDevice device;
  device.name = "n" + std::to_string(machine->nics.size());
  device.up = true;
  device.rate_bps = gigabits * 1'000'000'000;
  machine->nics.push_back({at(bus, std::move(bridges), numa), device.name, {device}, {}});
}

std::vector<std::vector<size_t>> choose(const Machine& machine) {
  std::vector<std::vector<size_t>> cards;
  for (const auto& choices : affinity_of(machine, rails_of(machine, {}), {}).choices) {
    cards.emplace_back();
    for (const Choice& choice : choices) cards.back().push_back(choice.nic);
  }
  return cards;
}

TEST(Distance, HasNvidiaSmisCodes) {
  const Place gpu = at(1, {"host 0", "port", "up", "down1"});
  EXPECT_EQ(distance_between(gpu, at(2, {"host 0", "port", "up", "down2"})), Distance::kPix);
  EXPECT_EQ(distance_between(gpu, at(2, {"host 0", "port", "up", "down1"})), Distance::kPix)
      << "functions of one card";
  EXPECT_EQ(distance_between(gpu, at(2, {"host 0", "port", "up", "down2", "up2", "down3"})),
            Distance::kPxb);
  EXPECT_EQ(distance_between(gpu, at(2, {"host 0", "port2"})), Distance::kPhb);
  EXPECT_EQ(distance_between(gpu, at(2, {"host 1", "port3"}, 0)), Distance::kNode);
  EXPECT_EQ(distance_between(gpu, at(2, {"host 1", "port3"}, 1)), Distance::kSys);
  EXPECT_EQ(distance_between(at(1, {}, -1), at(2, {}, -1)), Distance::kSys)
      << "two that are not known are not near because of that";
}

TEST(Distance, NvLinksGoStraightOrOverTheSwitch) {
  Machine machine;
  for (int i = 0; i < 3; ++i) add_gpu(&machine, {"host 0"});
  machine.gpus[0].nvlinks = {{1, 4}};
  machine.gpus[1].nvlinks = {{0, 4}, {-1, 12}};
  machine.gpus[2].nvlinks = {{-1, 18}};
  EXPECT_EQ(nvlinks_between(machine, 0, 1), 4u);
  EXPECT_EQ(nvlinks_between(machine, 1, 2), 12u) << "no more than the weaker has";
  EXPECT_EQ(nvlinks_between(machine, 0, 2), 0u);
}

TEST(Affinity, GreedIsMended) {
  // Both cards are near the first GPU, and only the first of them is near the second GPU.
  Machine machine;
  add_gpu(&machine, {"host 0", "switch"});
  add_gpu(&machine, {"host 1", "switch2", "down"}, 1);
  add_nic(&machine, {"host 1", "switch2", "down2"}, 1);
  add_nic(&machine, {"host 0", "switch", "down"});
  EXPECT_THAT(choose(machine), ElementsAre(ElementsAre(1), ElementsAre(0)));

  Machine greedy;
  add_gpu(&greedy, {"host 0", "a", "1"});
  add_gpu(&greedy, {"host 0", "a", "2"});
  add_nic(&greedy, {"host 0", "a", "3"});
  add_nic(&greedy, {"host 0", "b"});
  EXPECT_THAT(choose(greedy), ElementsAre(ElementsAre(0), ElementsAre(1)));
  const Affinity affinity = affinity_of(greedy, rails_of(greedy, {}), {});
  EXPECT_EQ(affinity.choices[1][0].reason,
            "at the same root complex; nearer ones serve nearer GPUs");
}

TEST(Affinity, AnExchangeMakesTheWholeNearer) {
  // Greed gives n0 to the first GPU, for which n1 is as near; the second has only n0.
  Machine machine;
  add_gpu(&machine, {"host 0"}, 0);
  add_gpu(&machine, {"host 1"}, 0);
  add_nic(&machine, {"host 1", "x"}, 0);
  add_nic(&machine, {"host 2"}, 0);
  EXPECT_THAT(choose(machine), ElementsAre(ElementsAre(1), ElementsAre(0)));
}

TEST(Affinity, EveryCardHasItsShare) {
  Machine machine;
  for (int i = 0; i < 8; ++i) add_gpu(&machine, {"host 0", "near"});
  for (int i = 0; i < 3; ++i) add_nic(&machine, {"host 0", i == 0 ? "near" : "far"});
  std::vector<int> load(3);
  for (const auto& cards : choose(machine)) ++load[cards.at(0)];
  EXPECT_THAT(load, ElementsAre(3, 3, 2));
}

TEST(Affinity, ManyCardsGoRound) {
  Machine machine;
  for (int i = 0; i < 2; ++i) add_gpu(&machine, {"host " + std::to_string(i)}, i);
  for (int i = 0; i < 5; ++i) add_nic(&machine, {"host " + std::to_string(i % 2)}, i % 2);
  EXPECT_THAT(choose(machine), ElementsAre(ElementsAre(0, 2), ElementsAre(1, 3)))
      << "and the fifth is nobody's";
}

TEST(Affinity, WithoutCardsOrGpusThereIsNone) {
  Machine machine;
  EXPECT_THAT(choose(machine), IsEmpty());
  add_gpu(&machine, {});
  EXPECT_THAT(choose(machine), ElementsAre(IsEmpty()));
  add_nic(&machine, {});
  machine.nics[0].interfaces[0].up = false;
  EXPECT_THAT(choose(machine), ElementsAre(IsEmpty())) << "a link that is down carries nothing";
}

TEST(Rails, UnknownRatesAreUsedAmongThemselves) {
  Machine machine;
  add_nic(&machine, {}, 0, 0);
  add_nic(&machine, {}, 0, 0);
  EXPECT_TRUE(rails_of(machine, {})[1].used);
  add_nic(&machine, {}, 0, 10);
  const std::vector<Rail> rails = rails_of(machine, {});
  EXPECT_FALSE(rails[0].used);
  EXPECT_EQ(rails[0].reason, "of unknown rate, less than half of the fastest's 10 Gbit/s");
}

TEST(Pci, IsReadInAllSpellings) {
  EXPECT_EQ(text_of(*parse_pci("00000000:1B:00.0")), "0000:1b:00.0");
  EXPECT_EQ(text_of(*parse_pci("10000:e1:1f.7")), "10000:e1:1f.7");
  for (const char* bad : {"", "1b:00.0", "0000:1b:00", "0000:1b:20.0", "0000:1b:00.8",
                          "0000:1b:00.0 ", "-1:00:00.0", "0000:100:00.0", "x"}) {
    EXPECT_FALSE(parse_pci(bad)) << bad;
  }
}

}  // namespace
}  // namespace gradring::machine
