#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "daemon/core/op.h"
#include "daemon/core/plan.h"
#include "daemon/core/view.h"
#include "proto/frame.h"

// Ops that need all of their ranks: who they are, and where their buffers lie. Pure functions.
namespace gradring::core {

// Of all ranks of the view, ascending.
std::vector<RankPlace> places_of(const View& view);

// As make_plan() takes them.
std::vector<Seat> seats_of(const Op& op, const View& view);

// What to tell everybody where the job has other ranks by now than the op was submitted for. One
// that a view spares goes on with those that it began with, unless it came here when these were
// gone already.
std::optional<MismatchBody> wrong_ranks(const Op& op, uint32_t rank, const Signature& signature,
                                        const View& view);

}  // namespace gradring::core
