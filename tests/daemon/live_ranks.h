#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <gradring/gradring.hpp>
#include <string>
#include <thread>
#include <vector>

#include "tests/daemon/live_daemon.h"

namespace gradring::daemon {

// A job of four ranks on one real daemon, if the test has no more, each a thread of the test.
class LiveRanks : public testing::Test {
 protected:
  explicit LiveRanks(const std::vector<std::string>& flags = {}, const std::string& node = "live",
                     int port = 0)
      : daemon_(flags, node, port) {}
  // Whose trainer this rank is.
  virtual const LiveDaemon& daemon_of(int /*rank*/) const { return daemon_; }
  static constexpr int kRanks = 4;

  // Runs the ranks of a job to their ends.
  void run(const std::string& name, const std::function<void(Communicator&)>& body) {
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < kRanks; ++rank) {
      ranks.emplace_back([&, rank] {
        gradring_options options{};
        options.struct_size = sizeof(options);
        options.runtime_dir = daemon_of(rank).runtime_dir().c_str();
        options.job = name.c_str();
        options.rank = rank;
        options.size = kRanks;
        options.local_rank = options.local_size = -1;
        options.priorities = priorities_;
        options.policy = policy_;
        try {
          Communicator job(options);
          body(job);
          if (policy_ == nullptr) job.barrier();  // nobody leaves while another is at work
        } catch (const std::exception& error) {
          ADD_FAILURE() << "rank " << rank << ": " << error.what();
        }
      });
    }
    for (std::thread& rank : ranks) rank.join();
  }

  const char* priorities_ = nullptr;
  const char* policy_ = nullptr;
  LiveDaemon daemon_;
};

}  // namespace gradring::daemon
