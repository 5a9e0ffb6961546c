// What gradringctl top makes of what daemons say, and what keys do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/tools/schema.h"
#include "tests/tools/top_samples.h"
#include "tools/ctl/command.h"
#include "tools/ctl/top/json.h"
#include "tools/ctl/top/view.h"

namespace gradring::tools::top {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr Key letter(char character) { return {Key::Kind::kCharacter, character}; }
constexpr Key kEnter{Key::Kind::kEnter};
constexpr Key kEscape{Key::Kind::kEscape};
constexpr Key kUp{Key::Kind::kUp};
constexpr Key kDown{Key::Kind::kDown};

TEST(TopModel, RatesGoByTheClocksOfThoseWhoCount) {
  const Model model = model_of(sample_at(10), sample_at(14));
  ASSERT_EQ(model.jobs.size(), 1u);
  const Job& job = model.jobs[0];
  EXPECT_EQ(job.nodes, 2u);
  EXPECT_DOUBLE_EQ(*job.ops_per_second, 100);
  EXPECT_DOUBLE_EQ(*job.bytes_per_second, 2e9) << "of each of the two ranks of n0";
  EXPECT_DOUBLE_EQ(*job.bus_bytes_per_second, 3e9) << "an allreduce of 4: 2(n-1)/n";
  EXPECT_DOUBLE_EQ(*job.exposed, 0.25);
  ASSERT_TRUE(job.straggler);
  EXPECT_EQ(job.straggler->rank, 3u);
  ASSERT_TRUE(job.oldest);
  EXPECT_EQ(job.oldest->waiting_for.at(0).rank, 3u);
  ASSERT_EQ(model.links.size(), 2u);
  EXPECT_DOUBLE_EQ(*model.links[0].sent_per_second, 125e6);
  EXPECT_DOUBLE_EQ(*model.links[0].received_per_second, 62.5e6);
  EXPECT_DOUBLE_EQ(*model.links[0].rtt_seconds, 250e-6);
  EXPECT_EQ(model.links[1].to, "10.0.0.3:7300");
  EXPECT_FALSE(model.links[1].sent_per_second);
}

TEST(TopModel, ThereAreNoRatesOfWhatWasSeenOnceOrBeganAnew) {
  const Model once = model_of(sample_at(10), sample_at(10));
  EXPECT_FALSE(once.jobs[0].ops_per_second);
  EXPECT_FALSE(once.links[0].sent_per_second);
  Sample anew = sample_at(14);
  anew.jobs[0].report.mutable_summary()->set_ops_completed(3);
  EXPECT_FALSE(model_of(sample_at(10), anew).jobs[0].bytes_per_second);
  Sample another = sample_at(14);
  another.jobs[0].report.mutable_summary()->set_incarnation("ffff");
  EXPECT_FALSE(model_of(sample_at(10), another).jobs[0].ops_per_second);
  EXPECT_TRUE(model_of(Sample(), Sample()).jobs.empty());
}

TEST(TopModel, CountsTheNodesThatAreSilent) {
  Sample sample = sample_at(14);
  sample.jobs[0].report.mutable_ranks()->DeleteSubrange(2, 2);  // those of n1
  sample.jobs[0].report.add_silent_nodes("n1");
  EXPECT_EQ(model_of(sample_at(10), sample).jobs[0].nodes, 2u);
}

// Of a hundred jobs not all are asked about, and it is the one that hangs that matters.
TEST(TopSample, AsksFirstAboutJobsThatFailedOrGetNowhere) {
  wire::JobSummary job;
  job.set_name("llama");
  job.set_incarnation("0123");
  job.set_state("running");
  job.set_ops_completed(17);
  job.set_ops_open(1);
  EXPECT_TRUE(wants_a_look(job, {{"0123", 17}}));
  EXPECT_FALSE(wants_a_look(job, {{"0123", 16}}));
  EXPECT_FALSE(wants_a_look(job, {})) << "it was not seen before";
  job.set_ops_open(0);
  EXPECT_FALSE(wants_a_look(job, {{"0123", 17}})) << "it computes";
  job.set_state("failed");
  EXPECT_TRUE(wants_a_look(job, {}));
}

TEST(TopModel, KeepsItsPromiseToScripts) {
  for (const Model& model :
       {model_of(sample_at(1), sample_at(2)), model_of(sample_at(1), sample_at(1)), Model()}) {
    Answer answer;
    answer.json = json_of(model);
    EXPECT_EQ(offence(schema_of("top"), document_of(answer)), "");
  }
}

Model three_jobs() {
  Model model{.here = "n0", .peers = {"n1", "n2"}};
  model.jobs = {{.name = "bert", .incarnation = "b1", .size = 8, .bytes_per_second = 2e9},
                {.name = "forming", .size = 64},
                {.name = "alexnet", .incarnation = "a1", .size = 2, .bytes_per_second = 5e9}};
  return model;
}

std::vector<std::string> names(const Model& model, const View& view) {
  std::vector<std::string> names;
  for (const Job* job : jobs_shown(model, view)) names.push_back(job->name);
  return names;
}

TEST(TopView, SortsByAnyColumnBothWays) {
  const Model model = three_jobs();
  View view;
  EXPECT_THAT(names(model, view), ElementsAre("alexnet", "bert", "forming"));
  press(letter('r'), model, &view);
  EXPECT_THAT(names(model, view), ElementsAre("bert", "alexnet", "forming"))
      << "what has no value stays last";
  view = {.sort = Sort::kName};
  EXPECT_THAT(names(model, view), ElementsAre("alexnet", "bert", "forming"));
  press(letter('r'), model, &view);
  EXPECT_THAT(names(model, view), ElementsAre("forming", "bert", "alexnet"));
  view = {.sort = Sort::kName};
  press(letter('s'), model, &view);
  EXPECT_EQ(view.sort, Sort::kRanks);
  EXPECT_THAT(names(model, view), ElementsAre("forming", "bert", "alexnet"));
  press({Key::Kind::kLeft}, model, &view);
  press({Key::Kind::kLeft}, model, &view);
  EXPECT_EQ(view.sort, Sort::kOldest);
  press({Key::Kind::kRight}, model, &view);
  EXPECT_EQ(view.sort, Sort::kName);
}

TEST(TopView, ShowsWhatFormsBeforeWhatIsOver) {
  Model model = three_jobs();
  model.jobs.push_back({.name = "ended", .incarnation = "e1", .size = 2, .over = true});
  EXPECT_THAT(names(model, View()), ElementsAre("alexnet", "bert", "forming", "ended"));
  EXPECT_THAT(names(model, {.reversed = true}), ElementsAre("bert", "alexnet", "forming", "ended"));
}

TEST(TopView, FiltersWhileItIsTyped) {
  const Model model = three_jobs();
  View view;
  for (const char typed : std::string("/er")) EXPECT_TRUE(press(letter(typed), model, &view));
  EXPECT_THAT(names(model, view), ElementsAre("bert"));
  press(letter('q'), model, &view);
  EXPECT_THAT(names(model, view), IsEmpty()) << "q belongs to the filter here";
  press({Key::Kind::kBackspace}, model, &view);
  for (const char byte : std::string("\u00e9")) press(letter(byte), model, &view);
  press({Key::Kind::kBackspace}, model, &view);
  EXPECT_EQ(view.filter, "er") << "a letter goes whole, however many bytes it has";
  press(kEnter, model, &view);
  EXPECT_FALSE(view.typing);
  EXPECT_THAT(names(model, view), ElementsAre("bert"));
  press(kEscape, model, &view);
  EXPECT_EQ(names(model, view).size(), 3u);
}

TEST(TopView, SelectsAJobAndKeepsToItWhenTheOrderChanges) {
  Model model = three_jobs();
  View view;
  EXPECT_EQ(selected_job(model, view)->name, "alexnet");
  press(kUp, model, &view);
  EXPECT_EQ(selected_job(model, view)->name, "alexnet");
  press(kDown, model, &view);
  EXPECT_EQ(selected_job(model, view)->name, "bert");
  model.jobs[0].bytes_per_second = 9e9;
  EXPECT_EQ(jobs_shown(model, view)[0]->name, "bert");
  EXPECT_EQ(selected_job(model, view)->name, "bert");
  model.jobs.erase(model.jobs.begin());
  EXPECT_EQ(selected_job(model, view)->name, "alexnet") << "it is gone";
  EXPECT_EQ(selected_job(Model(), view), nullptr);
  press(kDown, Model(), &view);
  press(kEnter, Model(), &view);
  EXPECT_FALSE(view.ranks);
}

TEST(TopView, EnterShowsRanksWhichUpAndDownScroll) {
  Model model = three_jobs();
  model.jobs[2].ranks.resize(2);
  View view;
  press(kEnter, model, &view);
  EXPECT_TRUE(view.ranks);
  for (int i = 0; i < 5; ++i) press(kDown, model, &view);
  EXPECT_EQ(view.scroll, 1u);
  for (int i = 0; i < 5; ++i) press(kUp, model, &view);
  EXPECT_EQ(view.scroll, 0u);
  press(kEscape, model, &view);
  EXPECT_FALSE(view.ranks);
}

TEST(TopView, ChoosesThisNodeAllAndEachPeer) {
  const Model model = three_jobs();
  View view;
  std::vector<Choice> chosen;
  for (int i = 0; i < 4; ++i) {
    press(letter('n'), model, &view);
    chosen.push_back(view.choice);
  }
  EXPECT_THAT(chosen, ElementsAre(Choice{true, ""}, Choice{false, "n1"}, Choice{false, "n2"},
                                  Choice{false, ""}));
  view.choice = {false, "gone"};
  press(letter('n'), model, &view);
  EXPECT_EQ(view.choice, Choice());
}

TEST(TopView, QEndsItAndHExplains) {
  const Model model = three_jobs();
  View view;
  EXPECT_TRUE(press(letter('p'), model, &view));
  EXPECT_TRUE(view.paused);
  EXPECT_TRUE(press(letter('h'), model, &view));
  EXPECT_TRUE(view.help);
  EXPECT_TRUE(press(letter('x'), model, &view));
  EXPECT_FALSE(view.help);
  EXPECT_FALSE(press(letter('q'), model, &view));
  press(letter('?'), model, &view);
  EXPECT_FALSE(press(letter('q'), model, &view));
}

}  // namespace
}  // namespace gradring::tools::top
