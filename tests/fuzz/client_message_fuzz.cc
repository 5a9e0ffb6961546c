// What a process that reaches the daemon's runtime directory may send, on both channels; and what a
// daemon answers, since the client library reads that with the same code.
#include <google/protobuf/stubs/logging.h>

#include "proto/wire.h"
#include "tests/fuzz/convert.h"
#include "tests/fuzz/fuzz.h"

namespace {

using namespace gradring;

std::vector<std::string> make_samples() {
  std::vector<std::string> samples;

  wire::ClientMessage submit;
  submit.set_protocol(1);
  submit.set_request(7);
  wire::Operation* operation = submit.mutable_submit()->add_operations();
  operation->set_ticket(1);
  to_wire(OpKey{0, 5}, operation->mutable_key());
  to_wire({Collective::kAllreduce, Dtype::kFloat32, ReduceOp::kSum, 0, 1024},
          operation->mutable_signature());
  operation->mutable_input()->set_segment(3);
  operation->mutable_output()->set_offset(4096);
  samples.push_back(submit.SerializeAsString());
  samples.push_back(operation->signature().SerializeAsString());

  wire::ClientMessage join;
  join.set_protocol(1);
  join.mutable_join()->set_job("job");
  join.mutable_join()->set_size(4);
  join.mutable_join()->mutable_within()->set_incarnation(std::string(16, 'i'));
  join.mutable_join()->mutable_within()->add_ranks(2);
  samples.push_back(join.SerializeAsString());

  wire::ClientMessage query;
  query.mutable_query()->set_what(wire::Query::JOB);
  samples.push_back(query.SerializeAsString());

  wire::AttachRequest hello;
  hello.mutable_hello()->set_protocol(1);
  samples.push_back(hello.SerializeAsString());
  wire::AttachRequest allocate;
  allocate.mutable_allocate()->set_bytes(1 << 20);
  samples.push_back(allocate.SerializeAsString());

  wire::DaemonMessage completed;
  wire::Completion* completion = completed.mutable_completed()->add_completions();
  completion->set_ticket(1);
  to_wire(Failure{Cause::kTrainerDied, {3, "b", 4711, "", "killed"}},
          completion->mutable_failure());
  samples.push_back(completed.SerializeAsString());
  return samples;
}

void read_as_daemon(const std::string& bytes) {
  wire::AttachRequest attach;
  if (attach.ParseFromString(bytes)) fuzz::check_reparses(attach);
  wire::ClientMessage message;
  if (!message.ParseFromString(bytes)) return;
  fuzz::check_reparses(message);
  for (const wire::Operation& operation : message.submit().operations()) {
    fuzz::check_signature(operation.signature());
    fuzz::check_key(operation.key());
  }
}

void read_as_client(const std::string& bytes) {
  wire::AttachReply attach;
  if (attach.ParseFromString(bytes)) fuzz::check_reparses(attach);
  wire::DaemonMessage message;
  if (!message.ParseFromString(bytes)) return;
  fuzz::check_reparses(message);
  for (const wire::Completion& completion : message.completed().completions()) {
    fuzz::check_failure(completion.failure());
  }
  fuzz::check_failure(message.closed().failure());
  fuzz::check_view(message.joined().view());
  for (const wire::OpReport& op : message.reply().job().ops()) fuzz::check_key(op.key());
}

// The same parts alone: in a message, every change of their length must agree with the lengths
// around them, which keeps the search from going far.
void read_parts(const std::string& bytes) {
  wire::Signature signature;
  if (signature.ParseFromString(bytes)) fuzz::check_signature(signature);
  wire::Failure failure;
  if (failure.ParseFromString(bytes)) fuzz::check_failure(failure);
  fuzz::check_job_id(bytes);
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
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  read_as_daemon(bytes);
  read_as_client(bytes);
  read_parts(bytes);
  return 0;
}
