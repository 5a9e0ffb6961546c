#pragma once

#include <cstdint>
#include <vector>

#include "daemon/core/job_engine.h"
#include "proto/check.h"
#include "transport/transport.h"

namespace gradring::daemon {

class JobExecutor;

// What is lent to the transport at this moment: a piece of a job's staging memory, either on its
// way out or being filled. The number under which it is lent is the transport's token or cookie.
struct Loan {
  JobExecutor* job = nullptr;
  core::Staging at;
  // Of what is on its way out, where that is measured; else `since` is 0.
  transport::PeerId to = 0;
  uint8_t lane = 0;
  core::Time since = 0;
};

class Ledger {
 public:
  // Never 0, which to the transport means "tell me nothing".
  uint64_t lend(Loan loan) {
    if (free_.empty()) {
      loans_.push_back(loan);
      return loans_.size();
    }
    const uint64_t number = free_.back();
    free_.pop_back();
    loans_[number - 1] = loan;
    return number;
  }
  Loan take_back(uint64_t number) {
    GRADRING_CHECK(number >= 1 && number <= loans_.size() && loans_[number - 1].job != nullptr,
                   "the transport gave back what it was not lent");
    const Loan loan = loans_[number - 1];
    loans_[number - 1].job = nullptr;
    free_.push_back(number);
    return loan;
  }
  const Loan& look_up(uint64_t number) const { return loans_[number - 1]; }
  bool empty() const { return free_.size() == loans_.size(); }

 private:
  std::vector<Loan> loans_;
  std::vector<uint64_t> free_;
};

}  // namespace gradring::daemon
