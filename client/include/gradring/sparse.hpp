// Gradients of which most rows are zero, as those of an embedding: only the rows that are not
// travel, with their numbers.
#ifndef GRADRING_SPARSE_HPP
#define GRADRING_SPARSE_HPP

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <gradring/gradring.hpp>
#include <numeric>
#include <string>
#include <type_traits>
#include <vector>

namespace gradring {

// Some rows of a matrix with `width` columns. Those that are not there are zero; one that is there
// more than once is the sum of these.
template <class T>
struct SparseRows {
  size_t width = 1;
  std::vector<int64_t> rows;
  std::vector<T> values;  // width for each of `rows`, in their order
};

namespace detail {

// Each row once, ascending; of several of one number the sum in the order in which they are there.
template <class T>
SparseRows<T> merged(size_t width, const Buffer<int64_t>& rows, const Buffer<T>& values,
                     size_t count) {
  std::vector<size_t> order(count);
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(),
            [&rows](size_t a, size_t b) { return rows[a] != rows[b] ? rows[a] < rows[b] : a < b; });
  SparseRows<T> sum;
  sum.width = width;
  for (const size_t i : order) {
    const T* const from = values.data() + i * width;
    if (sum.rows.empty() || sum.rows.back() != rows[i]) {
      sum.rows.push_back(rows[i]);
      sum.values.insert(sum.values.end(), from, from + width);
      continue;
    }
    T* const to = sum.values.data() + sum.values.size() - width;
    std::transform(from, from + width, to, to, [](T added, T there) { return there + added; });
  }
  return sum;
}

}  // namespace detail

// The sum of all ranks' rows, or the average over the ranks: each row once, ascending, the same in
// every bit on all ranks, added in the order of ranks. Three allgathers: how many rows each rank
// has, then their numbers and values. All ranks call it with the same width, in the same order of
// their ops or with a name that is used for nothing else. Throws Error: INVALID for another op, the
// average of integers, or values that are not width for each row, FAILED if an op fails. Any
// thread.
template <class T>
SparseRows<T> sparse_allreduce(const Communicator& job, const SparseRows<T>& mine,
                               gradring_reduce_op op = GRADRING_SUM, const char* name = nullptr) {
  if (op != GRADRING_SUM && op != GRADRING_AVERAGE) {
    throw Error(GRADRING_ERR_INVALID, "sparse rows are summed or averaged");
  }
  if (op == GRADRING_AVERAGE && std::is_integral_v<T>) {
    throw Error(GRADRING_ERR_INVALID,
                "the average of integers is refused, it would cut off fractions: sum them, and "
                "divide in a type that can hold the result");
  }
  if (mine.values.size() != mine.rows.size() * mine.width) {
    throw Error(GRADRING_ERR_INVALID, std::to_string(mine.values.size()) + " values for " +
                                          std::to_string(mine.rows.size()) + " rows of " +
                                          std::to_string(mine.width));
  }
  const View view = job.view();
  const auto ranks = static_cast<size_t>(view.size), me = static_cast<size_t>(view.position);
  Buffer<uint64_t> lengths = job.allocate<uint64_t>(ranks);
  lengths[me] = mine.rows.size();
  job.allgather(lengths.data() + me, lengths.data(), size_t{1}, name);

  const std::vector<uint64_t> row_counts(lengths.begin(), lengths.end());
  std::vector<uint64_t> value_counts = row_counts;
  for (uint64_t& count : value_counts) count *= mine.width;
  const uint64_t before = std::accumulate(row_counts.data(), row_counts.data() + me, uint64_t{0});
  const uint64_t all = std::accumulate(row_counts.begin(), row_counts.end(), uint64_t{0});
  Buffer<int64_t> rows = job.allocate<int64_t>(std::max<uint64_t>(all, 1));
  Buffer<T> values = job.allocate<T>(std::max<uint64_t>(all * mine.width, 1));
  std::copy(mine.rows.begin(), mine.rows.end(), rows.data() + before);
  std::copy(mine.values.begin(), mine.values.end(), values.data() + before * mine.width);
  Request numbers = job.start_allgather(rows.data() + before, rows.data(), row_counts, name);
  job.allgather(values.data() + before * mine.width, values.data(), value_counts, name);
  numbers.wait();

  SparseRows<T> sum = detail::merged(mine.width, rows, values, all);
  if (op == GRADRING_AVERAGE) {
    for (T& value : sum.values) value /= static_cast<T>(ranks);
  }
  return sum;
}

}  // namespace gradring

#endif
