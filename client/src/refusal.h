#pragma once

#include <string>
#include <utility>

#include "proto/status.h"
#include "proto/wire.h"

namespace gradring::client {

inline Status invalid(std::string message) { return {Code::kInvalidArgument, std::move(message)}; }

inline Status to_status(const wire::Refused& refused) {
  const auto code = static_cast<Code>(refused.code());
  // Whatever its number says, a refusal is not a success.
  return {code == Code::kOk ? Code::kInternal : code, refused.message()};
}

}  // namespace gradring::client
