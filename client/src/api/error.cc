#include "client/src/api/error.h"

#include <cstring>

namespace gradring::client {
namespace {

// A fixed buffer, so that running out of memory can be told as well.
thread_local char last_error_text[1024];

}  // namespace

gradring_code to_public(Code code) {
  switch (code) {
    case Code::kOk:
      return GRADRING_OK;
    case Code::kInvalidArgument:
      return GRADRING_ERR_INVALID;
    case Code::kNotFound:
      return GRADRING_ERR_NOT_FOUND;
    case Code::kPermissionDenied:
      return GRADRING_ERR_PERMISSION;
    case Code::kResourceExhausted:
      return GRADRING_ERR_EXHAUSTED;
    case Code::kUnavailable:
      return GRADRING_ERR_UNAVAILABLE;
    case Code::kDeadlineExceeded:
      return GRADRING_ERR_DEADLINE;
    case Code::kAborted:
      return GRADRING_ERR_FAILED;
    case Code::kIncompatible:
      return GRADRING_ERR_INCOMPATIBLE;
    case Code::kInternal:
      return GRADRING_ERR_INTERNAL;
  }
  return GRADRING_ERR_INTERNAL;
}

gradring_code remember(gradring_code code, std::string_view message) noexcept {
  copy_text(message, last_error_text, sizeof(last_error_text));
  return code;
}

const char* last_error() noexcept { return last_error_text; }

void copy_text(std::string_view from, char* to, size_t capacity) noexcept {
  size_t length = from.size();
  if (length >= capacity) {
    length = capacity - 1;
    // A byte 10xxxxxx continues a UTF-8 character that began before the cut.
    while (length > 0 && (static_cast<unsigned char>(from[length]) & 0xc0) == 0x80) --length;
  }
  std::memcpy(to, from.data(), length);
  to[length] = '\0';
}

}  // namespace gradring::client
