#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>
#include <tl/expected.hpp>

#include "proto/status.h"

namespace gradring::client {

// Copies a structure of the C interface that begins with its size. Structures only grow: of a
// shorter one (an older program) the rest is zero; of a longer one (a newer program) what this
// library does not know must be zero, else it would be ignored in silence. `first_size` is the
// structure's size in version 0.1.
template <class T>
tl::expected<T, Status> copy_sized(const T* from, size_t first_size, const std::string& name) {
  if (from == nullptr) return tl::unexpected(Status(Code::kInvalidArgument, name + " is NULL"));
  const size_t size = from->struct_size;
  if (size < first_size) {
    return tl::unexpected(Status(Code::kInvalidArgument, name + ".struct_size is not set"));
  }
  // Half a pointer must not be followed.
  if (size % alignof(T) != 0) {
    return tl::unexpected(
        Status(Code::kInvalidArgument, name + ".struct_size is " + std::to_string(size) +
                                           ", which no such structure has; use sizeof"));
  }
  const auto* bytes = reinterpret_cast<const unsigned char*>(from);
  for (size_t i = sizeof(T); i < size; ++i) {
    if (bytes[i] != 0) {
      return tl::unexpected(Status(
          Code::kIncompatible, name + " uses fields that this libgradring does not know; install "
                                      "a newer one"));
    }
  }
  T copy{};
  std::memcpy(&copy, from, std::min(size, sizeof(T)));
  return copy;
}

}  // namespace gradring::client
