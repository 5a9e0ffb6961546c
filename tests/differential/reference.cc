#include "tests/differential/reference.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>

namespace gradring::differential {
namespace {

// Smaller ops travel as they are.
constexpr uint64_t kPackedBytesMin = 256 << 10;

std::string in_hex(const std::byte* element, size_t size) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text = "0x";
  for (size_t i = size; i-- > 0;) {
    text += kDigits[static_cast<uint8_t>(element[i]) >> 4];
    text += kDigits[static_cast<uint8_t>(element[i]) & 15];
  }
  return text;
}

float float_at(const std::byte* from) {
  float value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

// As it is after it has travelled in 16 bits.
void round_to(WireType wire, Bytes& sum) {
  using namespace fold_reference;
  for (size_t at = 0; at < sum.size(); at += sizeof(float)) {
    const float value = float_at(&sum[at]);
    const float rounded = wire == WireType::kFloat16 ? widen_half(narrow_half(value))
                                                     : widen_brain(narrow_brain(value));
    std::memcpy(&sum[at], &rounded, sizeof rounded);
  }
}

}  // namespace

Reference::Reference(const Program& program, const Op& op, std::vector<uint32_t> nodes,
                     NodeSums node_sums)
    : program_(program), op_(op), nodes_(std::move(nodes)), node_sums_(std::move(node_sums)) {}

std::vector<Piece> Reference::pieces_for(uint32_t rank) const {
  std::vector<Piece> pieces;
  switch (op_.collective) {
    case GRADRING_REDUCE:
      if (rank != op_.root) break;
      [[fallthrough]];
    case GRADRING_ALLREDUCE:
    case GRADRING_BROADCAST:
      pieces.push_back({0, 0, op_.count, op_.root});
      break;
    case GRADRING_SEND:
      if (rank == op_.to) pieces.push_back({0, 0, op_.count, op_.root});
      break;
    case GRADRING_REDUCE_SCATTER:
    case GRADRING_SCATTER:
      pieces.push_back({0, op_.given_before(op_.root, rank), op_.block(op_.root, rank), op_.root});
      break;
    case GRADRING_GATHER:
      if (rank != op_.root) break;
      [[fallthrough]];
    case GRADRING_ALLGATHER:
    case GRADRING_ALLTOALL:
      for (uint32_t giver = 0; giver < op_.size; ++giver) {
        const bool pairs = op_.collective == GRADRING_ALLTOALL;
        pieces.push_back({op_.taken_before(giver, rank), pairs ? op_.given_before(giver, rank) : 0,
                          op_.block(giver, rank), giver});
      }
      break;
    default:
      break;
  }
  return pieces;
}

// Members stand in the order of their lowest rank.
Reference::Ring Reference::ring() const {
  Ring ring;
  std::vector<uint32_t> order;
  for (uint32_t rank = 0; rank < op_.size; ++rank) {
    const auto known = std::ranges::find(order, nodes_[rank]);
    if (known == order.end()) {
      order.push_back(nodes_[rank]);
      ring.push_back({rank});
    } else {
      ring[static_cast<size_t>(known - order.begin())].push_back(rank);
    }
  }
  return ring;
}

uint32_t Reference::member_behind(const Ring& ring, uint32_t rank) const {
  const auto hosts = [rank](const auto& ranks) {
    return std::ranges::find(ranks, rank) != ranks.end();
  };
  const auto host = std::ranges::find_if(ring, hosts) - ring.begin();
  return static_cast<uint32_t>((static_cast<size_t>(host) + 1) % ring.size());
}

bool Reference::is_packed(const Ring& ring) const {
  const bool blocks = op_.collective == GRADRING_REDUCE_SCATTER;
  const uint64_t elements = blocks ? op_.given_before(0, op_.size) : op_.count;
  return op_.wire != WireType::kNative && ring.size() > 1 &&
         elements * sizeof(float) >= kPackedBytesMin;
}

Bytes Reference::sum_of(const std::vector<uint32_t>& ranks, Way way,
                        const std::vector<Bytes>& inputs) const {
  const size_t count = inputs[0].size() / size_of(op_.dtype);
  struct OnGpu {
    std::vector<const std::byte*> from;
    std::vector<double> factors = {};
  };
  const auto fold = [&](const OnGpu& on) {
    return fold_reference::fold(op_.dtype, op_.op, on.from, count, 0, {on.factors});
  };
  std::vector<OnGpu> on_gpus(way == Way::kByGpu ? 2 : 1);
  for (const uint32_t rank : ranks) {
    OnGpu& on = on_gpus[way == Way::kByGpu ? node_sums_.gpus[rank] : 0];
    on.from.push_back(inputs[rank].data());
    on.factors.push_back(manner_of(program_.seed, op_, rank).prescale);
  }
  std::erase_if(on_gpus, [](const OnGpu& none) { return none.from.empty(); });
  Bytes first = fold(on_gpus[0]);
  if (on_gpus.size() == 1) return first;
  const Bytes second = fold(on_gpus[1]);
  return fold({{first.data(), second.data()}});
}

Bytes Reference::sum_from(const Ring& ring, uint32_t start, const std::vector<Way>& ways,
                          const std::vector<Bytes>& inputs) const {
  const bool packed = is_packed(ring);
  const size_t count = inputs[0].size() / size_of(op_.dtype);
  Bytes sum;
  for (size_t distance = 0; distance < ring.size(); ++distance) {
    const bool last = distance + 1 == ring.size();
    const size_t member = (start + distance) % ring.size();
    std::vector<const std::byte*> from;
    std::vector<double> factors;
    for (const uint32_t rank : ring[member]) {
      from.push_back(inputs[rank].data());
      factors.push_back(manner_of(program_.seed, op_, rank).prescale);
    }
    Bytes own;
    // What one rank has alone is not summed, and so multiplied only here.
    if (ways[member] != Way::kNot && ring[member].size() > 1) {
      own = sum_of(ring[member], ways[member], inputs);
      from = {own.data()};
      factors = {1};
    }
    if (distance > 0) from.push_back(sum.data());
    const transport::Scale scale = {factors, last ? op_.postscale : 1};
    const uint32_t divisor = last && op_.op == ReduceOp::kAverage ? op_.size : 0;
    sum = fold_reference::fold(op_.dtype, op_.op, from, count, divisor, scale);
    if (packed && op_.wire != WireType::kInt8) round_to(op_.wire, sum);
  }
  return sum;
}

std::vector<std::vector<Reference::Way>> Reference::ways_for(size_t members) const {
  std::vector<Way> all = {Way::kNot};
  if (node_sums_.may_be) all.push_back(Way::kByRank);
  if (all.size() > 1 && !node_sums_.gpus.empty()) all.push_back(Way::kByGpu);
  std::vector<std::vector<Way>> combined = {{}};
  for (size_t member = 0; member < members; ++member) {
    std::vector<std::vector<Way>> longer;
    for (const auto& ways : combined) {
      for (const Way way : all) {
        longer.push_back(ways);
        longer.back().push_back(way);
      }
    }
    combined = std::move(longer);
  }
  return combined;
}

Reference::Candidates Reference::candidates(const Piece& piece, uint32_t rank) const {
  const auto input_of = [&](uint32_t giver) {
    return cycle_of(program_.seed, op_, giver, piece.from + piece.count);
  };
  if (!is_reduction(op_.collective)) return {{input_of(piece.giver)}};
  std::vector<Bytes> inputs;
  for (uint32_t giver = 0; giver < op_.size; ++giver) inputs.push_back(input_of(giver));
  const Ring members = ring();
  const std::vector<std::vector<Way>> ways = ways_for(members.size());
  const bool anywhere = op_.collective == GRADRING_ALLREDUCE;
  const auto first = anywhere ? 0 : member_behind(members, rank);
  const auto starts = anywhere ? static_cast<uint32_t>(members.size()) : 1;
  Candidates found;
  found.first = ways.size();
  for (uint32_t start = first; start < first + starts; ++start) {
    for (const auto& some : ways) found.all.push_back(sum_from(members, start, some, inputs));
  }
  return found;
}

// Rounded to int8 on each node by 1/252 of what the largest sum may be. A named op adds what its
// last use took away, which may have been as much once more.
double Reference::tolerance() const {
  if (op_.wire != WireType::kInt8) return 0;
  const Ring members = ring();
  if (!is_packed(members)) return 0;
  const double most = kFractionMax * op_.size;
  return static_cast<double>(members.size()) * most / 252 * (op_.name.empty() ? 1.01 : 2.02);
}

std::string Reference::fault_in(const Piece& piece, uint32_t rank, const std::byte* output) const {
  if (piece.count == 0) return "";
  const size_t element = size_of(op_.dtype);
  const Candidates found = candidates(piece, rank);
  const double slack = tolerance();
  uint64_t run = 0;
  for (uint64_t i = 0; i < piece.count; i += run) {
    const uint64_t in_cycle = (piece.from + i) % kPeriod;
    // The first slice begins at the first member, whichever the others begin at.
    const std::span<const Bytes> all(found.all), may_be = i == 0 ? all.first(found.first) : all;
    run = i == 0 ? 1 : std::min(kPeriod - in_cycle, piece.count - i);
    const size_t at = in_cycle * element;
    const std::byte* const got = output + (piece.to + i) * element;
    const auto is = [&](const Bytes& one, uint64_t count) {
      return std::memcmp(&one[at], got, count * element) == 0;
    };
    const auto whole_run_is = [&](const Bytes& one) { return is(one, run); };
    if (std::ranges::any_of(may_be, whole_run_is)) continue;
    run = 1;
    const auto element_is = [&](const Bytes& one) {
      if (slack == 0) return is(one, 1);
      return std::abs(float_at(&one[at]) - float_at(got)) <= slack;
    };
    if (std::ranges::any_of(may_be, element_is)) continue;
    std::string words = "element " + std::to_string(piece.to + i) + " of the output is " +
                        in_hex(got, element) + ", expected";
    for (const Bytes& one : may_be) words += " " + in_hex(&one[at], element);
    if (slack != 0) words += " but for " + std::to_string(slack);
    return words;
  }
  return "";
}

}  // namespace gradring::differential
