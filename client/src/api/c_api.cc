#include "client/src/api/c_api.h"

#include <fmt/format.h>
#include <gradring/gradring.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "client/src/api/error.h"
#include "client/src/api/sized_struct.h"
#include "client/src/clock.h"
#include "client/src/communicator/forming.h"
#include "client/src/limits.h"
#include "client/src/refusal.h"
#include "client/src/utf8.h"
#include "proto/types.h"
#include "proto/version.h"

// The C interface: pointers checked, forks noticed, nothing thrown out. Everything else is
// Communicator's.

using gradring::client::Communicator;
using gradring::client::guarded;
using gradring::client::on;
using gradring::client::remember;

// The ABI: these sizes may only grow, and then copy_sized and write_result serve older callers.
static_assert(sizeof(gradring_options) == 88);
static_assert(sizeof(gradring_op) == 112);
static_assert(sizeof(gradring_result) == 696);
static_assert(sizeof(gradring_view) == 552);
static_assert(sizeof(gradring_progress) == 528);
static_assert(sizeof(gradring_learned_priority) == 520);
static_assert(sizeof(gradring_code) == 4 && sizeof(gradring_dtype) == 4);
// The public numbers are those of the protocol.
static_assert(GRADRING_FLOAT8_E5M2 == static_cast<int>(gradring::kDtypeLast));
static_assert(GRADRING_BXOR == static_cast<int>(gradring::kReduceOpLast));
static_assert(GRADRING_BARRIER == static_cast<int>(gradring::Collective::kBarrier));
static_assert(GRADRING_VERDICT_FAILED == static_cast<int>(gradring::Verdict::kFailed));
static_assert(GRADRING_WIRE_INT8 == static_cast<int>(gradring::WireType::kInt8));
static_assert(GRADRING_CAUSE_CORRUPTED == static_cast<int>(gradring::kCauseLast));

namespace {

gradring_code invalid(const char* what) { return remember(GRADRING_ERR_INVALID, what); }

gradring_code told(const gradring::client::Outcome& outcome, gradring_result* result) {
  write_result(outcome, result);
  return outcome.good() ? GRADRING_OK : remember(GRADRING_ERR_FAILED, outcome.message);
}

gradring_code wait_for(Communicator& comm, gradring_request request, int64_t timeout_ms, bool* done,
                       gradring_result* result) {
  const auto outcome = comm.wait(request, gradring::client::deadline_after(timeout_ms));
  if (!outcome) return remember(outcome.error());
  *done = outcome->has_value();
  if (!*done) return GRADRING_OK;
  return told(**outcome, result);
}

template <class T>
bool usable(const T* result) {
  return result == nullptr || result->struct_size >= sizeof(result->struct_size);
}

}  // namespace

gradring_code gradring_open(const gradring_options* options, gradring_comm** comm) {
  if (comm == nullptr) return invalid("comm is NULL");
  *comm = nullptr;
  return guarded([&] {
    auto settings = gradring::client::settings_from(options);
    if (!settings) return remember(settings.error());
    auto handle = std::make_unique<gradring_comm>();
    auto body = Communicator::open(std::move(*settings));
    if (!body) return remember(body.error());
    handle->body = std::move(*body);
    *comm = handle.release();
    return GRADRING_OK;
  });
}

gradring_code gradring_group(gradring_comm* comm, const uint32_t* ranks, uint32_t count,
                             gradring_comm** group) {
  return gradring_group_timed(comm, ranks, count, -1, group);
}

gradring_code gradring_group_timed(gradring_comm* comm, const uint32_t* ranks, uint32_t count,
                                   int64_t timeout_ms, gradring_comm** group) {
  if (group == nullptr) return invalid("group is NULL");
  *group = nullptr;
  if (timeout_ms < -1) return invalid("timeout_ms is negative; -1 is that of the communicator");
  if (ranks == nullptr || count == 0) return invalid("a group has ranks: ranks is NULL or count 0");
  // A number that went wrong, as a -1 does, must not have us read so far.
  if (count > gradring::kRanksMax) {
    return remember(gradring::client::invalid(
        fmt::format("a group of {} ranks; no job has more than {}", count, gradring::kRanksMax)));
  }
  return on(comm, [&](Communicator& body) {
    auto handle = std::make_unique<gradring_comm>();
    auto made = body.group({ranks, ranks + count}, timeout_ms);
    if (!made) return remember(made.error());
    handle->body = std::move(*made);
    *group = handle.release();
    return GRADRING_OK;
  });
}

void gradring_close(gradring_comm* comm) {
  if (comm == nullptr) return;
  const bool forked = comm->body->forked();
  static_cast<void>(guarded([&] {
    if (forked) {
      comm->body->abandon();
    } else {
      comm->body->close(gradring::client::Clock::now() + gradring::client::kLeaveTime);
    }
    return GRADRING_OK;
  }));
  if (forked) static_cast<void>(comm->body.release());
  delete comm;
}

gradring_code gradring_leave(gradring_comm* comm) {
  return on(comm, [](Communicator& body) { return remember(body.leave()); });
}

gradring_code gradring_abort(gradring_comm* comm, const char* why) {
  const bool said = why != nullptr && *why != '\0' && gradring::client::is_utf8(why);
  return on(comm, [&](Communicator& body) {
    char text[256];  // of which an error's message has room beside who, where and which op
    gradring::client::copy_text(said ? why : "aborted the job", text, sizeof(text));
    return remember(body.leave(text));
  });
}

int32_t gradring_rank(const gradring_comm* comm) { return comm ? comm->body->rank() : -1; }
int32_t gradring_size(const gradring_comm* comm) { return comm ? comm->body->size() : -1; }
int32_t gradring_local_rank(const gradring_comm* comm) {
  return comm ? comm->body->local_rank() : -1;
}
int32_t gradring_local_size(const gradring_comm* comm) {
  return comm ? comm->body->local_size() : -1;
}
uint64_t gradring_epoch(const gradring_comm* comm) { return comm ? comm->body->epoch() : 0; }
const char* gradring_node(const gradring_comm* comm) { return comm ? comm->body->node() : ""; }

gradring_code gradring_alloc(gradring_comm* comm, size_t bytes, void** memory) {
  if (memory == nullptr) return invalid("memory is NULL");
  *memory = nullptr;
  return on(comm, [&](Communicator& body) {
    const auto allocated = body.alloc(bytes);
    if (!allocated) return remember(allocated.error());
    *memory = *allocated;
    return GRADRING_OK;
  });
}

gradring_code gradring_free(gradring_comm* comm, void* memory) {
  return on(comm, [&](Communicator& body) { return remember(body.free(memory)); });
}

gradring_code gradring_register(gradring_comm* comm, void* memory, size_t bytes) {
  return on(comm,
            [&](Communicator& body) { return remember(body.register_memory(memory, bytes)); });
}

gradring_code gradring_unregister(gradring_comm* comm, void* memory) {
  return on(comm, [&](Communicator& body) { return remember(body.unregister_memory(memory)); });
}

gradring_code gradring_submit(gradring_comm* comm, const gradring_op* op,
                              gradring_request* request) {
  if (request == nullptr) return invalid("request is NULL");
  *request = 0;
  return on(comm, [&](Communicator& body) {
    // sizeof(gradring_op) of version 0.1.
    const auto copy = gradring::client::copy_sized(op, 64, "op");
    if (!copy) return remember(copy.error());
    const auto ticket = body.submit(*copy);
    if (!ticket) return remember(ticket.error());
    *request = *ticket;
    return GRADRING_OK;
  });
}

gradring_code gradring_submit_all(gradring_comm* comm, const gradring_op* ops, uint32_t count,
                                  gradring_request* requests) {
  if (requests == nullptr && count > 0) return invalid("requests is NULL");
  std::fill_n(requests, count, 0);
  return on(comm, [&](Communicator& body) {
    std::vector<gradring_op> copies;
    const auto* at = reinterpret_cast<const char*>(ops);
    for (uint32_t i = 0; i < count; ++i) {
      const auto* op = reinterpret_cast<const gradring_op*>(at);
      const auto copy = gradring::client::copy_sized(op, 64, fmt::format("ops[{}]", i));
      if (!copy) return remember(copy.error());
      // An array of an older or newer program's structures has their stride.
      if (copy->struct_size != ops->struct_size) {
        return invalid("the ops have different struct_size; they are an array of one structure");
      }
      copies.push_back(*copy);
      at += ops->struct_size;
    }
    return remember(body.submit(copies, requests));
  });
}

gradring_code gradring_wait(gradring_comm* comm, gradring_request request, int64_t timeout_ms,
                            gradring_result* result) {
  if (!usable(result)) return invalid("result.struct_size is not set");
  if (timeout_ms < -1) return invalid("timeout_ms is negative; use -1 to wait as long as it takes");
  return on(comm, [&](Communicator& body) {
    bool done = false;
    const gradring_code code = wait_for(body, request, timeout_ms, &done, result);
    if (code != GRADRING_OK || done) return code;
    return remember(body.still_under_way(request, timeout_ms));
  });
}

gradring_code gradring_wait_on_stream(gradring_comm* comm, gradring_request request, void* stream,
                                      int64_t timeout_ms) {
  if (timeout_ms < -1) return invalid("timeout_ms is negative; use -1 to wait as long as it takes");
  return on(comm, [&](Communicator& body) {
    const auto deadline = gradring::client::deadline_after(timeout_ms);
    const auto waits = body.wait_on_stream(request, stream, deadline);
    if (!waits) return remember(waits.error());
    return *waits ? GRADRING_OK : remember(body.still_under_way(request, timeout_ms));
  });
}

gradring_code gradring_test(gradring_comm* comm, gradring_request request, int* done,
                            gradring_result* result) {
  if (done == nullptr) return invalid("done is NULL");
  *done = 0;
  if (!usable(result)) return invalid("result.struct_size is not set");
  return on(comm, [&](Communicator& body) {
    bool is_done = false;
    const gradring_code code = wait_for(body, request, 0, &is_done, result);
    *done = is_done ? 1 : 0;
    return code;
  });
}

gradring_code gradring_failure(gradring_comm* comm, gradring_result* result) {
  if (!usable(result)) return invalid("result.struct_size is not set");
  return on(comm, [&](Communicator& body) {
    const auto failure = body.failure();
    return failure ? told(*failure, result) : GRADRING_OK;
  });
}

gradring_code gradring_get_progress(gradring_comm* comm, gradring_request request,
                                    gradring_progress* progress) {
  if (progress == nullptr) return invalid("progress is NULL");
  if (!usable(progress)) return invalid("progress.struct_size is not set");
  return on(comm, [&](Communicator& body) {
    const auto known = body.progress(request);
    if (!known) return remember(known.error());
    gradring_progress full{};
    full.struct_size = progress->struct_size;
    full.first = known->first ? static_cast<int32_t>(*known->first) : -1;
    gradring::client::copy_text(known->op + " " + known->what, full.message, sizeof(full.message));
    std::memcpy(progress, &full, std::min(progress->struct_size, sizeof(full)));
    return GRADRING_OK;
  });
}

gradring_code gradring_watch_forming(int64_t every_ms, gradring_forming tell, void* context) {
  if (every_ms < 0) return invalid("every_ms is negative; 0 means never");
  const auto every =
      gradring::client::clamped_ms(tell == nullptr ? 0 : static_cast<uint64_t>(every_ms));
  gradring::client::set_forming_watch({every, tell, context});
  return GRADRING_OK;
}

gradring_code gradring_get_view(gradring_comm* comm, gradring_view* view) {
  if (view == nullptr) return invalid("view is NULL");
  if (!usable(view)) return invalid("view.struct_size is not set");
  return on(comm, [&](Communicator& body) {
    write_view(body.view(), static_cast<uint32_t>(body.rank()), view);
    return GRADRING_OK;
  });
}

gradring_code gradring_view_ranks(gradring_comm* comm, uint64_t epoch, uint32_t* ranks,
                                  uint32_t capacity, uint32_t* count) {
  if (count == nullptr) return invalid("count is NULL");
  *count = 0;
  if (ranks == nullptr && capacity > 0) return invalid("ranks is NULL");
  return on(comm, [&](Communicator& body) {
    const auto known = body.ranks_of(epoch);
    if (!known) return remember(known.error());
    *count = static_cast<uint32_t>(known->size());
    std::copy_n(known->begin(), std::min(capacity, *count), ranks);
    return GRADRING_OK;
  });
}

gradring_code gradring_learned_priorities(gradring_comm* comm, gradring_learned_priority* learned,
                                          uint32_t capacity, uint32_t* count) {
  if (count == nullptr) return invalid("count is NULL");
  *count = 0;
  if (learned == nullptr && capacity > 0) return invalid("learned is NULL");
  return on(comm, [&](Communicator& body) {
    const auto all = body.learned_priorities();
    *count = static_cast<uint32_t>(all.size());
    for (uint32_t i = 0; i < std::min(capacity, *count); ++i) {
      learned[i].priority = all[i].priority;
      gradring::client::copy_text(all[i].name, learned[i].name, sizeof learned[i].name);
    }
    return GRADRING_OK;
  });
}

gradring_code gradring_waited_for_input(gradring_comm* comm, uint64_t nanoseconds) {
  return on(comm, [&](Communicator& body) {
    body.waited_for_input(nanoseconds);
    return GRADRING_OK;
  });
}

gradring_code gradring_join_point(gradring_comm* comm, gradring_result* result,
                                  gradring_view* view) {
  if (!usable(result)) return invalid("result.struct_size is not set");
  if (!usable(view)) return invalid("view.struct_size is not set");
  return on(comm, [&](Communicator& body) {
    const auto joined = body.join_point();
    if (!joined) return remember(joined.error());
    const gradring_code code = told(joined->outcome, result);
    if (code == GRADRING_OK) {
      write_view(joined->view, static_cast<uint32_t>(body.rank()), view);
    }
    return code;
  });
}

gradring_code gradring_join(gradring_comm* comm, uint32_t* last_rank, gradring_result* result) {
  if (!usable(result)) return invalid("result.struct_size is not set");
  return on(comm, [&](Communicator& body) {
    const auto joined = body.join_all(Communicator::Others::kStandIn);
    if (!joined) return remember(joined.error());
    if (last_rank != nullptr && joined->outcome.good()) *last_rank = joined->last_rank;
    return told(joined->outcome, result);
  });
}

gradring_code gradring_abandon(gradring_comm* comm, gradring_result* result) {
  if (!usable(result)) return invalid("result.struct_size is not set");
  return on(comm, [&](Communicator& body) {
    const auto all = body.join_all(Communicator::Others::kEnd);
    return all ? told(all->outcome, result) : remember(all.error());
  });
}

const char* gradring_last_error(void) { return gradring::client::last_error(); }
const char* gradring_version(void) { return gradring::kProductVersion; }
