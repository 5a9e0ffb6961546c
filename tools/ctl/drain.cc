// gradringctl drain: lets what runs on a node end, and the daemon with it.
#include "tools/ctl/drain.h"

#include <fmt/format.h>
#include <unistd.h>

#include <boost/program_options.hpp>
#include <chrono>
#include <thread>

#include "tools/common/option_error.h"
#include "tools/common/output.h"
#include "tools/common/text.h"
#include "tools/ctl/ask.h"

namespace gradring::tools {
namespace {

namespace po = boost::program_options;
using Clock = std::chrono::steady_clock;

constexpr double kTimeoutMost = 7 * 24 * 3600;

// After the last word of a daemon its sockets go; it takes a second for what trainers still hold.
constexpr std::chrono::seconds kGoing{5};
// After the time of a drain: a daemon may be late with its last word.
constexpr std::chrono::seconds kLate{10};
constexpr std::chrono::milliseconds kLooksEvery{100};

constexpr size_t kJobsShown = 5;

std::string listed(const std::vector<std::string>& jobs) {
  std::string text;
  size_t shown = 0;
  for (const std::string& job : jobs) {
    if (shown == kJobsShown) return text + fmt::format(", and {} more", jobs.size() - shown);
    text += (shown++ == 0 ? "" : ", ") + printable(job);
  }
  return text;
}

// One line that changes in place on a terminal; elsewhere a line for each change of the jobs.
class DrainProgress {
 public:
  ~DrainProgress() {
    if (terminal_ && shown_) put_err("\r\x1b[K");
  }
  void show(const wire::DrainReport& report) {
    const std::string line = describe(report);
    std::vector<std::string> jobs(report.jobs().begin(), report.jobs().end());
    if (terminal_) {
      put_err(fmt::format("\r\x1b[K{}", line));
    } else if (!shown_ || jobs != jobs_) {
      put_err(fmt::format("{}\n", line));
    }
    std::fflush(stderr);
    jobs_ = std::move(jobs);
    shown_ = true;
  }

 private:
  const bool terminal_ = isatty(STDERR_FILENO) == 1;
  bool shown_ = false;
  std::vector<std::string> jobs_;
};

wire::Query query_of(wire::DrainOrder::Action action) {
  wire::Query query;
  query.set_what(wire::Query::DRAIN);
  query.mutable_drain()->set_action(action);
  return query;
}

bool is(const wire::DrainReport& report, std::string_view state) { return report.state() == state; }

// A daemon that says nothing for a while is not gone: it is stopped, or busy.
Reply look(const Context& context, Clock::time_point until) {
  while (true) {
    Reply reply = ask(context, query_of(wire::DrainOrder::LOOK));
    const bool silent = !reply && (reply.error().code() == Code::kDeadlineExceeded ||
                                   reply.error().code() == Code::kResourceExhausted);
    if (!silent || Clock::now() >= until) return reply;
    std::this_thread::sleep_for(kLooksEvery);
  }
}

// Until nobody answers any more, or somebody else does.
void wait_until_gone(const Context& context) {
  const auto deadline = Clock::now() + kGoing;
  while (Clock::now() < deadline) {
    const Reply reply = look(context, deadline);
    if (!reply || !is(reply->drain(), "stopping")) return;
    std::this_thread::sleep_for(kLooksEvery);
  }
}

// Nobody switches a node off because of a daemon that could not be asked: of another node its peer
// here has to say so, and to be there itself.
bool says_it_is_gone(const Context& context, bool here, const Status& fault) {
  if (here) return fault.code() == Code::kUnavailable;
  return fault.code() == Code::kNotFound ||
         (fault.code() == Code::kUnavailable && Questions::open(context.runtime_dir));
}

// Whether the daemon that answers now is not the one that was told to drain.
bool is_another_life(const Context& context, std::chrono::milliseconds since) {
  wire::Query query;
  query.set_what(wire::Query::STATUS);
  const Reply reply = ask(context, query);
  return reply && reply->status().uptime_ms() < static_cast<uint64_t>(since.count());
}

// From the first reply to the end.
DrainEnd follow(const Context& context, const wire::QueryReply& first) {
  using How = DrainEnd::How;
  using Milliseconds = std::chrono::milliseconds;
  const auto began = Clock::now();
  const bool here = first.forwarded_at() == 0;
  wire::DrainReport report = first.drain();
  DrainEnd end{.node = report.node(), .cut_off = {}, .why = {}};
  {
    DrainProgress progress;
    while (is(report, "draining")) {
      progress.show(report);
      const Reply reply = look(context, Clock::now() + Milliseconds(report.left_ms()) + kLate);
      if (!reply) {
        end.how = says_it_is_gone(context, here, reply.error()) ? How::kGone : How::kUnasked;
        end.why = reply.error().message();
        break;
      }
      report = reply->drain();
    }
  }
  if (is(report, "stopping")) {
    end.cut_off.assign(report.jobs().begin(), report.jobs().end());
    wait_until_gone(context);
  } else if (end.how == How::kDrained) {
    const auto since = std::chrono::duration_cast<Milliseconds>(Clock::now() - began);
    end.how = is_another_life(context, since) ? How::kForgotten : How::kCancelled;
  }
  const auto took = std::chrono::duration_cast<Milliseconds>(Clock::now() - began);
  end.took_ms = static_cast<uint64_t>(took.count());
  return end;
}

// The order may be under way still: a daemon that stood still reads it when it goes on.
Status with_what_may_follow(const Status& fault, bool cancel) {
  if (fault.code() != Code::kDeadlineExceeded) return fault;
  return {fault.code(), fault.message() + (cancel ? "; it may still take jobs again when it goes on"
                                                  : "; it may still drain when it goes on, unless "
                                                    "\"gradringctl drain --cancel\" follows then")};
}

}  // namespace

tl::expected<DrainWanted, Status> parse_drain(const Arguments& arguments) {
  const auto refuse = [](std::string why) {
    return tl::unexpected(Status(Code::kInvalidArgument, std::move(why)));
  };
  DrainWanted wanted;
  double seconds = 0;
  po::options_description known;
  known.add_options()("timeout", po::value(&seconds))("cancel", po::bool_switch(&wanted.cancel));
  po::variables_map values;
  try {
    po::store(po::command_line_parser(arguments).options(known).positional({}).run(), values);
    po::notify(values);
  } catch (const po::error& error) {
    return refuse(printable(words_of(error)));
  }
  if (values.count("timeout") == 0) return wanted;
  if (wanted.cancel) return refuse("--cancel takes no --timeout");
  if (!(seconds >= 0 && seconds <= kTimeoutMost)) {
    return refuse(fmt::format("--timeout takes 0 to {} seconds, a week", kTimeoutMost));
  }
  wanted.timeout_ms = static_cast<uint64_t>(seconds * 1000);
  return wanted;
}

std::string describe(const wire::DrainReport& report) {
  const std::vector<std::string> jobs(report.jobs().begin(), report.jobs().end());
  return fmt::format("node {} drains: {} left ({}), {} at most", printable(report.node()),
                     counted(jobs.size(), "job"), listed(jobs), format_duration(report.left_ms()));
}

Answer show(const DrainEnd& end, const Style& style) {
  using How = DrainEnd::How;
  Answer answer;
  const std::string node = printable(end.node), took = format_duration(end.took_ms);
  const char* result = "unknown";
  if (end.how == How::kDrained) {
    result = end.cut_off.empty() ? "drained" : "stopped";
    answer.text =
        fmt::format("node {} has {} after {}\n", node,
                    end.cut_off.empty() ? style.good("drained and stopped") : "stopped", took);
    if (!end.cut_off.empty()) {
      answer.problems.push_back(
          fmt::format("{} had not ended and {} cut off: {}", counted(end.cut_off.size(), "job"),
                      end.cut_off.size() == 1 ? "was" : "were", listed(end.cut_off)));
    }
  } else if (end.how == How::kCancelled) {
    result = "cancelled";
    answer.text = fmt::format("node {} takes jobs again\n", node);
    answer.problems.emplace_back("somebody cancelled the drain");
  } else if (end.how == How::kForgotten) {
    result = "forgotten";
    answer.text = fmt::format("node {} takes jobs again\n", node);
    answer.problems.emplace_back(
        "its gradringd was started anew, and knows nothing of the drain; ask for it again");
  } else if (end.how == How::kGone) {
    answer.text = fmt::format("node {} is gone after {}\n", node, took);
    answer.problems.push_back(
        fmt::format("it was gone before it said how its drain ended ({}): its log, or gradringctl "
                    "flight-recorder there, may know",
                    printable(end.why)));
  } else {
    result = "unanswered";
    answer.text = fmt::format("node {} cannot be asked any more after {}\n", node, took);
    answer.problems.push_back(
        fmt::format("its drain goes on, but how it ends was not seen: {}", printable(end.why)));
  }
  answer.json = {{"node", end.node},
                 {"result", result},
                 {"jobs_cut_off", end.cut_off},
                 {"seconds", seconds(end.took_ms)}};
  return answer;
}

Result run_drain(const Context& context, const Arguments& arguments) {
  const auto wanted = parse_drain(arguments);
  if (!wanted) return tl::unexpected(wanted.error());
  wire::Query query = query_of(wanted->cancel ? wire::DrainOrder::CANCEL : wire::DrainOrder::START);
  query.mutable_drain()->set_timed(wanted->timeout_ms.has_value());
  query.mutable_drain()->set_timeout_ms(wanted->timeout_ms.value_or(0));
  const Reply reply = ask(context, query);
  if (!reply) return tl::unexpected(with_what_may_follow(reply.error(), wanted->cancel));
  if (!wanted->cancel) {
    return show(follow(context, *reply), context.style);
  }
  const std::string node = reply->drain().node();
  Answer answer;
  answer.text = fmt::format("node {} takes jobs again\n", printable(node));
  answer.json = {{"node", node},
                 {"result", "serving"},
                 {"jobs_cut_off", nlohmann::ordered_json::array()},
                 {"seconds", 0.0}};
  return answer;
}

}  // namespace gradring::tools
