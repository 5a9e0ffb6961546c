#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>
#include <vector>

#include "client/src/gpu/gpu_block.h"
#include "client/src/gpu/gpu_memory.h"
#include "client/src/memory/mapping.h"
#include "proto/status.h"

namespace gradring::client {

// What a request gives of a segment, from this offset on. `summed`: the daemon may have a sum lie
// there, in the host's memory, so that it is the input of nothing else meanwhile.
struct Given {
  uint64_t offset = 0;
  uint64_t bytes = 0;
  bool summed = false;

  bool operator==(const Given&) const = default;
  bool spoils(const Given& other) const {
    return (summed || other.summed) && offset < other.offset + other.bytes &&
           other.offset < offset + bytes;
  }
};

// Memory of the user that ops may name: a segment itself (gradring_alloc), or other memory with a
// segment that follows it like a shadow (gradring_register).
struct Segment {
  uint64_t id = 0;  // the daemon's
  std::byte* base = nullptr;
  uint64_t bytes = 0;                      // as asked for; the mapping has whole pages
  uint64_t lead = 0;                       // of the mapping, before what stands for `base`
  std::shared_ptr<const Mapping> mapping;  // with the communicators that borrow it
  // Of a stage that is opened: what stands on the GPU for the user's memory. It goes after `gpu`,
  // which waits for what streams have to do with either.
  std::shared_ptr<const GpuBlock> block = {};
  // With those who borrow it, too. Null: what `base` points to is the host's.
  std::shared_ptr<const GpuMemory> gpu = {};
  // Not 0: another communicator's (Commons), lent to the session of this one.
  uint64_t borrowed = 0;
  uint64_t lent = 0;  // loans of requests that are not waited for yet
  // Those of the communicators that borrow it; one count for all of them and the owner.
  std::shared_ptr<std::atomic<uint64_t>> lent_by_borrowers = {};
  std::vector<Given> given = {};  // by these, where a sum can lie in it at all
  bool staged = false;  // stands in for memory that nobody registered (Stages), another each time
  bool opened = false;  // of a GPU, and the daemon can reach it there

  bool registered() const { return base != mapping->data(); }
  bool in_place() const { return opened && block == nullptr; }
  bool may_give(const Given& more) const {
    return std::none_of(given.begin(), given.end(),
                        [&more](const Given& other) { return other.spoils(more); });
  }
};

// Where a range of the user's memory lies.
struct Place {
  Segment* segment = nullptr;
  uint64_t offset = 0;
};

// How an op's bytes pass between the user's memory and the daemon: by the segment on the host, or
// on the GPU, as a whole; registered memory is in its place there already.
struct Passage {
  uint64_t bytes = 0;
  uint64_t part_bytes = 0;
  bool on_gpu = false;
  bool in_order = false;  // behind what is delivered out of a shadow of the op's other buffer
};

// What a request holds on to: the segment counts as lent as long as this lives. Moves, does not
// copy. Made and destroyed under the communicator's mutex.
class Loan {
 public:
  Loan() = default;
  explicit Loan(const Place& place) : place_(place) {
    ++place_.segment->lent;
    if (place_.segment->borrowed != 0) ++*place_.segment->lent_by_borrowers;
  }
  // In other memory than a GPU's no sum can lie: a list of what is given of that would only be long
  // where many ops are under way, and each submission would look through all of it.
  Loan(const Place& place, const Given& given) : Loan(place) {
    if (!place_.segment->in_place()) return;
    place_.segment->given.push_back(given);
    given_ = given;
  }
  Loan(Loan&& other) noexcept
      : place_(std::exchange(other.place_, {})), given_(std::exchange(other.given_, {})) {}
  Loan& operator=(Loan&& other) noexcept {
    std::swap(place_, other.place_);
    std::swap(given_, other.given_);
    return *this;
  }
  ~Loan() {
    if (place_.segment == nullptr) return;
    --place_.segment->lent;
    if (place_.segment->borrowed != 0) --*place_.segment->lent_by_borrowers;
    std::vector<Given>& all = place_.segment->given;
    if (given_) all.erase(std::find(all.begin(), all.end(), *given_));
  }

  bool any() const { return place_.segment != nullptr; }
  bool registered() const { return any() && place_.segment->registered(); }
  uint64_t segment_id() const { return place_.segment->id; }
  uint64_t offset() const { return place_.segment->lead + place_.offset; }  // in the segment
  bool of_a_gpu() const { return any() && place_.segment->gpu != nullptr; }
  bool opened() const { return any() && place_.segment->opened; }
  // Opened where it is: no block stands for it.
  bool in_place() const { return any() && place_.segment->in_place(); }

  // Of a GPU's memory, and one that is none where its streams cannot be put into an order.
  HeldWord take_word(uint32_t parts, StreamWords::By by) const {
    return place_.segment->gpu->take_word(parts, by);
  }
  // When the stream has come there, that passes to the daemon, part after part, and the word tells.
  // It comes behind what was begun to be copied into the stages of `input` and `output`, and out of
  // them, for others: of an op that was refused, or has failed, it may not be done.
  static tl::expected<bool, Status> begin(const Loan& input, const Loan& output,
                                          const Passage& passage, void* stream,
                                          const StreamWord& reached);
  // What a delivery by a stream needs, for longer than the loan lasts.
  struct Delivery {
    std::shared_ptr<const GpuMemory> gpu;
    GpuMemory::Copy copy;
  };
  Delivery delivery(const Passage& passage) const { return {place_.segment->gpu, copy(passage)}; }
  // The same once more: the request may be taken and its loan end, while somebody still needs it.
  Loan again() const { return Loan(place_); }

  // Between registered memory and its shadow. Lent memory cannot be freed, so these need no lock.
  // What comes from a GPU comes behind what was put on `stream` until now.
  Status fetch(uint64_t bytes, void* stream) const;
  Status deliver(const Passage& passage) const;
  // Nothing that was put on `stream` until now uses it any more.
  Status reach(void* stream) const;

 private:
  std::byte* users() const { return place_.segment->base + place_.offset; }
  std::byte* shared() const { return place_.segment->mapping->data() + offset(); }
  GpuMemory::Copy copy(const Passage& passage) const;

  Place place_;
  std::optional<Given> given_;
};

// The segments of a communicator, by address. Not thread-safe. A Segment stays where it is until it
// is taken out, which the owner does not do while it is lent.
class Segments {
 public:
  // NOT_FOUND in words unless [start, start + bytes) lies within one segment. `what` names the
  // range.
  tl::expected<Place, Status> find(const void* start, uint64_t bytes, std::string_view what);

  // The segment in which this lies, or null.
  Segment* around(const void* start);

  // Whether [start, start + bytes) touches any segment.
  bool touches(const void* start, uint64_t bytes) const;

  // The segment that begins exactly here, or null.
  Segment* at(const void* start);

  // Of ours, that the daemon has open on a GPU.
  std::vector<uint64_t> ids_of_those_opened() const;

  // Any that satisfies, or null.
  Segment* any(const std::function<bool(const Segment&)>& wanted);

  Segment& insert(Segment segment);
  Segment take(Segment& segment);
  void clear() { by_base_.clear(); }

 private:
  std::map<const std::byte*, Segment, std::less<>> by_base_;
};

}  // namespace gradring::client
