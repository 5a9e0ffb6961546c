// What the screen of gradringctl top looks like, whatever its size.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/tools/top_samples.h"
#include "tools/common/text.h"
#include "tools/ctl/top/frame.h"

namespace gradring::tools::top {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

Model live_model() { return model_of(sample_at(10), sample_at(14)); }

std::string shown(const Model& model, const View& view, Size size = {}) {
  return text_of(frame_of(model, view, size));
}

size_t width_of(const Line& line) {
  size_t width = 0;
  for (const Span& span : line) width += tools::width_of(span.text);
  return width;
}

// How the first piece of text that has these words looks.
Look look_of(const std::vector<Line>& frame, const std::string& words) {
  for (const Line& line : frame) {
    for (const Span& span : line) {
      if (span.text.find(words) != std::string::npos) return span.look;
    }
  }
  ADD_FAILURE() << "nowhere: " << words;
  return Look::kPlain;
}

TEST(TopFrame, TellsAllOfAJobIn80Columns) {
  EXPECT_THAT(
      shown(live_model(), View()),
      HasSubstr(
          "llama              4     2   100.0   2.000    3.000  25.0 % 3: 41.0 ms 30.2 s: 3\n"));
}

TEST(TopFrame, SaysMoreWhereThereIsRoom) {
  const std::string wide = shown(live_model(), View(), {200, 60});
  EXPECT_THAT(wide,
              AllOf(HasSubstr("rank 3 (n1) by 41.0 ms"), HasSubstr("30.2 s, waits for rank 3 (n1)"),
                    HasSubstr("node n0 ready, up 2 h 1 min, 0.1.0"),
                    HasSubstr("segment-limit 32.0 MiB/8.0 GiB  max-sessions 2/1024"),
                    HasSubstr("eth0"), HasSubstr("1.000"), HasSubstr("0.500"), HasSubstr("0.2 ms"),
                    HasSubstr("connection refused")));
  EXPECT_THAT(wide,
              HasSubstr("oldest op: allreduce sum of 1024 float32 (op 17): waiting 30.2 s for "
                        "rank 3 (node n1, pid 4003, state S sleeping)"));
}

TEST(TopFrame, SaysNothingOfNodesThatItDoesNotKnow) {
  Model model = live_model();
  EXPECT_THAT(shown(model, View()), HasSubstr("llama: running, 4 ranks on 2 nodes, epoch 1"));
  model.jobs[0].state = "ended";
  model.jobs[0].nodes = 0;
  EXPECT_THAT(shown(model, View()), HasSubstr("llama: ended, 4 ranks, epoch 1"));
}

TEST(TopFrame, CountsTheNodesThatDoNotAnswer) {
  Model model = live_model();
  const View all{.choice = {.all = true}};
  EXPECT_THAT(shown(model, all), HasSubstr("1 node, 1 ready\n"));
  model.silent = 2;
  EXPECT_EQ(look_of(frame_of(model, all, {}), "2 silent"), Look::kBad);
  EXPECT_THAT(shown(model, all), HasSubstr("3 nodes, 1 ready, 2 silent\n"));
}

TEST(TopFrame, FitsAnyScreen) {
  Model model = live_model();
  model.problems = {"node n2: did not answer within two seconds, and nobody knows why that is"};
  for (int i = 0; i < 50; ++i) {
    model.jobs.push_back(model.jobs[0]);
    model.jobs.back().incarnation = std::to_string(i);
    model.jobs.back().name =
        "a-name-that-is-as-long-as-people-make-them-ünïcödé-" + std::to_string(i);
    model.links.push_back(model.links[0]);
  }
  for (const bool ranks : {false, true}) {
    for (const bool help : {false, true}) {
      for (size_t width = 0; width < 210; width += width < 12 ? 1 : 11) {
        for (size_t height = 0; height < 70; height += height < 12 ? 1 : 7) {
          View view;
          view.ranks = ranks;
          view.help = help;
          view.selected = "49";
          const auto frame = frame_of(model, view, {width, height});
          EXPECT_EQ(frame.size(), height);
          EXPECT_TRUE(std::ranges::all_of(
              frame, [width](const Line& line) { return width_of(line) <= width; }))
              << width << "x" << height;
        }
      }
    }
  }
}

TEST(TopFrame, TheSelectedJobIsSeenAndWhatIsNotIsCounted) {
  Model model = live_model();
  for (int i = 0; i < 50; ++i) {
    model.jobs.push_back(model.jobs[0]);
    model.jobs.back().incarnation = model.jobs.back().name = fmt::format("job-{:02}", i);
  }
  View view{.sort = Sort::kName};
  view.selected = "job-37";
  const auto frame = frame_of(model, view, {80, 24});
  EXPECT_EQ(look_of(frame, "job-37"), Look::kSelected);
  EXPECT_THAT(text_of(frame), AllOf(HasSubstr(" more\n"), HasSubstr("link to"),
                                    Not(HasSubstr("job-02")), HasSubstr("q quit")));
}

TEST(TopFrame, WhatIsWrongIsSeen) {
  Model model = live_model();
  View view;
  EXPECT_EQ(look_of(frame_of(model, view, {200, 60}), "256/256"), Look::kBad);
  EXPECT_EQ(look_of(frame_of(model, view, {200, 60}), "2/1024"), Look::kPlain);
  EXPECT_EQ(look_of(frame_of(model, view, {200, 60}), "connecting"), Look::kBad);
  EXPECT_EQ(look_of(frame_of(model, view, {200, 60}), "rank 3 (n1) by"), Look::kBad);
  model.jobs[0].state = "failed";
  EXPECT_EQ(look_of(frame_of(model, view, {200, 60}), "failed"), Look::kBad);
  model.silence = {12'400, "nobody listens at /run/gradring/control.sock"};
  EXPECT_THAT(shown(model, view), AllOf(HasSubstr("no answer since 12 s"),
                                        HasSubstr("nobody listens"), HasSubstr("llama")));
}

TEST(TopFrame, SaysThatThereIsMoreWhichIsNoProblem) {
  Model model = live_model();
  model.left_out = {"8 more jobs are not shown"};
  EXPECT_EQ(look_of(frame_of(model, View(), {200, 60}), "8 more jobs"), Look::kFaint);
  EXPECT_THAT(shown(model, View()), Not(HasSubstr("! 8 more")));
}

TEST(TopFrame, SaysHowItIsLookedAt) {
  const Model model = live_model();
  View view;
  view.sort = Sort::kOps;
  EXPECT_EQ(look_of(frame_of(model, view, {80, 24}), "ops/s"), Look::kSorted);
  view.filter = "nobody";
  EXPECT_THAT(shown(model, view),
              AllOf(HasSubstr("jobs with \"nobody\""), HasSubstr("no such job")));
  view.typing = true;
  EXPECT_THAT(shown(model, view), HasSubstr("show jobs with: nobody_"));
  view = {};
  view.paused = true;
  view.choice.all = true;
  EXPECT_THAT(shown(model, view),
              AllOf(HasSubstr("1 node, 1 ready"), HasSubstr("paused"), HasSubstr("from")));
  view = {};
  view.ranks = true;
  EXPECT_THAT(shown(model, view), AllOf(HasSubstr("S sleeping"), HasSubstr("100.0 ms"),
                                        HasSubstr("41.0 ms"), Not(HasSubstr("eth0"))));
  view.help = true;
  EXPECT_THAT(shown(model, view), AllOf(HasSubstr("reverse their order"), HasSubstr("any key")));
  EXPECT_THAT(shown(Model{.here = "n0"}, View()),
              AllOf(HasSubstr("no jobs"), HasSubstr("no peers")));
  EXPECT_THAT(shown(Model(), View()), AllOf(HasSubstr("asking"), Not(HasSubstr("no jobs"))));
}

TEST(TopFrame, ANameFromOutsideCannotDriveTheTerminal) {
  Model model = live_model();
  model.jobs[0].name = "evil\x1b[2J";
  model.links[0].to = model.links[0].device = model.nodes[0].node = "\x1b[31m";
  model.jobs[0].ranks[0].node = "\x1b[1m";
  model.silence = {1, "\x1b]0;title\x07"};
  View view;
  for (const bool ranks : {false, true}) {
    view.ranks = ranks;
    EXPECT_THAT(shown(model, view, {300, 80}), Not(HasSubstr("\x1b")));
  }
}

TEST(TopGrid, LeavesOutWhatIsWorthLeast) {
  Grid grid({{"name", 4, false, 3}, {"gone", 4, false, 1}, {"number", 6, true, 2}});
  grid.add({{"a"}, {"b"}, {"7"}});
  const auto narrow = grid.lines(11);
  EXPECT_EQ(text_of(narrow), "name number\na         7\n");
  EXPECT_EQ(text_of(grid.lines(30)), "name gone number\na    b         7\n");
  EXPECT_EQ(text_of(grid.lines(3)), "\n") << "no room for anything";
}

TEST(TopGrid, CutsAndWrapsByCharacters) {
  EXPECT_EQ(cut(std::string("äöü"), 3), "äöü");
  EXPECT_EQ(cut(std::string("äöüß"), 3), "äö…");
  EXPECT_EQ(cut(std::string("日本語"), 5), "日本…");
  EXPECT_EQ(cut(std::string("日本語"), 4), "日…");
  EXPECT_EQ(cut(std::string("abc"), 0), "");
  EXPECT_THAT(wrapped("one two three four", 9, 2), ElementsAre("one two", "three fo…"));
  EXPECT_THAT(wrapped("", 9, 2), ElementsAre());
  EXPECT_THAT(wrapped("words", 9, 0), ElementsAre());
}

}  // namespace
}  // namespace gradring::tools::top
