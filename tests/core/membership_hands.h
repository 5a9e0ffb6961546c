#pragma once

#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "daemon/core/membership.h"

namespace gradring::core {

// What a membership wants done, for tests that expect it call by call.
class MockHands : public MembershipActions {
 public:
  MOCK_METHOD(void, send, (const std::string&, const JobMessage&), (override));
  MOCK_METHOD(void, install, (const View&, const std::vector<SessionId>&), (override));
  MOCK_METHOD(void, admit, (SessionId, const View&), (override));
  MOCK_METHOD(void, refuse, (SessionId, const Status&), (override));
  MOCK_METHOD(void, leave_engine, (const JobId&, uint32_t, const Failure&), (override));
  MOCK_METHOD(void, fail_engine, (const JobId&, const Failure&), (override));
  MOCK_METHOD(void, member_gone, (const JobId&, uint32_t, const Failure&), (override));
  MOCK_METHOD(void, freeze_engine, (const JobId&, uint64_t), (override));
  MOCK_METHOD(void, adopt_engine, (const JobId&, const Proposal&, const std::vector<SessionId>&),
              (override));
  MOCK_METHOD(void, set_grows, (const JobId&, bool), (override));
  MOCK_METHOD(void, view_changed, (SessionId, const View&), (override));
  MOCK_METHOD(void, close, (SessionId, const JobId&, const Failure&), (override));
  MOCK_METHOD(void, record, (const JobRecord&), (override));
  MOCK_METHOD(void, forget, (const JobId&), (override));
  MOCK_METHOD(void, remove, (const JobId&), (override));
  MOCK_METHOD(std::string, unreachable_peers, (), (const, override));
};

}  // namespace gradring::core
