#pragma once

#include <gradring/gradring.h>

#include <cstddef>
#include <string_view>

#include "proto/status.h"

namespace gradring::client {

// The public number of a refusal.
gradring_code to_public(Code code);

// Keeps the sentence for gradring_last_error on this thread and returns the code. Never throws.
gradring_code remember(gradring_code code, std::string_view message) noexcept;
inline gradring_code remember(const Status& status) noexcept {
  return status.ok() ? GRADRING_OK : remember(to_public(status.code()), status.message());
}

const char* last_error() noexcept;

// Copies text into a fixed field, always terminated; cuts before a character, not inside one.
void copy_text(std::string_view from, char* to, size_t capacity) noexcept;

}  // namespace gradring::client
