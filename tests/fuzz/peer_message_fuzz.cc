// What another daemon, or whoever holds a key that is allowed here, may send on the control
// channel.
#include <google/protobuf/stubs/logging.h>

#include "proto/wire.h"
#include "tests/fuzz/convert.h"
#include "tests/fuzz/fuzz.h"

namespace {

using namespace gradring;

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
  message.mutable_claims()->set_job("job");
  message.mutable_claims()->add_ranks()->set_rank(1);
  add(message);
  wire::View* view = message.mutable_propose()->mutable_view();
  view->set_incarnation(incarnation);
  view->add_members()->add_ranks()->set_pid(4711);
  add(message);
  message.mutable_accept()->set_incarnation(incarnation);
  add(message);
  message.mutable_commit()->set_incarnation(incarnation);
  add(message);
  message.mutable_job_failed()->set_incarnation(incarnation);
  to_wire(Failure{Cause::kPeerLost, {kNoRank, "c", 0, "eth0", "reset"}},
          message.mutable_job_failed()->mutable_failure());
  add(message);
  message.mutable_job_query_reply()->mutable_report()->add_ops()->mutable_key()->set_space(9);
  add(message);
  return samples;
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
  wire::PeerMessage message;
  if (!message.ParseFromArray(data, static_cast<int>(size))) return 0;
  fuzz::check_reparses(message);
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
