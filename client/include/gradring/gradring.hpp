// gradring for C++17 and later: the C interface of gradring.h with owners instead of handles, types
// instead of numbers, and exceptions instead of codes. Header-only; the exceptions are thrown in
// the program's own code, never through the library.
//
//   gradring::Communicator job;                         // rank, size, job ... from the environment
//   auto gradients = job.allocate<float>(count);
//   auto request = job.start_allreduce(gradients, GRADRING_AVERAGE);
//   ...
//   request.wait();                                     // throws gradring::Error, which says whom
//   to blame
//
// Everything keeps the communicator open that it was made from, so the order of destruction is
// free. Thread safety is that of the C interface for a Communicator; a Buffer or Request belongs to
// one thread at a time.
#ifndef GRADRING_GRADRING_HPP
#define GRADRING_GRADRING_HPP

#if __cplusplus < 201703L
#error "gradring.hpp needs C++17 or later (-std=c++17)"
#endif

#include <gradring/gradring.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace gradring {

// What the inputs of one rank, and the result, are multiplied by (gradring_op). Not 0: who has
// nothing to give submits zeros.
struct Scale {
  double before = 1;  // may differ from rank to rank
  double after = 1;
};

// A call that failed; what() is the library's sentence.
class Error : public std::runtime_error {
 public:
  Error(gradring_code code, const std::string& message) : std::runtime_error(message), code_(code) {
    result_.blamed_rank = -1;
  }
  Error(gradring_code code, const std::string& message, const gradring_result& result)
      : std::runtime_error(message), code_(code), result_(result) {}

  gradring_code code() const { return code_; }
  // Who is to blame, when a request failed; else all zero, and blamed_rank -1.
  const gradring_result& result() const { return result_; }

 private:
  gradring_code code_;
  gradring_result result_{};
};

inline void check(gradring_code code) {
  if (code != GRADRING_OK) throw Error(code, gradring_last_error());
}

namespace detail {

template <class T>
constexpr gradring_dtype deduce_dtype() {
  static_assert(std::is_arithmetic_v<T>,
                "gradring does not know this type: specialize gradring::dtype_of for it");
  static_assert(!std::is_same_v<T, long double>, "gradring has no type for long double");
  static_assert(sizeof(T) <= 8, "gradring has no type of so many bits");
  static_assert(!std::is_floating_point_v<T> || sizeof(T) >= 4,
                "which 16-bit type is this? Specialize gradring::dtype_of for it");
  if (std::is_floating_point_v<T>) return sizeof(T) == 4 ? GRADRING_FLOAT32 : GRADRING_FLOAT64;
  if (std::is_same_v<T, bool>) return GRADRING_BOOL;
  constexpr bool kSigned = std::is_signed_v<T>;
  switch (sizeof(T)) {
    case 1:
      return kSigned ? GRADRING_INT8 : GRADRING_UINT8;
    case 2:
      return kSigned ? GRADRING_INT16 : GRADRING_UINT16;
    case 4:
      return kSigned ? GRADRING_INT32 : GRADRING_UINT32;
    default:
      return kSigned ? GRADRING_INT64 : GRADRING_UINT64;
  }
}

// 0, which is no factor to the C interface, would be taken for 1.
inline double factor(double given) {
  if (given == 0) throw Error(GRADRING_ERR_INVALID, "0 is nothing to scale by: submit zeros");
  return given;
}

// A vector without elements may have no address, and is no number of equal blocks all the same.
inline constexpr uint64_t kNoCounts = 0;

// Whole milliseconds, rounded up and 0 at least; a time that is more than those count is the most.
template <class Rep, class Period>
int64_t to_ms(std::chrono::duration<Rep, Period> time) {
  using std::chrono::milliseconds;
  constexpr auto kMost = milliseconds::max().count();
  if (!(time > time.zero())) return 0;
  if (std::chrono::duration<double, std::milli>(time).count() >= static_cast<double>(kMost)) {
    return kMost;
  }
  return std::chrono::ceil<milliseconds>(time).count();
}

}  // namespace detail

// The number of an element type. Specialize it for a 16-bit floating type of your own:
//   template <> inline constexpr gradring_dtype gradring::dtype_of<Half> = GRADRING_FLOAT16;
template <class T>
inline constexpr gradring_dtype dtype_of = detail::deduce_dtype<T>();

// Shared memory for elements of T, page aligned and zero at first.
template <class T>
class Buffer {
 public:
  static_assert(std::is_trivially_copyable_v<T>, "the daemon copies bytes");

  Buffer() = default;
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    swap(other);
    return *this;
  }
  // Memory that is still lent to a request stays until the communicator closes.
  ~Buffer() {
    if (data_ != nullptr) gradring_free(comm_.get(), data_);
  }

  T* data() { return data_; }
  const T* data() const { return data_; }
  size_t size() const { return size_; }
  T* begin() { return data_; }
  T* end() { return data_ + size_; }
  const T* begin() const { return data_; }
  const T* end() const { return data_ + size_; }
  T& operator[](size_t index) { return data_[index]; }
  const T& operator[](size_t index) const { return data_[index]; }

 private:
  friend class Communicator;
  Buffer(std::shared_ptr<gradring_comm> comm, size_t size) : comm_(std::move(comm)), size_(size) {
    if (size > SIZE_MAX / sizeof(T))
      throw Error(GRADRING_ERR_INVALID, "more than any memory holds");
    void* memory = nullptr;
    check(gradring_alloc(comm_.get(), size * sizeof(T), &memory));
    data_ = static_cast<T*>(memory);
  }
  void swap(Buffer& other) noexcept {
    std::swap(comm_, other.comm_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
  }

  std::shared_ptr<gradring_comm> comm_;
  T* data_ = nullptr;
  size_t size_ = 0;
};

// Memory of an NVIDIA GPU for elements of T, with anything in it, which daemons open where it is
// (gradring_gpu_alloc). Of no communicator; what ops under way name outlasts it until they have
// ended.
template <class T>
class GpuBuffer {
 public:
  static_assert(std::is_trivially_copyable_v<T>, "GPUs and the daemon copy bytes");

  GpuBuffer() = default;
  // On the GPU of this number of CUDA's.
  GpuBuffer(size_t size, int device) : size_(size) {
    if (size > SIZE_MAX / sizeof(T))
      throw Error(GRADRING_ERR_INVALID, "more than any memory holds");
    void* memory = nullptr;
    check(gradring_gpu_alloc(size * sizeof(T), device, &memory));
    data_ = static_cast<T*>(memory);
  }
  GpuBuffer(GpuBuffer&& other) noexcept { swap(other); }
  GpuBuffer& operator=(GpuBuffer&& other) noexcept {
    GpuBuffer(std::move(other)).swap(*this);
    return *this;
  }
  ~GpuBuffer() { gradring_gpu_free(data_); }

  // For the GPU, and for ops: the host cannot read it.
  T* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  void swap(GpuBuffer& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
  }

  T* data_ = nullptr;
  size_t size_ = 0;
};

// An op under way. Its buffers are lent to the daemon until it is done; so a request that is
// dropped without wait is waited for first.
class Request {
 public:
  Request() = default;
  Request(Request&& other) noexcept { swap(other); }
  Request& operator=(Request&& other) noexcept {
    Request(std::move(other)).swap(*this);
    return *this;
  }
  ~Request() {
    if (pending()) gradring_wait(comm_.get(), number_, -1, nullptr);
  }

  bool pending() const { return number_ != 0; }

  // Throws Error if the op failed.
  gradring_result wait() {
    gradring_result result{};
    wait_ms(-1, &result);
    return result;
  }
  // False if the time is over first; then wait again.
  template <class Rep, class Period>
  bool wait_for(std::chrono::duration<Rep, Period> time, gradring_result* result = nullptr) {
    return wait_ms(detail::to_ms(time), result);
  }
  bool test(gradring_result* result = nullptr) { return wait_ms(0, result); }
  // What it waits for; see gradring_progress.
  gradring_progress progress() const {
    expect_pending();
    gradring_progress known{};
    known.struct_size = sizeof(known);
    check(gradring_get_progress(comm_.get(), number_, &known));
    return known;
  }
  // A CUDA stream waits for it, and has the result then; see gradring_wait_on_stream.
  void wait_on_stream(void* stream) {
    expect_pending();
    check(gradring_wait_on_stream(comm_.get(), number_, stream, -1));
  }

 private:
  friend class Communicator;
  Request(std::shared_ptr<gradring_comm> comm, const gradring_op& op) : comm_(std::move(comm)) {
    check(gradring_submit(comm_.get(), &op, &number_));
  }
  Request(std::shared_ptr<gradring_comm> comm, gradring_request number)
      : comm_(std::move(comm)), number_(number) {}
  void swap(Request& other) noexcept {
    std::swap(comm_, other.comm_);
    std::swap(number_, other.number_);
  }
  void expect_pending() const {
    if (!pending()) throw Error(GRADRING_ERR_NOT_FOUND, "this request has been waited for");
  }
  bool wait_ms(int64_t ms, gradring_result* to) {
    expect_pending();
    gradring_result result{};
    result.struct_size = sizeof(result);
    const gradring_code code = gradring_wait(comm_.get(), number_, ms, &result);
    if (code == GRADRING_ERR_DEADLINE) return false;
    number_ = 0;
    if (code == GRADRING_ERR_FAILED) throw Error(code, gradring_last_error(), result);
    check(code);
    if (to != nullptr) *to = result;
    return true;
  }

  std::shared_ptr<gradring_comm> comm_;
  gradring_request number_ = 0;
};

// How many elements the blocks of an op have: all the same number, or each its own, as
// gradring_op.counts says. Borrows the numbers until the op is submitted.
struct BlockCounts {
  // NOLINTBEGIN(google-explicit-constructor): so that one number can stay one number
  BlockCounts(size_t count) : each(count) {}
  BlockCounts(const std::vector<uint64_t>& all)
      : counts(all.empty() ? &detail::kNoCounts : all.data()), length(all.size()) {}
  // NOLINTEND(google-explicit-constructor)
  uint64_t each = 0;
  const uint64_t* counts = nullptr;
  uint64_t length = 0;
};

// Who is in the job; see gradring_view.
struct View {
  uint64_t epoch = 0;
  uint64_t grew = 0;  // the epoch in which ranks came in last
  int size = 0;
  int rank = 0;
  int position = 0;  // of this rank among `ranks`
  unsigned oldest = 0;
  std::vector<uint32_t> ranks;  // ascending
  std::string explanation;
};

// What an op of this name gets that names no priority itself (gradring_learned_priorities).
struct LearnedPriority {
  std::string name;
  int priority = 0;
};

// A rank's place in its job; leaves the job when the last copy and everything made from it is gone.
class Communicator {
 public:
  // As the environment says (gradring_options_init).
  Communicator() {
    gradring_options options;
    gradring_options_init(&options);
    open(options);
  }
  explicit Communicator(const gradring_options& options) { open(options); }

  // Of some of the ranks, which all call it with the same list (gradring_group_timed).
  Communicator group(const std::vector<uint32_t>& ranks, int64_t timeout_ms = -1) const {
    gradring_comm* made = nullptr;
    check(gradring_group_timed(comm_.get(), ranks.data(), static_cast<uint32_t>(ranks.size()),
                               timeout_ms, &made));
    return Communicator(std::shared_ptr<gradring_comm>(made, gradring_close));
  }

  // Now, whatever is under way, which ends by an Error (gradring_leave).
  void leave() const { check(gradring_leave(comm_.get())); }
  // The same as one that has failed, which the other ranks are told (gradring_abort).
  void abort(const std::string& why) const { check(gradring_abort(comm_.get(), why.c_str())); }

  // Why nothing goes any more, and who is to blame (gradring_failure).
  std::optional<gradring_result> failure() const {
    gradring_result result{};
    result.struct_size = sizeof(result);
    const gradring_code code = gradring_failure(comm_.get(), &result);
    if (code == GRADRING_ERR_FAILED) return result;
    check(code);
    return std::nullopt;
  }

  int rank() const { return gradring_rank(comm_.get()); }
  int size() const { return gradring_size(comm_.get()); }
  int local_rank() const { return gradring_local_rank(comm_.get()); }
  int local_size() const { return gradring_local_size(comm_.get()); }
  uint64_t epoch() const { return gradring_epoch(comm_.get()); }
  std::string node() const { return gradring_node(comm_.get()); }
  // For what this header has no words for; not to be closed.
  gradring_comm* handle() const { return comm_.get(); }

  template <class T>
  Buffer<T> allocate(size_t count) const {
    return Buffer<T>(comm_, count);
  }

  // Hands over and returns at once. Memory is that of a Buffer, or was given to gradring_register.
  // `name`, where ranks do not submit in the same order, must be the same on all ranks.
  template <class T>
  Request start_allreduce(const T* input, T* output, size_t count,
                          gradring_reduce_op op = GRADRING_SUM, const char* name = nullptr,
                          gradring_wire wire = GRADRING_WIRE_DEFAULT, Scale scale = {}) const {
    gradring_op full = op_on(GRADRING_ALLREDUCE, input, output, count, dtype_of<T>, name);
    full.op = op;
    full.wire = wire;
    full.prescale = detail::factor(scale.before);
    full.postscale = detail::factor(scale.after);
    return Request(comm_, full);
  }
  template <class T>
  Request start_allreduce(Buffer<T>& buffer, gradring_reduce_op op = GRADRING_SUM,
                          const char* name = nullptr, gradring_wire wire = GRADRING_WIRE_DEFAULT,
                          Scale scale = {}) const {
    return start_allreduce(buffer.data(), buffer.data(), buffer.size(), op, name, wire, scale);
  }
  template <class T>
  Request start_broadcast(T* buffer, size_t count, unsigned root,
                          const char* name = nullptr) const {
    gradring_op full = op_on(GRADRING_BROADCAST, buffer, buffer, count, dtype_of<T>, name);
    full.root = root;
    return Request(comm_, full);
  }
  template <class T>
  Request start_broadcast(Buffer<T>& buffer, unsigned root, const char* name = nullptr) const {
    return start_broadcast(buffer.data(), buffer.size(), root, name);
  }
  Request start_barrier(const char* name = nullptr) const {
    return Request(comm_, op_on(GRADRING_BARRIER, nullptr, nullptr, 0, gradring_dtype{}, name));
  }

  // Into the root's output; the others' may be null.
  template <class T>
  Request start_reduce(const T* input, T* output, size_t count, unsigned root,
                       gradring_reduce_op op = GRADRING_SUM, const char* name = nullptr,
                       gradring_wire wire = GRADRING_WIRE_DEFAULT, Scale scale = {}) const {
    gradring_op full = op_on(GRADRING_REDUCE, input, output, count, dtype_of<T>, name);
    full.op = op;
    full.wire = wire;
    full.prescale = detail::factor(scale.before);
    full.postscale = detail::factor(scale.after);
    full.root = root;
    return Request(comm_, full);
  }
  // The block of each rank, into an output with room for those of all.
  template <class T>
  Request start_allgather(const T* input, T* output, BlockCounts blocks,
                          const char* name = nullptr) const {
    return Request(comm_, op_in(GRADRING_ALLGATHER, input, output, blocks, dtype_of<T>, name));
  }
  // An input of a block for each rank; the sum over the ranks of this one's.
  template <class T>
  Request start_reduce_scatter(const T* input, T* output, BlockCounts blocks,
                               gradring_reduce_op op = GRADRING_SUM, const char* name = nullptr,
                               gradring_wire wire = GRADRING_WIRE_DEFAULT, Scale scale = {}) const {
    gradring_op full = op_in(GRADRING_REDUCE_SCATTER, input, output, blocks, dtype_of<T>, name);
    full.op = op;
    full.wire = wire;
    full.prescale = detail::factor(scale.before);
    full.postscale = detail::factor(scale.after);
    return Request(comm_, full);
  }
  // The block of each rank, to the root alone.
  template <class T>
  Request start_gather(const T* input, T* output, BlockCounts blocks, unsigned root,
                       const char* name = nullptr) const {
    gradring_op full = op_in(GRADRING_GATHER, input, output, blocks, dtype_of<T>, name);
    full.root = root;
    return Request(comm_, full);
  }
  // A block for each rank, from the root alone.
  template <class T>
  Request start_scatter(const T* input, T* output, BlockCounts blocks, unsigned root,
                        const char* name = nullptr) const {
    gradring_op full = op_in(GRADRING_SCATTER, input, output, blocks, dtype_of<T>, name);
    full.root = root;
    return Request(comm_, full);
  }
  // A block from each rank to each rank.
  template <class T>
  Request start_alltoall(const T* input, T* output, BlockCounts blocks,
                         const char* name = nullptr) const {
    return Request(comm_, op_in(GRADRING_ALLTOALL, input, output, blocks, dtype_of<T>, name));
  }

  // To one other rank, or from it.
  template <class T>
  Request start_send(const T* buffer, size_t count, unsigned to, const char* name = nullptr) const {
    gradring_op full = op_on(GRADRING_SEND, buffer, nullptr, count, dtype_of<T>, name);
    full.root = to;
    return Request(comm_, full);
  }
  template <class T>
  Request start_recv(T* buffer, size_t count, unsigned from, const char* name = nullptr) const {
    gradring_op full = op_on(GRADRING_RECV, nullptr, buffer, count, dtype_of<T>, name);
    full.root = from;
    return Request(comm_, full);
  }

  // With all there is to say: counts, a priority, ...
  Request start(const gradring_op& op) const { return Request(comm_, op); }
  // All of these, or none where one is refused (gradring_submit_all).
  std::vector<Request> start_all(const std::vector<gradring_op>& ops) const {
    std::vector<gradring_request> numbers(ops.size());
    check(gradring_submit_all(comm_.get(), ops.data(), static_cast<uint32_t>(ops.size()),
                              numbers.data()));
    std::vector<Request> requests;
    for (const gradring_request number : numbers) requests.push_back(Request(comm_, number));
    return requests;
  }

  // The same, waited for.
  template <class... Arguments>
  gradring_result allreduce(Arguments&&... arguments) const {
    return start_allreduce(std::forward<Arguments>(arguments)...).wait();
  }
  template <class... Arguments>
  gradring_result broadcast(Arguments&&... arguments) const {
    return start_broadcast(std::forward<Arguments>(arguments)...).wait();
  }
  gradring_result barrier(const char* name = nullptr) const { return start_barrier(name).wait(); }
  template <class... Arguments>
  gradring_result reduce(Arguments&&... arguments) const {
    return start_reduce(std::forward<Arguments>(arguments)...).wait();
  }
  template <class... Arguments>
  gradring_result allgather(Arguments&&... arguments) const {
    return start_allgather(std::forward<Arguments>(arguments)...).wait();
  }
  template <class... Arguments>
  gradring_result reduce_scatter(Arguments&&... arguments) const {
    return start_reduce_scatter(std::forward<Arguments>(arguments)...).wait();
  }
  template <class... Arguments>
  gradring_result gather(Arguments&&... arguments) const {
    return start_gather(std::forward<Arguments>(arguments)...).wait();
  }
  template <class... Arguments>
  gradring_result scatter(Arguments&&... arguments) const {
    return start_scatter(std::forward<Arguments>(arguments)...).wait();
  }
  template <class... Arguments>
  gradring_result alltoall(Arguments&&... arguments) const {
    return start_alltoall(std::forward<Arguments>(arguments)...).wait();
  }

  template <class... Arguments>
  gradring_result send(Arguments&&... arguments) const {
    return start_send(std::forward<Arguments>(arguments)...).wait();
  }
  template <class... Arguments>
  gradring_result recv(Arguments&&... arguments) const {
    return start_recv(std::forward<Arguments>(arguments)...).wait();
  }

  // The newest view that this rank was told.
  View view() const {
    gradring_view view{};
    view.struct_size = sizeof(view);
    check(gradring_get_view(comm_.get(), &view));
    return with_ranks(view);
  }
  // The most urgent one first; empty while nothing has been learned, or is to be.
  std::vector<LearnedPriority> learned_priorities() const {
    std::vector<gradring_learned_priority> told;
    uint32_t count = 0;
    do {
      told.resize(count);
      check(gradring_learned_priorities(comm_.get(), told.data(), count, &count));
    } while (count > told.size());
    std::vector<LearnedPriority> learned;
    for (uint32_t i = 0; i < count; ++i) learned.push_back({told[i].name, told[i].priority});
    return learned;
  }
  // That this rank has waited for its next batch.
  void waited_for_input(std::chrono::nanoseconds time) const {
    check(gradring_waited_for_input(comm_.get(), static_cast<uint64_t>(time.count())));
  }
  // Waits for all ranks, and for those that come in; the view is the same for all of them. Throws
  // Error if the op failed, or if another op of this communicator is under way.
  View join_point(gradring_result* to = nullptr) const {
    gradring_result result{};
    result.struct_size = sizeof(result);
    gradring_view view{};
    view.struct_size = sizeof(view);
    const gradring_code code = gradring_join_point(comm_.get(), &result, &view);
    if (code == GRADRING_ERR_FAILED) throw Error(code, gradring_last_error(), result);
    check(code);
    if (to != nullptr) *to = result;
    return with_ranks(view);
  }
  // This rank has no more data: takes part in the ops of the others with values that change nothing
  // until all ranks have joined. Returns the rank that was last. Throws Error if the job failed.
  uint32_t join() const {
    gradring_result result{};
    result.struct_size = sizeof(result);
    uint32_t last = 0;
    const gradring_code code = gradring_join(comm_.get(), &last, &result);
    if (code == GRADRING_ERR_FAILED) throw Error(code, gradring_last_error(), result);
    check(code);
    return last;
  }
  // This rank goes back to an earlier step: what the others have begun without it fails, and all
  // call this then. Throws Error if the job failed.
  void abandon() const {
    gradring_result result{};
    result.struct_size = sizeof(result);
    const gradring_code code = gradring_abandon(comm_.get(), &result);
    if (code == GRADRING_ERR_FAILED) throw Error(code, gradring_last_error(), result);
    check(code);
  }

 private:
  explicit Communicator(std::shared_ptr<gradring_comm> comm) : comm_(std::move(comm)) {}

  View with_ranks(const gradring_view& from) const {
    View view;
    view.epoch = from.epoch;
    view.grew = from.grew;
    view.size = static_cast<int>(from.size);
    view.rank = static_cast<int>(from.rank);
    view.position = static_cast<int>(from.position);
    view.oldest = from.oldest;
    view.explanation = from.explanation;
    view.ranks.resize(from.size);
    uint32_t count = 0;
    check(gradring_view_ranks(comm_.get(), from.epoch, view.ranks.data(), from.size, &count));
    return view;
  }
  void open(const gradring_options& options) {
    gradring_comm* comm = nullptr;
    check(gradring_open(&options, &comm));
    comm_.reset(comm, gradring_close);
  }
  static gradring_op op_on(gradring_collective collective, const void* input, void* output,
                           size_t count, gradring_dtype dtype, const char* name) {
    gradring_op op{};
    op.struct_size = sizeof(op);
    op.collective = collective;
    op.dtype = dtype;
    op.count = count;
    op.input = input;
    op.output = output;
    op.name = name;
    return op;
  }
  static gradring_op op_in(gradring_collective collective, const void* input, void* output,
                           const BlockCounts& blocks, gradring_dtype dtype, const char* name) {
    gradring_op op = op_on(collective, input, output, blocks.each, dtype, name);
    op.counts = blocks.counts;
    op.counts_length = blocks.length;
    return op;
  }

  std::shared_ptr<gradring_comm> comm_;
};

}  // namespace gradring

#endif
