// gradringctl top: a live screen of jobs and links.
#include <fmt/format.h>

#include <boost/program_options.hpp>
#include <charconv>
#include <chrono>
#include <optional>
#include <thread>

#include "tools/common/option_error.h"
#include "tools/common/text.h"
#include "tools/ctl/command.h"
#include "tools/ctl/top/frame.h"
#include "tools/ctl/top/json.h"
#include "tools/ctl/top/screen.h"
#include "tools/ctl/top/watcher.h"

namespace gradring::tools {
namespace {

namespace po = boost::program_options;

struct TopQuestion {
  bool once = false;
  bool all = false;
  top::Size size{120, 1000};  // of one look: as much as there is to show
};

// "80x24"
std::optional<top::Size> parse_size(const std::string& text) {
  constexpr size_t kMost = 10'000;
  top::Size size;
  const char* const end = text.data() + text.size();
  const auto width = std::from_chars(text.data(), end, size.width);
  if (width.ec != std::errc() || width.ptr == end || *width.ptr != 'x') return std::nullopt;
  const auto height = std::from_chars(width.ptr + 1, end, size.height);
  if (height.ec != std::errc() || height.ptr != end) return std::nullopt;
  if (size.width == 0 || size.height < 2) return std::nullopt;  // nothing would be in it
  if (size.width > kMost || size.height > kMost) return std::nullopt;
  return size;
}

tl::expected<TopQuestion, Status> parse_top(const Arguments& arguments) {
  TopQuestion question;
  std::string size;
  po::options_description known;
  known.add_options()("once", po::bool_switch(&question.once))(
      "all", po::bool_switch(&question.all))("size", po::value(&size));
  try {
    po::variables_map values;
    po::store(po::command_line_parser(arguments).options(known).positional({}).run(), values);
    po::notify(values);
  } catch (const po::error& error) {
    return tl::unexpected(Status(Code::kInvalidArgument, printable(words_of(error))));
  }
  if (!size.empty()) {
    const auto parsed = parse_size(size);
    if (!parsed || !question.once) {
      return tl::unexpected(
          Status(Code::kInvalidArgument, "--size is of --once, columns and lines, such as 80x24"));
    }
    question.size = *parsed;
  }
  return question;
}

tl::expected<top::Model, Status> look_once(const std::string& runtime_dir,
                                           const top::Choice& choice) {
  auto questions = Questions::open(runtime_dir);
  if (!questions) return tl::unexpected(questions.error());
  const auto before = take_sample(*questions, choice, {});
  if (!before) return tl::unexpected(before.error());
  std::this_thread::sleep_for(std::chrono::seconds(1));
  const auto after = take_sample(*questions, choice, *before);
  if (!after) return tl::unexpected(after.error());
  return model_of(*before, *after);
}

// What top --once has to say. That a job has failed or a peer is away is seen on it; it is
// unhealthy where a node that was asked did not answer.
Answer answer_of(const top::Model& model, const top::View& view, const top::Size& size) {
  Answer answer;
  auto frame = frame_of(model, view, size);
  if (!frame.empty()) frame.pop_back();  // the keys
  answer.text = text_of(frame);
  answer.json = json_of(model);
  answer.problems = model.problems;
  return answer;
}

void show(top::Screen& screen, top::Watcher& watcher, top::View view) {
  top::Model model;
  uint64_t looks = 0;
  bool dirty = true;
  while (!top::Screen::interrupted()) {
    if (!view.paused && (watcher.looks() != looks || model.silence)) {
      looks = watcher.looks();
      model = watcher.latest();
      dirty = true;
    }
    if (dirty) screen.paint(frame_of(model, view, screen.size()));
    const auto key = screen.wait(&dirty);
    if (!key) continue;
    const top::Choice before = view.choice;
    if (!press(*key, model, &view)) return;
    if (view.choice != before) watcher.choose(view.choice);
    dirty = true;
  }
}

}  // namespace

Result run_top(const Context& context, const Arguments& arguments) {
  const auto question = parse_top(arguments);
  if (!question) return tl::unexpected(question.error());
  if (question->all && !context.node.empty()) {
    return tl::unexpected(
        Status(Code::kInvalidArgument, "--all asks all nodes and --node one: choose"));
  }
  top::View view;
  view.choice = {question->all, context.node};
  if (question->once || context.json) {
    const auto model = look_once(context.runtime_dir, view.choice);
    if (!model) return tl::unexpected(model.error());
    return answer_of(*model, view, question->size);
  }
  // Who is not there at all is told so in words; on the screen it may come and go.
  if (auto questions = Questions::open(context.runtime_dir); !questions) {
    return tl::unexpected(questions.error());
  }
  auto screen = top::Screen::open(context.style.colour);
  if (!screen) return tl::unexpected(screen.error());
  top::Watcher watcher(context.runtime_dir, view.choice);
  show(**screen, watcher, view);
  screen->reset();  // before the watcher, whose end may have to wait for an answer
  return Answer();
}

}  // namespace gradring::tools
