#pragma once

// A data thread between its two mailboxes, for tests that are the control thread.

#include <gtest/gtest.h>
#include <poll.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "daemon/data/data_thread.h"
#include "transport/loopback/fabric.h"

namespace gradring::daemon {

using namespace std::chrono_literals;

inline constexpr uint32_t kSliceBytes = 4096;
inline constexpr uint64_t kPlacesPerUser = 4096;
// Far longer than a test lets them wait by intention, but for the one that is about that.
inline constexpr core::Time kGpusRestWithin = 500 * core::kMillisecond;

inline core::View view_of(const std::vector<std::pair<std::string, uint32_t>>& nodes, uint8_t id) {
  core::View view;
  view.job = "job";
  view.incarnation[0] = id;
  view.epoch = 1;
  view.policy = "fail";
  for (const auto& [name, ranks] : nodes) {
    core::Member member{name, {}};
    for (uint32_t i = 0; i < ranks; ++i) member.ranks.push_back({view.size++, i, 100, view.size});
    view.members.push_back(member);
  }
  return view;
}

struct NodeGpus {
  std::shared_ptr<transport::Gpus> gpus = {};
  uint32_t slice_bytes = kSliceBytes;
  bool direct = false;    // slices go from them
  uint32_t tree_max = 0;  // bytes of ops that go along a tree, if not 0
  core::Time memory_within = 10 * core::kSecond;
  uint32_t slice_bytes_alone = 0;  // of a job that no other node is in, if not 0
};

// A node: a data thread that runs, and the control thread's end of its mailboxes.
class DataNode {
 public:
  DataNode(transport::Fabric& fabric, const std::string& name)
      : DataNode(name, fabric.join(name)) {}
  DataNode(transport::Fabric& fabric, const std::string& name, const NodeGpus& on_gpus)
      : DataNode(name, only(fabric.join(name)), false, 4 << 20, false, 0, on_gpus) {}
  DataNode(const std::string& name, std::unique_ptr<transport::Transport> transport,
           bool checksum = false, uint64_t staging_limit = 1 << 20, bool verify = false,
           uint32_t direct_members_max = 0)
      : DataNode(name, only(std::move(transport)), checksum, staging_limit, verify,
                 direct_members_max) {}
  // With several lanes.
  DataNode(const std::string& name, Lanes lanes, bool checksum = false,
           uint64_t staging_limit = 1 << 20, bool verify = false, uint32_t direct_members_max = 0,
           const NodeGpus& on_gpus = {}, core::Time pulse = 10 * core::kMillisecond)
      : name_(name), commands_(4096), events_(65536) {
    for (const auto& lane : lanes) addresses_.push_back(lane->address());
    DataThread::Options options;
    options.engine.plan.slice_bytes_max = on_gpus.slice_bytes;
    options.engine.plan.slice_bytes_alone = on_gpus.slice_bytes_alone;
    options.engine.plan.direct_members_max = direct_members_max;
    options.engine.plan.tree_max = on_gpus.tree_max;
    if (on_gpus.tree_max > 0) options.engine.ready_tree_above = 1;
    options.engine.slots = 4;
    options.engine.checksum = checksum;
    options.engine.verify = verify;
    options.staging_limit = staging_limit;
    options.feedback_limit = 1 << 20;
    options.pulse = pulse;
    options.places_per_user = kPlacesPerUser;
    options.bundle_bytes = kBundleBytesMax;  // to peers that take them
    options.gpus = on_gpus.gpus;
    options.gpu_direct = on_gpus.direct;
    options.gpus_rest_within = kGpusRestWithin;
    options.gpu_memory_within = on_gpus.memory_within;
    data_ = std::make_unique<DataThread>(std::move(lanes), options, &commands_, &events_);
    thread_ = std::thread([this] { data_->run(); });
  }
  ~DataNode() {
    commands_.post(StopData{});
    thread_.join();
  }

  void post(Command command) { commands_.post(std::move(command)); }
  void install(const core::View& view) { post(InstallJob{view, *view.index_of(name_)}); }
  void submit(const core::View& view, uint32_t rank, std::vector<float>& data,
              uint64_t sequence = 0) {
    core::Submission submission;
    submission.rank = rank;
    submission.ticket = sequence + 1;
    submission.key = {0, sequence};
    submission.signature = {Collective::kAllreduce, Dtype::kFloat32, ReduceOp::kSum, 0,
                            data.size()};
    auto* bytes = reinterpret_cast<std::byte*>(data.data());
    post(Submit{rank + 1000, view.incarnation, submission, bytes, bytes});
  }

  // The next event of this kind that satisfies; others are dropped, but for ends of ops, which may
  // come sooner than whoever asks for something else thinks. Fails after 10 s.
  template <typename E>
  E next(const std::function<bool(const E&)>& wanted = [](const E&) { return true; }) {
    const auto until = std::chrono::steady_clock::now() + 10s;
    if (std::is_same_v<E, Completed>) {
      taken_.insert(taken_.begin(), ends_.begin(), ends_.end());
      ends_.clear();
    }
    while (std::chrono::steady_clock::now() < until) {
      while (!taken_.empty()) {
        const Event event = std::move(taken_.front());
        taken_.erase(taken_.begin());
        if (const E* e = std::get_if<E>(&event); e != nullptr && wanted(*e)) return *e;
        const bool end = std::holds_alternative<Completed>(event);
        if (end && !std::is_same_v<E, Completed>) ends_.push_back(event);
      }
      pollfd p{events_.event_fd(), POLLIN, 0};
      poll(&p, 1, 100);
      events_.take(&taken_);
    }
    ADD_FAILURE() << "no such event on node " << name_;
    return {};
  }
  const std::vector<std::string>& addresses() const { return addresses_; }
  const std::string& name() const { return name_; }

 private:
  static Lanes only(std::unique_ptr<transport::Transport> transport) {
    Lanes lanes;
    lanes.push_back(std::move(transport));
    return lanes;
  }

  const std::string name_;
  std::vector<std::string> addresses_;
  CommandBox commands_;
  EventBox events_;
  std::unique_ptr<DataThread> data_;
  std::thread thread_;
  std::vector<Event> taken_;
  std::vector<Event> ends_;  // older than those
};

inline std::vector<float> numbers(size_t count, float factor) {
  std::vector<float> data(count);
  for (size_t i = 0; i < count; ++i) data[i] = factor * static_cast<float>(i % 1000);
  return data;
}

class DataThreadTest : public testing::Test {
 protected:
  static constexpr uint64_t kTokenOfA = 0xa11ce,
                            kTokenOfB = 0xb0b;  // expected in frames to that node

  // `bundle_bytes`: of the bundles that both take.
  void connect(DataNode& a, DataNode& b, uint64_t bundle_bytes = 0, bool probes = true) {
    a.post(ExpectPeer{0, kTokenOfA});
    b.post(ExpectPeer{0, kTokenOfB});
    a.post(ConnectPeer{0, 7, b.name(), b.addresses(), kTokenOfB, bundle_bytes, probes});
    b.post(ConnectPeer{0, 8, a.name(), a.addresses(), kTokenOfA, bundle_bytes, probes});
  }

  transport::Fabric fabric_;
};

}  // namespace gradring::daemon
