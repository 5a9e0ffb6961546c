#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>

#include <functional>
#include <optional>
#include <vector>

#include "proto/ring.h"
#include "tests/daemon/raw_trainer.h"

namespace gradring::daemon {

inline std::optional<wire::AttachReply> ask_for_rings(RawTrainer& trainer, std::vector<Fd>* fds) {
  wire::AttachRequest request;
  request.mutable_rings()->set_request(trainer.next_request());
  EXPECT_TRUE(trainer.attach().send(request));
  return trainer.attach().receive(fds);
}

// A trainer's end of its rings.
class RawRings {
 public:
  explicit RawRings(RawTrainer& trainer) : attach_(&trainer.attach()) {
    const auto reply = ask_for_rings(trainer, &fds_);
    EXPECT_TRUE(reply && reply->has_rings() && fds_.size() == 3);
    if (fds_.size() != 3) return;
    void* memory =
        mmap(nullptr, reply->rings().bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, fds_[0].get(), 0);
    EXPECT_NE(memory, MAP_FAILED);
    pair_ = static_cast<RingPair*>(memory);
    submissions_.emplace(&pair_->submissions);
    ends_.emplace(&pair_->ends);
  }
  ~RawRings() { munmap(pair_, sizeof(RingPair)); }

  void put(const RingSubmission& entry) {
    ASSERT_TRUE(submissions_->put(entry));
    wake();
  }
  // So many, as there is room. False: the daemon has closed the trainer's attach socket before.
  bool put_all(uint64_t many, const std::function<RingSubmission(uint64_t)>& entry) {
    for (uint64_t i = 0; i < many; wake()) {
      if (submissions_->put(entry(i))) {
        ++i;
      } else if (attach_->closed_by_daemon(1)) {
        return false;
      }
    }
    return true;
  }
  void wake() {
    if (submissions_->must_wake()) eventfd_write(fds_[1].get(), 1);
  }
  RingEnd take() { return ends_->take(); }
  // The next one; asleep until it comes.
  RingEnd end() {
    while (!ends_->any()) {
      if (!ends_->rest()) continue;
      pollfd bell{fds_[2].get(), POLLIN, 0};
      if (poll(&bell, 1, 10'000) != 1) {
        ADD_FAILURE() << "no end came";
        return {};
      }
      eventfd_t count = 0;
      eventfd_read(fds_[2].get(), &count);
      ends_->rise();
    }
    return ends_->take();
  }
  RingPair& pair() { return *pair_; }
  bool any() const { return ends_->any(); }
  int ended_bell() const { return fds_[2].get(); }

 private:
  RawAttach* const attach_;
  std::vector<Fd> fds_;
  RingPair* pair_ = nullptr;
  std::optional<RingWriter<RingSubmission>> submissions_;
  std::optional<RingReader<RingEnd>> ends_;
};

}  // namespace gradring::daemon
