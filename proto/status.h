#pragma once

#include <string>
#include <utility>

namespace gradring {

// Why a call could not be honoured. A refusal is a value, never an exception; its message says what
// happened, to whom, and what to do about it.
enum class Code : int {
  kOk = 0,
  kInvalidArgument = 1,    // the caller's request makes no sense; the message names the field
  kNotFound = 2,           // unknown segment, job, session, peer
  kPermissionDenied = 3,   // belongs to another uid, job or session
  kResourceExhausted = 4,  // a configured cap is reached; the message names the cap
  kUnavailable = 5,        // no daemon, no peer, not ready yet
  kDeadlineExceeded = 6,
  kAborted = 7,       // the job is closed or the session is gone
  kIncompatible = 8,  // protocol or library versions do not fit
  kInternal = 9,
};

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == Code::kOk; }
  Code code() const { return code_; }
  const std::string& message() const { return message_; }

 private:
  Code code_ = Code::kOk;
  std::string message_;
};

}  // namespace gradring
