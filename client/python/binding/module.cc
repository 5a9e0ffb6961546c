// gradring._native: the C interface for Python, over addresses. What users see is made of it in
// Python.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <future>
#include <memory>

#include "client/python/binding/forming.h"
#include "client/python/binding/interruptible.h"
#include "client/python/binding/job.h"
#include "client/python/binding/numbers.h"
#include "client/python/binding/request.h"

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

Extent extent_of(uintptr_t at, size_t bytes) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): Python has numbers
  return {reinterpret_cast<void*>(at), bytes};
}

std::unique_ptr<Call> make_call(gradring_collective collective, gradring_dtype dtype,
                                uint64_t count, uintptr_t input, size_t input_bytes,
                                uintptr_t output, size_t output_bytes, gradring_reduce_op op,
                                uint32_t root, std::string name, int32_t priority,
                                gradring_wire wire, double prescale, double postscale,
                                std::vector<uint64_t> counts, std::optional<uintptr_t> gpu_stream,
                                uint32_t ranks) {
  auto made = std::make_unique<Call>();
  Call& call = *made;
  call.op.collective = collective;
  call.op.dtype = dtype;
  call.op.op = op;
  call.op.root = root;
  call.op.count = count;
  call.op.priority = priority;
  call.op.wire = wire;
  call.op.prescale = detail::factor(prescale);
  call.op.postscale = detail::factor(postscale);
  call.op.ranks = ranks;
  call.name = std::move(name);
  call.counts = std::move(counts);
  call.input = extent_of(input, input_bytes);
  call.output = extent_of(output, output_bytes);
  call.on_gpu = gpu_stream.has_value();
  call.op.stream = extent_of(gpu_stream.value_or(0), 0).at;
  return made;
}

std::unique_ptr<Request> start(std::shared_ptr<Job> job, Call& call, nb::object owner) {
  std::unique_ptr<Pending> pending;
  {
    const nb::gil_scoped_release unlocked;
    pending = of_job(*job, [&] { return job->start(call); });
  }
  return std::make_unique<Request>(std::move(job), std::move(pending), std::move(owner));
}

std::vector<std::unique_ptr<Request>> start_all(const std::shared_ptr<Job>& job,
                                                std::vector<Call>& calls, const nb::object& owner) {
  std::vector<std::unique_ptr<Pending>> started;
  {
    const nb::gil_scoped_release unlocked;
    started = of_job(*job, [&] { return job->start_all(calls); });
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

// What the environment says of this rank (gradring_options_init); None where it says nothing, and a
// number below 0 where it says no number.
nb::dict told() {
  gradring_options options;
  gradring_options_init(&options);
  const auto number = [](int32_t value) {
    return value == -1 ? nb::object(nb::none()) : nb::object(nb::int_(value));
  };
  const auto text = [](const char* value) { return std::string(value == nullptr ? "" : value); };
  nb::dict told;
  told["rank"] = number(options.rank);
  told["size"] = number(options.size);
  told["job"] = text(options.job);
  told["token"] = text(options.token);
  told["policy"] = text(options.policy);
  return told;
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

// All at once: each returns when all its ranks have given it up, and they may wait in any of them.
// A group that has lost a rank is over, and tells whoever uses it next.
void abandon(const std::shared_ptr<Job>& job, const std::vector<std::shared_ptr<Job>>& groups) {
  run_with_signals([job, groups] {
    std::vector<std::future<gradring_code>> given_up;  // waits where it ends
    for (const auto& group : groups) {
      given_up.push_back(std::async(
          std::launch::async, [comm = group->comm()] { return gradring_abandon(comm, nullptr); }));
    }
    gradring_result result{};
    result.struct_size = sizeof(result);
    check_result(gradring_abandon(job->comm(), &result), result);
    return true;
  });
}

// As gradring.errors.GradringError, whose arguments these are.
nb::object in_python(const Error& error) {
  const gradring_result& result = error.result();
  return nb::module_::import_("gradring.errors")
      .attr("GradringError")(error.what(), static_cast<int>(error.code()), result.cause,
                             error.code() == GRADRING_ERR_FAILED ? result.blamed_rank : -1,
                             std::string(result.blamed_node), result.blamed_pid);
}

// Python code runs here, and with it the handlers of signals: what one of them raises is raised.
void raise_in_python(const std::exception_ptr& thrown, void*) {
  try {
    std::rethrow_exception(thrown);
  } catch (const Error& error) {
    try {
      const nb::object made = in_python(error);
      PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(made.ptr())), made.ptr());
    } catch (nb::python_error& raised) {
      raised.restore();
    }
  }
}

}  // namespace

NB_MODULE(_native, m) {
  nb::set_leak_warnings(false);  // torch's own globals hold groups until the process ends
  define_numbers(m);
  nb::register_exception_translator(raise_in_python);
  nb::module_::import_("atexit").attr("register")(nb::cpp_function(&Waits::end));
  m.def("end_waits", &Waits::end);
  m.def("told", &told);
  m.def("abort_all", [](const std::string& why) {
    const nb::gil_scoped_release unlocked;
    Job::abort_all(why);
  });
  // PyTorch's compiler, which each optimizer of PyTorch loads, holds on to process groups for ever.
  Py_AtExit(&Job::leave_all);
  m.def("waited_for_input", [](uint64_t nanoseconds) {
    const nb::gil_scoped_release unlocked;
    Job::waited_for_input(nanoseconds);
  });
  m.def("warn_of_stalls", [](double seconds) {
    Stall::set_patience(Stall::Seconds(seconds));
    watch_forming(std::min(seconds, 366 * 86400.0));
  });
  m.def("version", [] { return std::string(gradring_version()); });

  nb::class_<Memory>(m, "Memory", nb::type_slots(memory_slots))
      .def_prop_ro("address",
                   [](const Memory& self) { return reinterpret_cast<uintptr_t>(self.block->data); })
      .def_prop_ro("nbytes", [](const Memory& self) { return self.block->bytes; })
      .def("show_at",
           [](const Memory& self, uintptr_t pages) {
             const nb::gil_scoped_release unlocked;
             self.block->show_at(extent_of(pages, self.block->bytes).at);
           })
      .def("hide_at", [](const Memory& self, uintptr_t pages) {
        const nb::gil_scoped_release unlocked;
        self.block->hide_at(extent_of(pages, self.block->bytes).at);
      });

  nb::class_<gradring_result>(m, "Result")
      .def_prop_ro(
          "shrunk",
          [](const gradring_result& self) { return self.verdict == GRADRING_VERDICT_OK_SHRUNK; })
      .def_ro("ranks_min", &gradring_result::ranks_min)
      .def_ro("ranks_max", &gradring_result::ranks_max)
      .def_ro("epoch", &gradring_result::epoch)
      .def_ro("size", &gradring_result::size);

  nb::class_<Call>(m, "Call").def(
      nb::new_(&make_call), nb::arg("collective"), nb::arg("dtype") = GRADRING_UINT8,
      nb::arg("count") = 0, nb::arg("input") = 0, nb::arg("input_bytes") = 0, nb::arg("output") = 0,
      nb::arg("output_bytes") = 0, nb::arg("op") = GRADRING_SUM, nb::arg("root") = 0,
      nb::arg("name") = "", nb::arg("priority") = 0, nb::arg("wire") = GRADRING_WIRE_DEFAULT,
      nb::arg("prescale") = 1.0, nb::arg("postscale") = 1.0,
      nb::arg("counts") = std::vector<uint64_t>(), nb::arg("gpu_stream") = nb::none(),
      nb::arg("ranks") = 0);

  nb::class_<Request>(m, "Request")
      .def("wait", &Request::wait, nb::arg("timeout_ms") = -1)
      .def("wait_on_stream", &Request::wait_on_stream, nb::arg("stream"),
           nb::arg("timeout_ms") = -1)
      .def("progress", &Request::progress)
      .def_prop_ro("result", &Request::result);

  nb::class_<Job>(m, "Job")
      .def_prop_ro("rank", [](const Job& self) { return gradring_rank(self.comm()); })
      .def_prop_ro("size", [](const Job& self) { return gradring_size(self.comm()); })
      .def_prop_ro("local_rank", [](const Job& self) { return gradring_local_rank(self.comm()); })
      .def_prop_ro("local_size", [](const Job& self) { return gradring_local_size(self.comm()); })
      .def_prop_ro("epoch", [](const Job& self) { return gradring_epoch(self.comm()); })
      .def_prop_ro("copied_bytes", [](const Job& self) { return self.arena().copied_bytes(); })
      .def_prop_ro("node", [](const Job& self) { return std::string(gradring_node(self.comm())); })
      .def(
          "group",
          [](const std::shared_ptr<Job>& self, const std::vector<uint32_t>& ranks,
             int64_t timeout_ms) {
            return run_with_signals(
                [self, ranks, timeout_ms] { return self->group(ranks, timeout_ms); });
          },
          nb::arg("ranks"), nb::arg("timeout_ms") = -1)
      .def("allocate",
           [](const Job& self, size_t bytes) {
             const nb::gil_scoped_release unlocked;
             return Memory{self.arena().take(bytes)};
           })
      .def("allocate_pages",
           [](const Job& self, size_t bytes) {
             const nb::gil_scoped_release unlocked;
             return Memory{self.arena().take_pages(bytes)};
           })
      .def("start", &start, nb::arg("call"), nb::arg("owner") = nb::none())
      .def("start_all", &start_all, nb::arg("calls"), nb::arg("owner") = nb::none())
      .def("leave",
           [](const Job& self) {
             const nb::gil_scoped_release unlocked;
             self.leave();
           })
      .def("view", &view)
      .def("join_point", &join_point)
      .def("join", &join)
      .def("abandon", &abandon);

  using Text = std::optional<std::string>;
  using Number = std::optional<int32_t>;
  m.def(
      "open",
      [](Text runtime_dir, Text job, Text token, Text policy, Text wire, Text priorities,
         Text deterministic, Number rank, Number size, Number local_rank, Number local_size,
         int64_t join_timeout_ms, std::vector<uint32_t> ranks) {
        const JobOptions options{std::move(runtime_dir),
                                 std::move(job),
                                 std::move(token),
                                 std::move(policy),
                                 std::move(wire),
                                 std::move(priorities),
                                 std::move(deterministic),
                                 rank,
                                 size,
                                 local_rank,
                                 local_size,
                                 join_timeout_ms,
                                 std::move(ranks)};
        return run_with_signals([options] { return Job::open(options); });
      },
      nb::kw_only(), nb::arg("runtime_dir") = nb::none(), nb::arg("job") = nb::none(),
      nb::arg("token") = nb::none(), nb::arg("policy") = nb::none(), nb::arg("wire") = nb::none(),
      nb::arg("priorities") = nb::none(), nb::arg("deterministic") = nb::none(),
      nb::arg("rank") = nb::none(), nb::arg("size") = nb::none(),
      nb::arg("local_rank") = nb::none(), nb::arg("local_size") = nb::none(),
      nb::arg("join_timeout_ms") = 0, nb::arg("ranks") = std::vector<uint32_t>{});
}

}  // namespace gradring::python
