// What the last life of a daemon wrote down, as a damaged or a foreign one might have.
#include <google/protobuf/stubs/logging.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <optional>
#include <span>

#include "daemon/core/plan.h"
#include "daemon/records/engine_log.h"
#include "daemon/records/node_log.h"
#include "tests/daemon/wire_samples.h"
#include "tests/fuzz/fuzz.h"

namespace {

using namespace gradring;
using fuzz::require;

// An input is the memory of a list, as RecordLog lays it out, without its first page: how many
// bytes are used, and the entries, each behind its length.
constexpr size_t kPage = 4096;
constexpr size_t kHalf = 2 * kPage;
constexpr const char* kNode = "b";

daemon::RecordLog make_log() { return daemon::RecordLog::create(kHalf).value(); }

std::byte* memory_of(const daemon::RecordLog& log) {
  void* const at = mmap(nullptr, kPage + kHalf, PROT_READ | PROT_WRITE, MAP_SHARED, log.fd(), 0);
  require(at != MAP_FAILED, "memory can be mapped");
  return static_cast<std::byte*>(at) + kPage;
}

// As the one half that counts has it.
std::string image_of(const daemon::RecordLog& log) {
  std::string image(sizeof(uint64_t), '\0');
  log.for_each([&image](std::span<const std::byte> entry) {
    const auto length = static_cast<uint32_t>(entry.size());
    image.append(reinterpret_cast<const char*>(&length), sizeof length);
    image.append(reinterpret_cast<const char*>(entry.data()), entry.size());
    return true;
  });
  const uint64_t used = image.size() - sizeof used;
  image.replace(0, sizeof used, reinterpret_cast<const char*>(&used), sizeof used);
  return image;
}

core::OpRecord some_op(const OpKey& key, core::OpState state) {
  const Signature kSum{Collective::kAllreduce, Dtype::kFloat32, ReduceOp::kSum, 0, 1024};
  core::OpRecord op;
  op.key = key;
  op.name = "layer1.weight";
  op.state = state;
  op.since = 12345;
  op.expected = 3;
  op.add({1, 40, key, "layer1.weight", kSum, {5, 64}, {6, 128}});
  op.add({6, 41, key, "layer1.weight", kSum, {7, 0}, {7, 4096}});
  if (state == core::OpState::kCompleted) op.signature = kSum;
  op.slice_bytes = 1024;
  op.slices = {{core::SliceState::kUntouched, {}, std::nullopt},
               {core::SliceState::kHeld, {7, 3}, std::nullopt},
               {core::SliceState::kDropped, {6, 4}, std::nullopt},
               {core::SliceState::kUntouched, {}, std::nullopt}};
  return op;
}

core::EngineRecord some_engine() {
  core::EngineRecord record;
  record.view = daemon::sample_view();
  record.view.closed.reset();
  record.locals = {{1, std::nullopt, 12, 2}, {6, daemon::sample_failure(6), 3, 2}};
  record.ended_keys = daemon::sample_report().ended;
  record.failed = {{{0, 5}, daemon::sample_failure(3)}};
  const core::Proposal begun = daemon::sample_proposal();
  for (const core::OpFate& fate : begun.ops.all()) record.carried[fate.key] = fate;
  for (const auto& [key, state] : {std::pair{OpKey{0, 20}, core::OpState::kGathering},
                                   std::pair{OpKey{0, 21}, core::OpState::kCompleted}}) {
    record.ops[key] = some_op(key, state);
  }
  return record;
}

// All kinds of entries of an engine.
std::string engine_sample() {
  daemon::RecordLog log = make_log();
  daemon::KeptSlices kept(1 << 16);
  daemon::ToldOutcomes told;
  told[1001][39].verdict = Verdict::kOkShrunk;
  daemon::EngineLog written(&log, &kept, &told);
  written.begin(some_engine());
  core::Op op;
  op.key = {0, 22};
  op.plan = core::make_plan({Collective::kAllreduce, Dtype::kFloat32, ReduceOp::kSum, 0, 1024}, 2,
                            0, {}, {4096, 1024});
  op.slices.resize(op.plan.slices);
  const core::Submission submission = some_op(op.key, core::OpState::kGathering).locals.front();
  written.submitted(op, submission, {1, std::nullopt, 13, 2});
  written.held(op, 0, {7, 3}, {core::Staging::Kind::kStart, 2});
  op.slices[0].kept = kept.keep(std::vector<std::byte>(1024)).value();
  written.kept(op, 0);
  written.held(op, 1, {7, 3}, {core::Staging::Kind::kSlot, 1});
  written.landed();
  written.dropped(op, 1);
  written.local({1, std::nullopt, 14, 2});
  op.state = core::OpState::kCompleted;
  op.signature = submission.signature;
  written.ended(op);
  written.forgotten({0, 21});
  return image_of(log);
}

std::string node_sample() {
  daemon::RecordLog log = make_log();
  log.begin_anew();
  wire::NodeEntry entry;
  entry.mutable_head()->set_format(1);
  entry.mutable_head()->set_node(kNode);
  entry.mutable_head()->set_life(77);
  log.append(entry);
  wire::SessionRecord& session = *entry.mutable_session();
  session.set_session(1001);
  session.set_secret("secret");
  session.set_part(2);
  log.append(entry);
  core::JobRecord job;
  job.view = daemon::sample_view();
  job.local = {{1001, 1, 0, 4711, 11, true}};
  job.lost = {{2, daemon::sample_failure(2)}};
  job.done = {"a"};
  job.acceptor.epoch = 7;
  job.acceptor.promised = {9, "a"};
  job.acceptor.report = daemon::sample_report();
  job.acceptor.last_commit =
      core::change::Commit{job.view.incarnation, 7, {9, "a"}, daemon::sample_proposal()};
  daemon::to_wire(job, entry.mutable_job());
  log.append(entry);
  entry.set_session_over(1001);
  log.append(entry);
  entry.set_restoring(false);
  log.append(entry);
  log.publish();
  return image_of(log);
}

void check_engine(const daemon::EngineMemory& memory) {
  require(core::fault_of(memory.record.view).empty(), "the view is one that can be");
  for (const auto& [key, op] : memory.record.ops) {
    require(op.key == key, "an op is found under its key");
    for (const core::SliceRecord& slice : op.slices) {
      require(!slice.kept || memory.places.count(*slice.kept) > 0, "every copy is somewhere");
    }
  }
  wire::EngineHead head;
  daemon::to_wire(memory.record, &head);
  core::EngineRecord again;
  require(daemon::from_wire(head, &again) && again.view == memory.record.view &&
              again.ended_keys == memory.record.ended_keys,
          "what is believed survives the trip");
}

void check_node(const daemon::NodeMemory& memory) {
  for (const auto& [id, job] : memory.jobs) {
    require(core::fault_of(job.view).empty() && job.view.incarnation == id, "a job has its view");
    wire::JobRecord record;
    daemon::to_wire(job, &record);
    core::JobRecord again;
    require(daemon::from_wire(record, &again) && again.view == job.view &&

                again.local.size() == job.local.size(),
            "a job survives the trip");
  }
}

// The memory of a list that the reader looks at.
std::optional<daemon::RecordLog> log_of(const uint8_t* data, size_t size) {
  static const daemon::RecordLog kMade = make_log();
  static std::byte* const kMemory = memory_of(kMade);
  std::memset(kMemory, 0, kHalf);
  std::memcpy(kMemory, data, size);
  auto log = daemon::RecordLog::adopt(dup(kMade.fd()));
  if (log) return std::move(*log);
  require(!log.error().message().empty(), "a refusal says why");
  return std::nullopt;
}

std::optional<daemon::RecordLog> log_of(const std::string& image) {
  return log_of(reinterpret_cast<const uint8_t*>(image.data()), image.size());
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int* /*argc*/, char*** /*argv*/) {
  google::protobuf::SetLogHandler(nullptr);  // one line of log for every bad string otherwise
  const auto engine = daemon::read_engine_log(*log_of(engine_sample()));
  require(engine.has_value(), engine ? "" : engine.error().c_str());
  require(daemon::read_node_log(*log_of(node_sample()), kNode).has_value(),
          "the sample is understood");
  return 0;
}

// Bends one entry and makes its length, and that of the list, fit again: else nearly all of what
// comes out would be refused for those.
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t size_max,
                                          unsigned seed) {
  static const std::vector<std::string> kSamples = {engine_sample(), node_sample()};
  if (seed % 8 == 0) return fuzz::mutate(kSamples, data, size, size_max, seed / 8);
  std::string image(reinterpret_cast<const char*>(data), size);
  if (seed % 64 == 1) image = kSamples[seed / 64 % kSamples.size()];
  std::vector<std::string> entries;
  for (size_t at = sizeof(uint64_t); at + sizeof(uint32_t) <= image.size();) {
    uint32_t length = 0;
    std::memcpy(&length, image.data() + at, sizeof length);
    at += sizeof length;
    entries.push_back(image.substr(at, length));
    at += length;
  }
  if (entries.empty()) return LLVMFuzzerMutate(data, size, size_max);
  std::string& chosen = entries[seed / 8 % entries.size()];
  if (seed % 8 == 1) {
    entries.push_back(chosen);
  } else if (seed % 8 == 2) {
    entries.erase(entries.begin() + (&chosen - entries.data()));
  } else {
    std::vector<uint8_t> bent(chosen.begin(), chosen.end());
    bent.resize(chosen.size() + 64);
    bent.resize(LLVMFuzzerMutate(bent.data(), chosen.size(), bent.size()));
    chosen.assign(bent.begin(), bent.end());
  }
  image.assign(sizeof(uint64_t), '\0');
  for (const std::string& entry : entries) {
    const auto length = static_cast<uint32_t>(entry.size());
    image.append(reinterpret_cast<const char*>(&length), sizeof length).append(entry);
  }
  const uint64_t used = image.size() - sizeof used;
  image.replace(0, sizeof used, reinterpret_cast<const char*>(&used), sizeof used);
  if (image.size() > size_max) return LLVMFuzzerMutate(data, size, size_max);
  std::copy(image.begin(), image.end(), data);
  return image.size();
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > kHalf) return 0;
  const auto log = log_of(data, size);
  if (!log) return 0;
  const auto engine = daemon::read_engine_log(*log);
  if (engine) {
    check_engine(*engine);
  } else {
    require(!engine.error().empty(), "a refusal says why");
  }
  if (const auto node = daemon::read_node_log(*log, kNode)) check_node(*node);
  return 0;
}
