// Tables that were found, and the file that they are kept in.

#include "daemon/records/tuning_store.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "daemon/fd.h"
#include "tests/daemon/scratch.h"

namespace gradring::daemon {
namespace {

using core::Choice;

TunedFor two_nodes() { return {{{"a", 2, 0}, {"b", 2, 1}}, 256 << 10, "gradring 1, ucx 1.13"}; }

KnownTable some_table() {
  KnownTable known;
  known.table.set({6, {Choice::Way::kParts, 0}, {}});
  known.table.set({14, {Choice::Way::kRing, 128 << 10}, {}});
  known.table.set({17, {Choice::Way::kRing, 0}, {}});
  known.searched = {6, 17};
  return known;
}

class TuningStoreTest : public testing::Test {
 protected:
  std::string text() const {
    std::ifstream file(path_);
    std::stringstream all;
    all << file.rdbuf();
    return all.str();
  }

  Scratch scratch_;
  const std::string path_ = scratch_.path("tuning");
  TuningStore store_{path_};
};

TEST_F(TuningStoreTest, WhatIsKeptIsFoundByAnotherDaemon) {
  EXPECT_EQ(store_.find(two_nodes()), std::nullopt);
  store_.keep(two_nodes(), some_table());
  EXPECT_EQ(TuningStore(path_).find(two_nodes()), some_table());
  KnownTable better = some_table();
  better.searched = {6, 14, 17};
  store_.keep(two_nodes(), better);
  EXPECT_EQ(store_.find(two_nodes()), better);
  EXPECT_EQ(text().find("found {"), text().rfind("found {")) << "one for each kind of job";
}

TEST_F(TuningStoreTest, ItSaysNothingOfOthers) {
  store_.keep(two_nodes(), some_table());
  TunedFor other = two_nodes();
  other.nodes[1].name = "c";
  EXPECT_EQ(store_.find(other), std::nullopt);
  other = two_nodes();
  other.nodes[1].ranks = 1;
  EXPECT_EQ(store_.find(other), std::nullopt);
  other = two_nodes();
  other.nodes[1].lanes = 2;
  EXPECT_EQ(store_.find(other), std::nullopt);
  other = two_nodes();
  other.nodes.push_back({"c", 2, 1});
  EXPECT_EQ(store_.find(other), std::nullopt);
  other = two_nodes();
  other.slice_bytes = 128 << 10;
  EXPECT_EQ(store_.find(other), std::nullopt);
  other = two_nodes();
  other.version = "gradring 2, ucx 1.13";
  EXPECT_EQ(store_.find(other), std::nullopt);
  store_.keep(other, {});
  EXPECT_EQ(store_.find(two_nodes()), some_table());
  EXPECT_EQ(store_.find(other), KnownTable{});
}

TEST_F(TuningStoreTest, ADamagedFileIsWrittenAnew) {
  store_.keep(two_nodes(), some_table());
  const std::string whole = text();
  for (const std::string& damaged :
       {whole.substr(0, whole.size() / 2), std::string("found { nodes { name: 7 } }"),
        std::string(10'000, '\0'), std::string("unknown: 1\n"),
        std::string("found { table: \"63K:nonsense\" }")}) {
    scratch_.write("tuning", damaged);
    EXPECT_EQ(store_.find(two_nodes()), std::nullopt);
    store_.keep(two_nodes(), some_table());
    EXPECT_EQ(store_.find(two_nodes()), some_table());
  }
}

TEST_F(TuningStoreTest, ATableOfNonsenseIsNotBelieved) {
  store_.keep(two_nodes(), some_table());
  std::string edited = text();
  const size_t at = edited.find("64K:parts");
  ASSERT_NE(at, std::string::npos) << edited;
  edited.replace(at, 3, "63K");
  scratch_.write("tuning", edited);
  EXPECT_EQ(store_.find(two_nodes()), std::nullopt);
}

TEST_F(TuningStoreTest, TheOldestGoWhenThereAreTooMany) {
  for (uint32_t i = 0; i < 100; ++i) {
    TunedFor on = two_nodes();
    on.nodes[0].ranks = i;
    store_.keep(on, some_table());
  }
  TunedFor on = two_nodes();
  on.nodes[0].ranks = 99;
  EXPECT_EQ(store_.find(on), some_table());
  on.nodes[0].ranks = 0;
  EXPECT_EQ(store_.find(on), std::nullopt);
}

TEST_F(TuningStoreTest, DaemonsThatShareAFileLoseNothingOfOneAnother) {
  const auto of_ranks = [](uint32_t ranks) {
    TunedFor on = two_nodes();
    on.nodes[0].ranks = ranks;
    return on;
  };
  const auto daemon = [&](uint32_t first) {
    TuningStore store(path_);
    for (uint32_t i = first; i < 60; i += 2) {
      while (!store.keep(of_ranks(i), some_table())) std::this_thread::yield();
    }
  };
  std::thread one(daemon, 0), another(daemon, 1);
  one.join();
  another.join();
  for (uint32_t i = 0; i < 60; ++i) EXPECT_EQ(store_.find(of_ranks(i)), some_table()) << i;
}

TEST_F(TuningStoreTest, NobodyWaitsForADaemonThatIsStoppedWhileItWrites) {
  EXPECT_TRUE(store_.keep(two_nodes(), some_table()));
  {
    Fd stopped(open((path_ + ".new").c_str(), O_WRONLY | O_CREAT, 0644));
    ASSERT_EQ(flock(stopped.get(), LOCK_EX), 0);
    EXPECT_FALSE(store_.keep(two_nodes(), {}));
    EXPECT_EQ(store_.find(two_nodes()), some_table());
  }
  EXPECT_TRUE(store_.keep(two_nodes(), {})) << "what such a one leaves behind is no lock";
  EXPECT_EQ(store_.find(two_nodes()), KnownTable{});
}

TEST_F(TuningStoreTest, WhatCannotBeWrittenIsNoMoreThanAWarning) {
  TuningStore nowhere(scratch_.path("missing/tuning"));
  nowhere.keep(two_nodes(), some_table());
  EXPECT_EQ(nowhere.find(two_nodes()), std::nullopt);
}

}  // namespace
}  // namespace gradring::daemon
