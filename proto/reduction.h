#pragma once

#include "proto/status.h"
#include "proto/types.h"

namespace gradring {

// Which reductions there are, for all who are asked for one. The refusals are sentences for people.
//
//   floats               sum average min max product
//   integers             sum         min max product band bor bxor
//   bool                 the same as integers: sum, max and bor are "any of them", product, min and
//                        band "all of them"
//   float8               none
Status can_reduce(Dtype dtype, ReduceOp op);

// Whether it may travel in fewer bits than it has.
bool may_pack(Collective collective, Dtype dtype);

// Whether inputs or the result may be multiplied by `factor`, which is rounded to what the type is
// computed in first: float64 for itself, float32 for all others. 1 is always fine.
Status can_scale(Collective collective, Dtype dtype, double factor);

}  // namespace gradring
