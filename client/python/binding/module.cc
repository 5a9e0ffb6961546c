// gradring._native: the C interface for Python, over addresses. What users see is made of it in
// Python.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>

#include "client/python/binding/interruptible.h"
#include "client/python/binding/job.h"

namespace nb = nanobind;

namespace gradring::python {
namespace {

// A block of shared memory, as a buffer of bytes.
struct Memory {
  std::shared_ptr<const Arena::Block> block;
};

int get_buffer(PyObject* self, Py_buffer* view, int flags) {
  const Memory* memory = nb::inst_ptr<Memory>(nb::handle(self));
  return PyBuffer_FillInfo(view, self, memory->block->data,
                           static_cast<Py_ssize_t>(memory->block->bytes), 0, flags);
}

PyType_Slot memory_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(get_buffer)}, {0, nullptr}};

// An op under way with what keeps it whole: its job, and whoever owns the memory that its result is
// copied to.
class Request {
 public:
  Request(std::shared_ptr<Job> job, std::unique_ptr<Pending> pending, nb::object owner)
      : job_(std::move(job)), pending_(std::move(pending)), owner_(std::move(owner)) {}
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;
  ~Request() { job_->drop(*pending_); }

  bool wait(int64_t timeout_ms) {
    const auto look = [this](int64_t ms) { return pending_->wait(ms); };
    // Most ops that are looked at are done: then nothing is locked or unlocked.
    const bool done = timeout_ms == 0 ? pending_->wait(0) : wait_with_signals(timeout_ms, look);
    if (done) owner_.reset();
    return done;
  }
  std::optional<gradring_result> result() const { return pending_->result(); }

 private:
  const std::shared_ptr<Job> job_;
  const std::unique_ptr<Pending> pending_;
  nb::object owner_;
};

Extent extent_of(uintptr_t at, size_t bytes) {
  return {reinterpret_cast<void*>(at),
          bytes};  // NOLINT(performance-no-int-to-ptr): Python has numbers
}

Call make_call(gradring_collective collective, gradring_dtype dtype, uint64_t count,
               uintptr_t input, size_t input_bytes, uintptr_t output, size_t output_bytes,
               gradring_reduce_op op, uint32_t root, std::string name, int32_t priority,
               gradring_wire wire, double prescale, double postscale,
               std::vector<uint64_t> counts) {
  Call call;
  call.op.collective = collective;
  call.op.dtype = dtype;
  call.op.op = op;
  call.op.root = root;
  call.op.count = count;
  call.op.priority = priority;
  call.op.wire = wire;
  call.op.prescale = prescale;
  call.op.postscale = postscale;
  call.name = std::move(name);
  call.counts = std::move(counts);
  call.input = extent_of(input, input_bytes);
  call.output = extent_of(output, output_bytes);
  return call;
}

std::unique_ptr<Request> start(std::shared_ptr<Job> job, Call& call, nb::object owner) {
  std::unique_ptr<Pending> pending;
  {
    const nb::gil_scoped_release unlocked;
    pending = job->start(call);
  }
  return std::make_unique<Request>(std::move(job), std::move(pending), std::move(owner));
}

std::vector<std::unique_ptr<Request>> start_all(const std::shared_ptr<Job>& job,
                                                std::vector<Call>& calls, const nb::object& owner) {
  std::vector<std::unique_ptr<Pending>> started;
  {
    const nb::gil_scoped_release unlocked;
    started = job->start_all(calls);
  }
  std::vector<std::unique_ptr<Request>> requests;
  for (auto& one : started) {
    requests.push_back(std::make_unique<Request>(job, std::move(one), owner));
  }
  return requests;
}

nb::dict view_of(const Job& job, const gradring_view& view) {
  std::vector<uint32_t> ranks(view.size);
  uint32_t count = 0;
  check(gradring_view_ranks(job.comm(), view.epoch, ranks.data(), view.size, &count));
  nb::dict told;
  told["epoch"] = view.epoch;
  told["grew"] = view.grew;
  told["size"] = view.size;
  told["rank"] = view.rank;
  told["position"] = view.position;
  told["oldest"] = view.oldest;
  told["ranks"] = ranks;
  told["explanation"] = std::string(view.explanation);
  return told;
}

nb::dict view(const Job& job) {
  gradring_view view{};
  view.struct_size = sizeof(view);
  check(gradring_get_view(job.comm(), &view));
  return view_of(job, view);
}

void check_result(gradring_code code, const gradring_result& result) {
  if (code != GRADRING_OK) throw Error(code, gradring_last_error(), result);
}

nb::dict join_point(const std::shared_ptr<Job>& job) {
  const gradring_view view = run_with_signals([job] {
    gradring_result result{};
    result.struct_size = sizeof(result);
    gradring_view view{};
    view.struct_size = sizeof(view);
    check_result(gradring_join_point(job->comm(), &result, &view), result);
    return view;
  });
  return view_of(*job, view);
}

uint32_t join(const std::shared_ptr<Job>& job) {
  return run_with_signals([job] {
    gradring_result result{};
    result.struct_size = sizeof(result);
    uint32_t last = 0;
    check_result(gradring_join(job->comm(), &last, &result), result);
    return last;
  });
}

// As gradring.errors.GradringError, whose arguments these are.
void raise_in_python(const std::exception_ptr& thrown, void*) {
  try {
    std::rethrow_exception(thrown);
  } catch (const Error& error) {
    const gradring_result& result = error.result();
    const nb::object made =
        nb::module_::import_("gradring.errors")
            .attr("GradringError")(error.what(), static_cast<int>(error.code()), result.cause,
                                   error.code() == GRADRING_ERR_FAILED ? result.blamed_rank : -1,
                                   std::string(result.blamed_node), result.blamed_pid);
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(made.ptr())), made.ptr());
  }
}

}  // namespace

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

NB_MODULE(_native, m) {
  nb::set_leak_warnings(false);
  define_numbers(m);
  nb::register_exception_translator(raise_in_python);
  m.def("version", [] { return std::string(gradring_version()); });

  nb::class_<Memory>(m, "Memory", nb::type_slots(memory_slots))
      .def_prop_ro("address",
                   [](const Memory& self) { return reinterpret_cast<uintptr_t>(self.block->data); })
      .def_prop_ro("nbytes", [](const Memory& self) { return self.block->bytes; });

  nb::class_<gradring_result>(m, "Result")
      .def_prop_ro(
          "shrunk",
          [](const gradring_result& self) { return self.verdict == GRADRING_VERDICT_OK_SHRUNK; })
      .def_ro("ranks_min", &gradring_result::ranks_min)
      .def_ro("ranks_max", &gradring_result::ranks_max)
      .def_ro("epoch", &gradring_result::epoch)
      .def_ro("size", &gradring_result::size);

  nb::class_<Call>(m, "Call").def(
      "__init__",
      [](Call* self, gradring_collective collective, gradring_dtype dtype, uint64_t count,
         uintptr_t input, size_t input_bytes, uintptr_t output, size_t output_bytes,
         gradring_reduce_op op, uint32_t root, std::string name, int32_t priority,
         gradring_wire wire, double prescale, double postscale, std::vector<uint64_t> counts) {
        new (self) Call(make_call(collective, dtype, count, input, input_bytes, output,
                                  output_bytes, op, root, std::move(name), priority, wire, prescale,
                                  postscale, std::move(counts)));
      },
      nb::arg("collective"), nb::arg("dtype") = GRADRING_UINT8, nb::arg("count") = 0,
      nb::arg("input") = 0, nb::arg("input_bytes") = 0, nb::arg("output") = 0,
      nb::arg("output_bytes") = 0, nb::arg("op") = GRADRING_SUM, nb::arg("root") = 0,
      nb::arg("name") = "", nb::arg("priority") = 0, nb::arg("wire") = GRADRING_WIRE_DEFAULT,
      nb::arg("prescale") = 1.0, nb::arg("postscale") = 1.0,
      nb::arg("counts") = std::vector<uint64_t>());

  nb::class_<Request>(m, "Request")
      .def("wait", &Request::wait, nb::arg("timeout_ms") = -1)
      .def_prop_ro("result", &Request::result);

  nb::class_<Job>(m, "Job")
      .def_prop_ro("rank", [](const Job& self) { return gradring_rank(self.comm()); })
      .def_prop_ro("size", [](const Job& self) { return gradring_size(self.comm()); })
      .def_prop_ro("local_rank", [](const Job& self) { return gradring_local_rank(self.comm()); })
      .def_prop_ro("local_size", [](const Job& self) { return gradring_local_size(self.comm()); })
      .def_prop_ro("epoch", [](const Job& self) { return gradring_epoch(self.comm()); })
      .def_prop_ro("node", [](const Job& self) { return std::string(gradring_node(self.comm())); })
      .def("group",
           [](const std::shared_ptr<Job>& self, const std::vector<uint32_t>& ranks) {
             return run_with_signals([self, ranks] { return self->group(ranks); });
           })
      .def("allocate",
           [](const Job& self, size_t bytes) {
             const nb::gil_scoped_release unlocked;
             return Memory{self.arena().take(bytes)};
           })
      .def("start", &start, nb::arg("call"), nb::arg("owner") = nb::none())
      .def("start_all", &start_all, nb::arg("calls"), nb::arg("owner") = nb::none())
      .def("view", &view)
      .def("join_point", &join_point)
      .def("join", &join);

  m.def("open", [](const nb::kwargs& given) {
    JobOptions options;
    const auto text = [&](const char* key, std::optional<std::string>& to) {
      if (given.contains(key)) to = nb::cast<std::optional<std::string>>(given[key]);
    };
    const auto number = [&](const char* key, std::optional<int32_t>& to) {
      if (given.contains(key)) to = nb::cast<std::optional<int32_t>>(given[key]);
    };
    text("runtime_dir", options.runtime_dir);
    text("job", options.job);
    text("token", options.token);
    text("policy", options.policy);
    text("wire", options.wire);
    text("priorities", options.priorities);
    text("deterministic", options.deterministic);
    number("rank", options.rank);
    number("size", options.size);
    number("local_rank", options.local_rank);
    number("local_size", options.local_size);
    if (given.contains("join_timeout_ms")) {
      options.join_timeout_ms = nb::cast<int64_t>(given["join_timeout_ms"]);
    }
    return run_with_signals([options] { return Job::open(options); });
  });
}

}  // namespace gradring::python
