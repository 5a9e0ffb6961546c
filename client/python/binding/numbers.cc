#include "client/python/binding/numbers.h"

#include <gradring/gradring.h>

namespace nb = nanobind;

namespace gradring::python {

void define_numbers(nb::module_& m) {
  nb::enum_<gradring_collective>(m, "Collective", nb::is_arithmetic())
      .value("ALLREDUCE", GRADRING_ALLREDUCE)
      .value("BROADCAST", GRADRING_BROADCAST)
      .value("BARRIER", GRADRING_BARRIER)
      .value("ALLGATHER", GRADRING_ALLGATHER)
      .value("REDUCE_SCATTER", GRADRING_REDUCE_SCATTER)
      .value("REDUCE", GRADRING_REDUCE)
      .value("GATHER", GRADRING_GATHER)
      .value("SCATTER", GRADRING_SCATTER)
      .value("ALLTOALL", GRADRING_ALLTOALL)
      .value("SEND", GRADRING_SEND)
      .value("RECV", GRADRING_RECV);
  nb::enum_<gradring_dtype>(m, "Dtype", nb::is_arithmetic())
      .value("FLOAT32", GRADRING_FLOAT32)
      .value("FLOAT64", GRADRING_FLOAT64)
      .value("FLOAT16", GRADRING_FLOAT16)
      .value("BFLOAT16", GRADRING_BFLOAT16)
      .value("INT8", GRADRING_INT8)
      .value("INT16", GRADRING_INT16)
      .value("INT32", GRADRING_INT32)
      .value("INT64", GRADRING_INT64)
      .value("UINT8", GRADRING_UINT8)
      .value("UINT16", GRADRING_UINT16)
      .value("UINT32", GRADRING_UINT32)
      .value("UINT64", GRADRING_UINT64)
      .value("BOOL", GRADRING_BOOL)
      .value("FLOAT8_E4M3", GRADRING_FLOAT8_E4M3)
      .value("FLOAT8_E5M2", GRADRING_FLOAT8_E5M2);
  nb::enum_<gradring_reduce_op>(m, "ReduceOp", nb::is_arithmetic())
      .value("SUM", GRADRING_SUM)
      .value("AVERAGE", GRADRING_AVERAGE)
      .value("MIN", GRADRING_MIN)
      .value("MAX", GRADRING_MAX)
      .value("PRODUCT", GRADRING_PRODUCT)
      .value("BAND", GRADRING_BAND)
      .value("BOR", GRADRING_BOR)
      .value("BXOR", GRADRING_BXOR);
  nb::enum_<gradring_wire>(m, "Wire", nb::is_arithmetic())
      .value("DEFAULT", GRADRING_WIRE_DEFAULT)
      .value("FLOAT16", GRADRING_WIRE_FLOAT16)
      .value("BFLOAT16", GRADRING_WIRE_BFLOAT16)
      .value("INT8", GRADRING_WIRE_INT8)
      .value("NATIVE", GRADRING_WIRE_NATIVE);
  nb::enum_<gradring_code>(m, "Code", nb::is_arithmetic())
      .value("INVALID", GRADRING_ERR_INVALID)
      .value("NOT_FOUND", GRADRING_ERR_NOT_FOUND)
      .value("PERMISSION", GRADRING_ERR_PERMISSION)
      .value("EXHAUSTED", GRADRING_ERR_EXHAUSTED)
      .value("UNAVAILABLE", GRADRING_ERR_UNAVAILABLE)
      .value("DEADLINE", GRADRING_ERR_DEADLINE)
      .value("FAILED", GRADRING_ERR_FAILED)
      .value("INCOMPATIBLE", GRADRING_ERR_INCOMPATIBLE)
      .value("INTERNAL", GRADRING_ERR_INTERNAL)
      .value("FORKED", GRADRING_ERR_FORKED);
  nb::enum_<gradring_cause>(m, "Cause", nb::is_arithmetic())
      .value("NONE", GRADRING_CAUSE_NONE)
      .value("MISMATCH", GRADRING_CAUSE_MISMATCH)
      .value("TRAINER_DIED", GRADRING_CAUSE_TRAINER_DIED)
      .value("TRAINER_LEFT", GRADRING_CAUSE_TRAINER_LEFT)
      .value("PEER_LOST", GRADRING_CAUSE_PEER_LOST)
      .value("PEER_SILENT", GRADRING_CAUSE_PEER_SILENT)
      .value("DEADLINE", GRADRING_CAUSE_DEADLINE)
      .value("PROTOCOL", GRADRING_CAUSE_PROTOCOL)
      .value("REFUSED", GRADRING_CAUSE_REFUSED)
      .value("DRAINED", GRADRING_CAUSE_DRAINED)
      .value("EXCLUDED", GRADRING_CAUSE_EXCLUDED)
      .value("NO_QUORUM", GRADRING_CAUSE_NO_QUORUM)
      .value("ROOT_LOST", GRADRING_CAUSE_ROOT_LOST)
      .value("CORRUPTED", GRADRING_CAUSE_CORRUPTED);
}

}  // namespace gradring::python
