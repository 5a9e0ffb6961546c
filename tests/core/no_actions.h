#pragma once

// For engines whose data nobody looks at: whoever derives from it says what becomes of messages.

#include <cstdint>
#include <optional>

#include "daemon/core/engine_actions.h"

namespace gradring::core {

class NoActions : public EngineActions {
 public:
  void fold(const FoldOrder&) override {}
  void sum(const SumOrder&) override {}
  void deliver(const Op&, uint32_t, Staging) override {}
  std::optional<uint32_t> keep(const Op&, uint32_t) override { return 0; }
  void drop(uint32_t) override {}
  void fetch(const Op&, uint32_t, Staging) override {}
  std::optional<ResultDigest> digest(const Op&) override { return std::nullopt; }
  void at_join_point() override {}
  void moves(const Op&) override {}
  void stand_in(uint32_t, const OpKey&, const std::optional<Signature>&) override {}
};

}  // namespace gradring::core
