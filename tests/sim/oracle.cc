#include "tests/sim/oracle.h"

#include <cstring>
#include <set>

namespace gradring::sim {
namespace {

std::string name_of(const OpId& id) {
  return "op " + std::to_string(id.op) + " of step " + std::to_string(id.step);
}

}  // namespace

void Oracle::note_view(const core::View& view) {
  const auto [known, fresh] = views_.emplace(std::pair(view.incarnation, view.epoch), view);
  if (!fresh && known->second != view) {
    violation_("P1: two views of " + view.job + " in epoch " + std::to_string(view.epoch) + ": " +
               known->second.explanation + " | " + view.explanation);
  }
}

void Oracle::note_asked(const core::change::Accept& m) {
  const auto of = std::tuple(m.incarnation, m.epoch, m.ballot);
  const auto [known, fresh] = asked_.emplace(of, m.proposal);
  if (!fresh && known->second != m.proposal) {
    violation_("P1: two proposals of ballot " + std::to_string(m.ballot.round) + " of " +
               m.ballot.node + " in epoch " + std::to_string(m.epoch) + ": " +
               known->second.view.explanation + " | " + m.proposal.view.explanation);
  }
}

const core::View* Oracle::last_view(const JobId& job) const {
  const core::View* last = nullptr;
  for (const auto& [key, view] : views_) {
    if (key.first == job) last = &view;
  }
  return last;
}

void Oracle::note_final(const SlicePlace& place, const Signature& s, core::ValueId value_id,
                        const Value& value, const std::function<Input(uint32_t)>& input) {
  const OpId& id = place.outputs.op;
  const size_t length = place.length;
  std::vector<std::byte>& bytes =
      finals_[std::tuple(place.outputs, place.output_at, value_id.epoch)];
  if (!bytes.empty()) {
    if (std::memcmp(bytes.data(), value.bytes.data(), length) != 0) {
      violation_("P2: two values of a slice of " + name_of(id) + " in epoch " +
                 std::to_string(value_id.epoch));
    }
    return;
  }
  bytes.assign(value.bytes.begin(), value.bytes.begin() + static_cast<std::ptrdiff_t>(length));
  std::set<uint32_t> seen;
  struct Sum {
    std::vector<std::byte> bytes;
    bool begun = false;
  };
  std::vector<Sum> sums = {{std::vector<std::byte>(length)}};
  for (size_t pass = 0; pass < value.passes.size(); ++pass) {
    const std::vector<uint32_t>& ranks = value.passes[pass];
    if (ranks == begin_apart()) {
      sums.push_back({std::vector<std::byte>(length)});
      continue;
    }
    Sum added;  // outlives the fold that takes it in
    std::vector<Input> inputs;
    if (ranks == now_added()) {
      added = std::move(sums.back());
      sums.pop_back();
      inputs.push_back({added.bytes.data()});
    }
    for (const uint32_t rank : ranks) {
      if (!seen.insert(rank).second) {
        violation_("P3: rank " + std::to_string(rank) + " counts twice in " + name_of(id));
      }
      const auto odd = odd_ones_.find(id);
      if (odd != odd_ones_.end() && odd->second == rank && value.passes.size() > 1) {
        violation_("an op with two signatures was summed up: " + name_of(id));
      }
      inputs.push_back(input(rank));
      inputs.back().at += place.input_at;
    }
    std::byte* const expected = sums.back().bytes.data();
    const bool last = pass + 1 == value.passes.size();
    const bool divide = s.op == ReduceOp::kAverage && last;
    if (!reduces(s.collective)) {
      std::memcpy(expected, inputs[0].at, length);
    } else {
      const Ending ending{divide ? static_cast<uint32_t>(seen.size()) : 0, last ? s.postscale : 1};
      fold(s.dtype, s.op, !sums.back().begun, inputs, length / size_of(s.dtype), ending, expected);
    }
    if (place.wire != WireType::kNative) {
      const size_t count = length / sizeof(float);
      std::vector<std::byte> packed(packed_bytes(place.wire, count));
      pack(place.wire, expected, count, packed.data());
      unpack(place.wire, packed.data(), count, expected);
    }
    sums.back().begun = true;
  }
  if (value_id.ranks != seen.size()) {
    violation_("P3: a slice of " + name_of(id) + " says " + std::to_string(value_id.ranks) +
               " contributions and has " + std::to_string(seen.size()));
  }
  if (sums.front().bytes != bytes) {
    violation_("P3: wrong bits in a slice of " + name_of(id) + " of epoch " +
               std::to_string(value_id.epoch));
  }
}

// An op that began anew may be cut otherwise, so that finals of several lengths begin at one place;
// and part of a longer one may look like a shorter one.
std::string Oracle::fault_of_output(const OutputId& id, uint64_t bytes,
                                    const std::byte* output) const {
  std::set<uint64_t> ends{0};
  uint64_t at = 0;
  while (!ends.empty()) {
    at = *ends.begin();
    if (at >= bytes) return "";  // a mismatched op that went through alone has one element more
    ends.erase(ends.begin());
    for (auto it = finals_.lower_bound(std::tuple(id, at, uint64_t{0}));
         it != finals_.end() && std::get<0>(it->first) == id && std::get<1>(it->first) == at;
         ++it) {
      const std::vector<std::byte>& value = it->second;
      if (std::memcmp(output + at, value.data(), value.size()) == 0) ends.insert(at + value.size());
    }
  }
  return "P3: the output of " + name_of(id.op) + " at byte " + std::to_string(at) +
         " is no final value";
}

void Oracle::note_end(const OpId& id, uint32_t rank, int64_t pid, const core::Outcome& outcome,
                      std::vector<std::byte> result) {
  const bool fresh =
      ends_[id].emplace(std::pair(rank, pid), End{outcome, std::move(result)}).second;
  if (!fresh) violation_("an op of rank " + std::to_string(rank) + " ended twice: " + name_of(id));
}

void Oracle::check_agreement(const Stayed& stayed) {
  for (const auto& [id, ends] : ends_) {
    const End* first = nullptr;
    uint32_t first_rank = 0;
    for (const bool stays : {true, false}) {
      for (const auto& [who, end] : ends) {
        const auto [rank, pid] = who;
        const bool counts = stays || (stable_ && end.outcome.verdict != Verdict::kFailed);
        if (stayed(id.job, rank, pid) != stays || !counts) continue;
        if (first == nullptr) {
          first = &end;
          first_rank = rank;
          continue;
        }
        compare(id, first_rank, *first, rank, end);
      }
    }
  }
}

void Oracle::compare(const OpId& id, uint32_t rank, const End& end, uint32_t other,
                     const End& otherwise) {
  const auto differ = [&](const std::string& what) {
    violation_("P2: ranks " + std::to_string(rank) + " and " + std::to_string(other) +
               " differ in " + what + " of " + name_of(id));
  };
  const core::Outcome& a = end.outcome;
  const core::Outcome& b = otherwise.outcome;
  if (a.verdict != b.verdict) {
    return differ("the verdict (" + std::string(gradring::name_of(a.verdict)) + " " +
                  describe(a.failure) + " and " + std::string(gradring::name_of(b.verdict)) + " " +
                  describe(b.failure) + ")");
  }
  if (a.verdict == Verdict::kFailed) return;
  if (end.result != otherwise.result) differ("the bits");
  if (a.ranks_min != b.ranks_min || a.ranks_max != b.ranks_max) differ("the contributions");
}

}  // namespace gradring::sim
