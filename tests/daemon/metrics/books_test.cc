// Which series there are, and that their counters never go backwards.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "daemon/metrics/job_book.h"
#include "daemon/metrics/labels.h"
#include "daemon/metrics/peer_book.h"
#include "daemon/metrics/recent_max.h"

namespace gradring::daemon::metrics {
namespace {

using testing::ElementsAre;

constexpr core::Time kSecond = core::kSecond;

JobFigures job(uint8_t number, const std::string& name, uint64_t submitted,
               std::vector<uint32_t> ranks = {0}) {
  JobFigures figures;
  figures.job = {number};
  figures.name = name;
  figures.slices_resent = submitted;
  for (const uint32_t rank : ranks) {
    core::StepTotals steps;
    steps.steps = submitted;
    steps.all.exposed = static_cast<core::Time>(submitted);
    figures.ranks.push_back({rank, submitted, 0, kSecond, steps});
  }
  return figures;
}

std::vector<std::string> labels(const std::vector<JobSeries>& all) {
  std::vector<std::string> names;
  for (const JobSeries& series : all) names.push_back(series.label);
  return names;
}

const JobSeries& of(const std::vector<JobSeries>& all, const std::string& label) {
  for (const JobSeries& series : all) {
    if (series.label == label) return series;
  }
  throw std::out_of_range(label);
}

TEST(JobBook, AJobThatRunsIsShownWithItsRanks) {
  JobBook book({});
  JobFigures figures = job(1, "resnet", 7, {2, 3});
  figures.epoch = 4;
  figures.oldest_open = 3 * kSecond;
  book.update({{figures}, {}, {}}, 5 * kSecond);
  const auto all = book.series(5 * kSecond);
  ASSERT_THAT(labels(all), ElementsAre("resnet"));
  ASSERT_TRUE(all[0].live);
  EXPECT_EQ(all[0].live->epoch, 4u);
  EXPECT_EQ(all[0].live->local, 2u);
  EXPECT_EQ(all[0].live->oldest_open, 2 * kSecond);
  ASSERT_EQ(all[0].ranks.size(), 2u);
  EXPECT_EQ(all[0].ranks[1].label, "3");
  EXPECT_EQ(all[0].ranks[1].submitted, 7u);
  EXPECT_EQ(all[0].ranks[1].quiet, 4 * kSecond);
}

TEST(JobBook, WhatIsOverIsKeptForAWhileAndThenGoes) {
  JobBook book({.jobs = 2, .ranks = 2, .linger = 10 * kSecond});
  book.update({{job(1, "a", 5)}, {}, {}}, 1 * kSecond);
  book.update({{}, {job(1, "a", 6)}, {}}, 2 * kSecond);
  auto all = book.series(2 * kSecond);
  ASSERT_THAT(labels(all), ElementsAre("a"));
  EXPECT_FALSE(all[0].live);
  EXPECT_EQ(all[0].slices_resent, 6u) << "its last word counts";
  EXPECT_FALSE(all[0].ranks[0].quiet);
  book.update({}, 11 * kSecond);
  EXPECT_THAT(labels(book.series(11 * kSecond)), ElementsAre("a"));
  book.update({}, 12 * kSecond);
  EXPECT_TRUE(book.series(12 * kSecond).empty());
}

TEST(JobBook, AJobThatCameAndWentBetweenTwoLooksIsCounted) {
  JobBook book({});
  book.update({{}, {job(1, "short", 3)}, {}}, kSecond);
  EXPECT_EQ(of(book.series(kSecond), "short").slices_resent, 3u);
}

TEST(JobBook, AJobThatIsStartedAgainCountsOn) {
  JobBook book({});
  book.update({{job(1, "a", 5)}, {}, {}}, 1 * kSecond);
  book.update({{job(2, "a", 1)}, {job(1, "a", 6)}, {}}, 2 * kSecond);
  EXPECT_EQ(of(book.series(2 * kSecond), "a").slices_resent, 7u);
  EXPECT_EQ(of(book.series(2 * kSecond), "a").ranks[0].submitted, 7u);
  EXPECT_EQ(of(book.series(2 * kSecond), "a").ranks[0].steps.steps, 7u);
  EXPECT_EQ(of(book.series(2 * kSecond), "a").ranks[0].steps.all.exposed, 7);
  // Of which no last word was heard.
  book.update({{job(3, "a", 1)}, {}, {}}, 3 * kSecond);
  EXPECT_EQ(of(book.series(3 * kSecond), "a").slices_resent, 8u);
}

TEST(JobBook, AJobThatTakesItsNodeInAgainCountsOn) {
  JobBook book({});
  book.update({{job(1, "a", 5)}, {}, {}}, 1 * kSecond);
  // Its ranks here were lost, and others came under the same id, before anybody looked; twice even.
  book.update({{job(1, "a", 1)}, {job(1, "a", 6), job(1, "a", 2)}, {}}, 2 * kSecond);
  EXPECT_EQ(of(book.series(2 * kSecond), "a").slices_resent, 9u);
  ASSERT_EQ(of(book.series(2 * kSecond), "a").ranks.size(), 1u);
  EXPECT_EQ(of(book.series(2 * kSecond), "a").ranks[0].submitted, 9u);
  EXPECT_EQ(of(book.series(2 * kSecond), "a").ranks[0].steps.steps, 9u);
  book.update({{job(1, "a", 4)}, {}, {}}, 3 * kSecond);
  EXPECT_EQ(of(book.series(3 * kSecond), "a").slices_resent, 12u);
  book.update({{}, {job(1, "a", 5)}, {}}, 4 * kSecond);
  EXPECT_EQ(of(book.series(4 * kSecond), "a").slices_resent, 13u);
}

TEST(JobBook, WhoComesWhenAllPlacesAreTakenIsAmongTheOthersForGood) {
  JobBook book({.jobs = 2, .ranks = 8, .linger = 10 * kSecond});
  book.update({{job(1, "a", 1), job(2, "b", 1), job(3, "c", 1), job(4, "d", 1)}, {}, {}}, kSecond);
  EXPECT_THAT(labels(book.series(kSecond)), ElementsAre("a", "b", "other"));
  EXPECT_EQ(of(book.series(kSecond), "other").slices_resent, 2u);
  EXPECT_EQ(of(book.series(kSecond), "other").ranks[0].label, "other");
  EXPECT_EQ(of(book.series(kSecond), "other").ranks[0].submitted, 2u);
  // a's place is free, and c stays where it is; a new one takes it.
  book.update({{job(2, "b", 1), job(3, "c", 2), job(5, "e", 1)}, {}, {}}, 12 * kSecond);
  book.update({{job(2, "b", 1), job(3, "c", 2), job(6, "f", 1)}, {}, {}}, 13 * kSecond);
  EXPECT_THAT(labels(book.series(13 * kSecond)), ElementsAre("b", "f", "other"));
  EXPECT_EQ(of(book.series(13 * kSecond), "other").slices_resent, 4u) << "c 2, d 1, e 1";
  // The others are never forgotten.
  book.update({}, 1000 * kSecond);
  EXPECT_THAT(labels(book.series(1000 * kSecond)), ElementsAre("other"));
}

TEST(JobBook, RanksAreBoundedOverAllJobs) {
  JobBook book({.jobs = 8, .ranks = 3, .linger = 10 * kSecond});
  book.update({{job(1, "a", 1, {0, 1}), job(2, "b", 1, {0, 1, 2})}, {}, {}}, kSecond);
  const auto all = book.series(kSecond);
  EXPECT_EQ(of(all, "a").ranks.size(), 2u);
  ASSERT_EQ(of(all, "b").ranks.size(), 2u);
  EXPECT_EQ(of(all, "b").ranks[0].label, "0");
  EXPECT_EQ(of(all, "b").ranks[1].label, "other");
  EXPECT_EQ(of(all, "b").ranks[1].submitted, 2u);
  book.update({}, 12 * kSecond);
  book.update({{job(3, "c", 1, {0, 1, 2})}, {}, {}}, 13 * kSecond);
  EXPECT_EQ(of(book.series(13 * kSecond), "c").ranks.size(), 3u) << "their places are free again";
}

TEST(JobBook, ARankThatCameTooLateStaysAmongTheOthers) {
  JobBook book({.jobs = 8, .ranks = 3, .linger = 10 * kSecond});
  book.update({{job(1, "a", 1, {0, 1}), job(2, "b", 4, {0, 1, 2})}, {}, {}}, kSecond);
  book.update({{job(2, "b", 5, {0, 1, 2})}, {}, {}}, 2 * kSecond);
  for (const core::Time now : {12 * kSecond, 13 * kSecond}) {  // a's places are free
    book.update({{job(2, "b", 6, {0, 1, 2, 7})}, {}, {}}, now);
    const auto all = book.series(now);
    ASSERT_THAT(labels(all), ElementsAre("b"));
    ASSERT_EQ(all[0].ranks.size(), 2u);
    EXPECT_EQ(all[0].ranks[0].submitted, 6u);
    EXPECT_EQ(all[0].ranks[1].label, "other");
    EXPECT_EQ(all[0].ranks[1].submitted, 18u);
  }
}

// The limits that alerts compare them with are those of one job.
TEST(JobBook, MemoryOfTheOthersIsThatOfTheLargest) {
  JobBook book({.jobs = 1, .ranks = 8, .linger = kSecond});
  std::vector<JobFigures> jobs = {job(1, "a", 1), job(2, "b", 1), job(3, "c", 1)};
  jobs[1].staging_bytes = 30;
  jobs[2].staging_bytes = 40;
  jobs[1].feedback_bytes = 60;
  jobs[2].feedback_bytes = 50;
  book.update({jobs, {}, {}}, kSecond);
  const auto all = book.series(kSecond);
  ASSERT_TRUE(of(all, "other").live);
  EXPECT_EQ(of(all, "other").live->staging_bytes, 40u);
  EXPECT_EQ(of(all, "other").live->feedback_bytes, 60u);
  EXPECT_EQ(of(all, "other").live->local, 2u);
}

TEST(JobBook, NamesFromOutsideBreakNothing) {
  JobBook book({});
  book.update({{job(1, "a\nb\xff\"", 1), job(2, "", 1), job(3, std::string(500, 'x'), 1),
                job(4, "other", 1)},
               {},
               {}},
              kSecond);
  EXPECT_THAT(labels(book.series(kSecond)),
              ElementsAre("_", "a_b_\"", "other", std::string(64, 'x')));
}

TEST(PeerBook, TheFirstHaveSeriesOfTheirOwnAndTheRestIsSummed) {
  PeerBook book;
  book.lost("b", Cause::kPeerSilent);
  book.lane_lost("c");
  book.lane_lost("c");
  std::vector<PeerSeries> peers(4);
  for (size_t i = 0; i < peers.size(); ++i) {
    peers[i].label = std::string(1, static_cast<char>('a' + i));
    peers[i].state = "up";
    peers[i].dropped_frames = i + 1;
    peers[i].lanes = {{"up", 10, 20}};
  }
  peers[3].lanes.push_back({"lost", 1, 2});
  const auto list = book.series(peers, 2);
  ASSERT_EQ(list.size(), 3u);
  EXPECT_EQ(list[0].label, "a");
  EXPECT_EQ(list[1].losses[static_cast<size_t>(Cause::kPeerSilent)], 1u);
  EXPECT_EQ(list[2].label, "other");
  EXPECT_EQ(list[2].state, "");
  EXPECT_EQ(list[2].dropped_frames, 7u);
  EXPECT_EQ(list[2].lane_losses, 2u);
  ASSERT_EQ(list[2].lanes.size(), 2u);
  EXPECT_EQ(list[2].lanes[0].sent_bytes, 20u);
  EXPECT_EQ(list[2].lanes[1].received_bytes, 2u);
}

std::vector<PeerSeries> peers_of(const std::vector<std::string>& names, uint64_t counted) {
  std::vector<PeerSeries> peers;
  for (const std::string& name : names) {
    PeerSeries& peer = peers.emplace_back();
    peer.label = name;
    peer.dropped_frames = counted;
    peer.lanes = {{"up", counted, counted}};
  }
  return peers;
}

std::map<std::string, uint64_t> dropped(const std::vector<PeerSeries>& list) {
  std::map<std::string, uint64_t> by_label;
  for (const PeerSeries& series : list) by_label[series.label] = series.dropped_frames;
  return by_label;
}

using Counts = std::map<std::string, uint64_t>;

// discover names others now and then.
TEST(PeerBook, OthersStayAmongThemWhenPeersGo) {
  PeerBook book;
  book.lost("c", Cause::kPeerSilent);
  const auto series = [&book](const std::vector<std::string>& names, uint64_t counted) {
    return book.series(peers_of(names, counted), 2);
  };
  EXPECT_EQ(dropped(series({"a", "b", "c", "d"}, 10)),
            (Counts{{"a", 10}, {"b", 10}, {"other", 20}}));
  EXPECT_EQ(dropped(series({"b", "c", "d"}, 11)), (Counts{{"b", 11}, {"other", 22}}))
      << "neither c nor d moves to the place that is free";
  EXPECT_EQ(dropped(series({"b", "d"}, 12)), (Counts{{"b", 12}, {"other", 23}}))
      << "what c had counted stays";
  EXPECT_EQ(dropped(series({"b", "d", "e"}, 13)), (Counts{{"b", 13}, {"e", 13}, {"other", 24}}))
      << "the place is for who comes now";
  const auto back = series({"b", "c", "d", "e"}, 2);
  EXPECT_EQ(dropped(back), (Counts{{"b", 2}, {"e", 2}, {"other", 28}})) << "all began anew";
  EXPECT_EQ(back.back().lanes[0].sent_bytes, 28u);
  EXPECT_EQ(back.back().losses[static_cast<size_t>(Cause::kPeerSilent)], 1u);
}

TEST(PeerBook, ForgetsWhichOthersHaveGoneAndNotWhatTheyCounted) {
  PeerBook book;
  uint64_t before = 0;
  for (size_t i = 0; i < 3 * PeerBook::kGoneMost; ++i) {
    const std::string name = "n" + std::to_string(i);
    book.lane_lost(name);
    const auto list = book.series(peers_of({"a", name}, 1), 1);
    ASSERT_EQ(list.size(), 2u);
    ASSERT_EQ(list[1].dropped_frames, ++before);
    ASSERT_EQ(list[1].lane_losses, before);
  }
}

TEST(PeerBook, NoLabelIsThereTwice) {
  std::vector<PeerSeries> peers(3);
  peers[0].label = peers[1].label = "same";
  peers[2].label = "other";
  PeerBook book;
  for (int round = 0; round < 2; ++round) {
    const auto list = book.series(peers);
    ASSERT_EQ(list.size(), 2u);
    EXPECT_EQ(list[0].label, "same");
    EXPECT_EQ(list[1].label, "other");
  }
}

TEST(RecentMax, ForgetsWhatIsPast) {
  RecentMax max(10);
  EXPECT_EQ(max.add(5, 1), 5);
  EXPECT_EQ(max.add(3, 4), 5);
  EXPECT_EQ(max.add(1, 10), 5);
  EXPECT_EQ(max.add(1, 11), 3) << "the 5 is 10 old";
  EXPECT_EQ(max.add(2, 14), 2);
  EXPECT_EQ(max.add(9, 15), 9);
}

}  // namespace
}  // namespace gradring::daemon::metrics
