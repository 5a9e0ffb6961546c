#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <utility>

#include "proto/status.h"
#include "proto/wire.h"

namespace gradring::client {

inline Status invalid(std::string message) { return {Code::kInvalidArgument, std::move(message)}; }

inline Status unknown_request(uint64_t request) {
  return {Code::kNotFound,
          fmt::format("request {} does not exist: it was never submitted, or has been waited for",
                      request)};
}

inline Status to_status(const wire::Refused& refused) {
  const auto code = static_cast<Code>(refused.code());
  // Whatever its number says, a refusal is not a success.
  return {code == Code::kOk ? Code::kInternal : code, refused.message()};
}

}  // namespace gradring::client
