#pragma once

// Ops whose data goes with READY (rule D10): who is done with which of them, and the memory that
// the data lies in.

#include <bit>
#include <cstdint>
#include <deque>
#include <vector>

#include "proto/check.h"
#include "proto/frame.h"

namespace gradring::core {

// So many ops of one member may be under way with their data before all others are done with the
// first of them. Bounds the memory that the others need for them.
inline constexpr uint32_t kEagerWindow = 32;
// So many ops may be on their way up the tree of a large job: more would not be over any sooner.
inline constexpr uint32_t kRisingMost = 16;
// Members are counted in one word.
inline constexpr uint32_t kEagerMembersMax = 64;

// The receiver's side, for one member: which of its ops have come, and which of those we are done
// with.
class EagerReceived {
 public:
  enum class Serial : uint8_t { kNew, kKnown, kTooFar };
  // A READY with this serial arrives.
  Serial begin(uint64_t serial) {
    if (serial <= done_.upto) return Serial::kKnown;
    if (serial > done_.upto + kEagerWindow) return Serial::kTooFar;
    const uint64_t bit = bit_of(serial);
    if ((begun_ & bit) != 0) return Serial::kKnown;
    begun_ |= bit;
    return Serial::kNew;
  }
  void end(uint64_t serial) {
    GRADRING_CHECK(serial > done_.upto && (begun_ & ~done_.beyond & bit_of(serial)) != 0,
                   "an eager op ends once");
    done_.beyond |= bit_of(serial);
    ++untold_;
    const auto run = static_cast<uint32_t>(std::countr_one(done_.beyond));
    done_.upto += run;
    done_.beyond = shifted(done_.beyond, run);
    begun_ = shifted(begun_, run);
  }
  // For the member to know.
  DoneBody tell() {
    untold_ = 0;
    return done_;
  }
  uint32_t untold() const { return untold_; }

 private:
  static uint64_t shifted(uint64_t bits, uint32_t by) { return by < 64 ? bits >> by : 0; }
  uint64_t bit_of(uint64_t serial) const { return uint64_t{1} << (serial - done_.upto - 1); }

  DoneBody done_;
  uint64_t begun_ = 0;  // bits as in done_.beyond, which is among them
  uint32_t untold_ = 0;
};

// The sender's side: its ops that somebody is not done with.
class EagerSent {
 public:
  void begin_epoch(uint32_t members, uint32_t me) {
    entries_.clear();
    first_ = 1;
    others_ = members > kEagerMembersMax ? 0 : ~uint64_t{0} >> (64 - members);
    others_ &= ~(uint64_t{1} << (me % kEagerMembersMax));
  }
  bool room() const { return entries_.size() < kEagerWindow; }
  // The serial of one more.
  uint64_t add(const OpKey& key) {
    GRADRING_CHECK(room() && others_ != 0, "an eager op has a place in the window");
    entries_.push_back({key, others_});
    return first_ + entries_.size() - 1;
  }
  // Appends the ops with which all others are done now. False: the member is done with what was
  // never sent.
  bool on_done(uint32_t member, const DoneBody& done, std::vector<OpKey>* everywhere) {
    const uint64_t last = first_ + entries_.size() - 1;
    const auto most = static_cast<uint64_t>(std::bit_width(done.beyond));
    if (done.upto > last || done.upto + most > last) return false;
    for (uint64_t serial = first_; serial <= last; ++serial) {
      const uint64_t ahead = serial - done.upto - 1;
      const bool is = serial <= done.upto || (ahead < 64 && (done.beyond >> ahead & 1) != 0);
      uint64_t& waits_for = entries_[serial - first_].waits_for;
      const uint64_t bit = uint64_t{1} << member;
      if (!is || (waits_for & bit) == 0) continue;
      waits_for &= ~bit;
      if (waits_for == 0) everywhere->push_back(entries_[serial - first_].key);
    }
    while (!entries_.empty() && entries_.front().waits_for == 0) {
      entries_.pop_front();
      ++first_;
    }
    return true;
  }

 private:
  struct Entry {
    OpKey key;
    uint64_t waits_for = 0;  // a bit for each member
  };
  std::deque<Entry> entries_;
  uint64_t first_ = 1;  // serial of the front
  uint64_t others_ = 0;
};

// Pieces of memory for data that goes straight to where it is wanted, in and out; no more than the
// windows allow. A piece is free when nobody holds it and the transport has it neither to send nor
// to fill.
class EagerUnits {
 public:
  // What is landing there, or has landed.
  struct Parcel {
    uint32_t from = 0;
    Frame frame;
    bool stale = false;  // its epoch ended meanwhile
  };

  uint32_t take() {
    if (free_.empty()) {
      free_.push_back(static_cast<uint32_t>(units_.size()));
      units_.emplace_back();
    }
    const uint32_t unit = free_.back();
    free_.pop_back();
    units_[unit] = {};
    units_[unit].holds = 1;
    return unit;
  }
  void hold(uint32_t unit) { ++units_[unit].holds; }
  void release(uint32_t unit) {
    GRADRING_CHECK(units_[unit].holds > 0, "a piece of eager memory is let go of once");
    if (--units_[unit].holds == 0) free_.push_back(unit);
  }
  Parcel& parcel(uint32_t unit) { return units_[unit].parcel; }
  const Parcel& parcel(uint32_t unit) const { return units_[unit].parcel; }
  bool all_free() const { return free_.size() == units_.size(); }
  uint32_t count() const { return static_cast<uint32_t>(units_.size()); }

 private:
  struct Unit {
    uint32_t holds = 0;  // of the op, and of each send or landing under way
    Parcel parcel;
  };
  std::vector<Unit> units_;
  std::vector<uint32_t> free_;
};

}  // namespace gradring::core
