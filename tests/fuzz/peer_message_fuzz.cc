// What another daemon, or whoever holds a key that is allowed here, may send on the control
// channel.
#include <google/protobuf/stubs/logging.h>

#include "daemon/wire/peer_wire.h"
#include "daemon/wire/report_wire.h"
#include "proto/wire.h"
#include "tests/daemon/wire_samples.h"
#include "tests/fuzz/convert.h"
#include "tests/fuzz/fuzz.h"

namespace {

using namespace gradring;
using fuzz::require;

std::vector<std::string> make_samples() {
  std::vector<std::string> samples;
  const auto add = [&samples](wire::PeerMessage& message) {
    message.set_protocol(1);
    samples.push_back(message.SerializeAsString());
    message.Clear();
  };
  const std::string incarnation(16, '\x5a');
  wire::PeerMessage message;

  message.mutable_hello()->set_node("a:7000");
  message.mutable_hello()->set_data_address("address");
  message.mutable_hello()->set_data_token(1);
  add(message);
  message.mutable_hello_reply()->set_reason("wrong version");
  add(message);
  message.mutable_heartbeat()->add_progress(1);
  add(message);
  message.mutable_job_query()->set_incarnation(incarnation);
  add(message);
  message.mutable_job_query_reply()->mutable_report()->add_ops()->mutable_key()->set_space(9);
  add(message);
  message.mutable_question()->mutable_query()->set_job("job");
  add(message);
  message.mutable_reply()->mutable_reply()->mutable_job()->add_ranks()->set_rank(1);
  add(message);
  for (const core::JobMessage& sample : daemon::sample_messages()) {
    message = daemon::to_wire(sample);
    add(message);
  }
  wire::Report report;
  daemon::to_wire(daemon::sample_report(), &report);
  samples.push_back(report.SerializeAsString());
  wire::Proposal proposal;
  daemon::to_wire(daemon::sample_proposal(), &proposal);
  samples.push_back(proposal.SerializeAsString());
  return samples;
}

// What the core indexes by, or counts through, without asking again.
void check_proposal(const core::Proposal& proposal) {
  require(core::fault_of(proposal.view).empty(), "the view is one that can be");
  for (const core::OpFate& fate : proposal.ops.all()) {
    uint64_t slices = 0;
    for (const core::SliceFate& run : fate.slices) {
      slices += run.count;
      require(run.count > 0 && run.holder < proposal.view.members.size(), "a holder is a member");
      require(run.route <= core::Route::kNone, "a route is one of three");
    }
    require(slices <= daemon::kSlicesMax, "the slices of an op are bounded");
    require((fate.kind == core::OpFate::Kind::kRecover) == (slices > 0),
            "what is recovered has slices");
  }
}

void check_report(const core::Report& report) {
  size_t intervals = 0;
  report.ended.for_each([&](uint64_t, uint64_t first, uint64_t last) {
    ++intervals;
    require(first <= last, "an interval has a beginning and an end");
  });
  require(intervals == report.ended.intervals(), "intervals are counted");
  for (const core::OpReport& op : report.ops) {
    uint64_t slices = 0;
    for (const core::SliceRun& run : op.slices) slices += run.count;
    require(slices <= daemon::kSlicesMax, "the slices of an op are bounded");
    require(slices == 0 || op.slice_bytes > 0, "slices have a length");
  }
}

void check_job_message(const wire::PeerMessage& message) {
  const auto read = daemon::job_message_of(message);
  if (!read) return;
  const auto again = daemon::job_message_of(daemon::to_wire(*read));
  require(again.has_value() && *again == *read, "what is believed survives the trip");
  if (const auto* promise = std::get_if<core::change::Promise>(&*read)) {
    check_report(promise->report);
    if (promise->accepted) check_proposal(promise->accepted->proposal);
  }
  if (const auto* accept = std::get_if<core::change::Accept>(&*read)) {
    check_proposal(accept->proposal);
  }
  if (const auto* commit = std::get_if<core::change::Commit>(&*read)) {
    check_proposal(commit->proposal);
  }
}

// A report or a proposal alone: in a message, every change of its length must agree with the
// lengths around it, which keeps the search from going far.
void read_parts(const uint8_t* data, size_t size) {
  wire::Report report;
  core::Report read_report;
  if (report.ParseFromArray(data, static_cast<int>(size)) &&
      daemon::from_wire(report, 7, &read_report)) {
    check_report(read_report);
  }
  wire::Proposal proposal;
  core::Proposal read_proposal;
  if (proposal.ParseFromArray(data, static_cast<int>(size)) &&
      daemon::from_wire(proposal, daemon::sample_job(), 6, &read_proposal)) {
    check_proposal(read_proposal);
  }
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int* /*argc*/, char*** /*argv*/) {
  google::protobuf::SetLogHandler(nullptr);  // one line of log for every bad string otherwise
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t size_max,
                                          unsigned seed) {
  static const auto kSamples = make_samples();
  return fuzz::mutate(kSamples, data, size, size_max, seed);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  read_parts(data, size);
  wire::PeerMessage message;
  if (!message.ParseFromArray(data, static_cast<int>(size))) return 0;
  fuzz::check_reparses(message);
  check_job_message(message);
  fuzz::check_view(message.propose().view());
  fuzz::check_failure(message.job_failed().failure());
  for (const std::string& incarnation :
       {message.accept().incarnation(), message.reject().incarnation(),
        message.commit().incarnation(), message.job_failed().incarnation(),
        message.job_done().incarnation(), message.job_query().incarnation()}) {
    fuzz::check_job_id(incarnation);
  }
  for (const wire::OpReport& op : message.job_query_reply().report().ops()) {
    fuzz::check_key(op.key());
  }
  return 0;
}
