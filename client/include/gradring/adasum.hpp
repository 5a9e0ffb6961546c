// Adaptive summation: gradients that point the same way are averaged, those that have nothing to do
// with one another are added, so that large batches need no smaller learning rate. The rule for two
// is that of Maleki and others, "Scaling Distributed Training with Adaptive Summation" (MLSys
// 2021):
//
//   a + b  becomes  (1 - a.b / (2 a.a)) a  +  (1 - a.b / (2 b.b)) b
//
// applied to ranks 0 and 1, 2 and 3, ..., then to the results, and so on, as in a tournament; where
// their number is odd the last one goes up alone. All products that this takes follow from those of
// the ranks' own vectors, so it is one alltoall, a small sum and one allgather: the bytes of an
// allreduce.
#ifndef GRADRING_ADASUM_HPP
#define GRADRING_ADASUM_HPP

#include <algorithm>
#include <cstddef>
#include <functional>
#include <gradring/gradring.hpp>
#include <numeric>
#include <type_traits>
#include <utility>
#include <vector>

namespace gradring {

namespace detail {

// By how much each rank's vector counts; `products` is n x n, of ranks' vectors with one another.
inline std::vector<double> adasum_weights(std::vector<double> products, size_t n) {
  const auto share = [](double with_other, double with_itself) {
    return with_itself > 0 ? 1 - with_other / (2 * with_itself) : 1;
  };
  std::vector<double> weights(n, 1.0);
  std::vector<size_t> team(n);  // of each rank, at this level
  std::iota(team.begin(), team.end(), size_t{0});
  while (n > 1) {
    std::vector<double> factors(n, 1.0);
    for (size_t i = 0; i + 1 < n; i += 2) {
      const double both = products[i * n + i + 1];
      factors[i] = share(both, products[i * n + i]);
      factors[i + 1] = share(both, products[(i + 1) * n + i + 1]);
    }
    const size_t teams = (n + 1) / 2;
    std::vector<double> next(teams * teams);
    for (size_t a = 0; a < n; ++a) {
      for (size_t b = 0; b < n; ++b) {
        next[a / 2 * teams + b / 2] += factors[a] * factors[b] * products[a * n + b];
      }
    }
    for (size_t rank = 0; rank < weights.size(); ++rank) {
      weights[rank] *= factors[team[rank]];
      team[rank] /= 2;
    }
    products = std::move(next);
    n = teams;
  }
  return weights;
}

}  // namespace detail

// Of vectors of one length, again and again; keeps shared memory of about twice that. One thread at
// a time. In an elastic job it goes on with the ranks that there are when run() begins. Where only
// some ranks are to be combined so (one of each node, say, after a sum within the nodes), give it a
// group of those.
template <class T>
class Adasum {
 public:
  static_assert(std::is_floating_point_v<T>, "gradients are float or double");

  Adasum(Communicator job, size_t count) : job_(std::move(job)), count_(count) {
    lay_out_for(static_cast<size_t>(job_.view().size));
  }

  // Replaces `gradient`, `count` elements of any memory, by the combination of those of all ranks:
  // the same in every bit on each of them. All ranks call it in the same order of their ops, or
  // with a name that is used for nothing else. Throws Error if an op fails, as where ranks are lost
  // meanwhile; the gradient is as it was then.
  void run(T* gradient, const char* name = nullptr) {
    const View view = job_.view();
    if (static_cast<size_t>(view.size) != ranks_) lay_out_for(static_cast<size_t>(view.size));
    std::copy_n(gradient, count_, vector_.data());
    std::fill(vector_.begin() + count_, vector_.end(), T{0});
    exchange(GRADRING_ALLTOALL, vector_.data(), parts_.data(), name);
    multiply();
    // That a rank is missing in it the allgather tells, on all ranks.
    job_.allreduce(products_, GRADRING_SUM, name);
    T* const own = vector_.data() + static_cast<size_t>(view.position) * block_;
    combine(detail::adasum_weights({products_.begin(), products_.end()}, ranks_), own);
    exchange(GRADRING_ALLGATHER, own, vector_.data(), name);
    std::copy_n(vector_.data(), count_, gradient);
  }

 private:
  void lay_out_for(size_t ranks) {
    ranks_ = 0;  // until all of it is there
    block_ = std::max<size_t>((count_ + ranks - 1) / ranks, 1);
    vector_ = job_.allocate<T>(ranks * block_);
    parts_ = job_.allocate<T>(ranks * block_);
    products_ = job_.allocate<double>(ranks * ranks);
    ranks_ = ranks;
  }
  // In blocks of these ranks: fails on all of them where the job has others.
  void exchange(gradring_collective collective, const T* from, T* to, const char* name) {
    gradring_op op{};
    op.struct_size = sizeof(op);
    op.collective = collective;
    op.dtype = dtype_of<T>;
    op.count = block_;
    op.input = from;
    op.output = to;
    op.name = name;
    op.ranks = static_cast<uint32_t>(ranks_);
    job_.start(op).wait();
  }
  // This rank's part of all vectors, each with each.
  void multiply() {
    for (size_t a = 0; a < ranks_; ++a) {
      for (size_t b = a; b < ranks_; ++b) {
        const T* const x = parts_.data() + a * block_;
        const T* const y = parts_.data() + b * block_;
        products_[a * ranks_ + b] = products_[b * ranks_ + a] =
            std::inner_product(x, x + block_, y, 0.0, std::plus<>(),
                               [](T i, T j) { return static_cast<double>(i) * j; });
      }
    }
  }
  void combine(const std::vector<double>& weights, T* to) const {
    for (size_t i = 0; i < block_; ++i) {
      double sum = 0;
      for (size_t rank = 0; rank < ranks_; ++rank) {
        sum += weights[rank] * static_cast<double>(parts_[rank * block_ + i]);
      }
      to[i] = static_cast<T>(sum);
    }
  }

  Communicator job_;
  size_t count_;
  size_t ranks_ = 0;
  size_t block_ = 0;  // elements of which each rank combines all vectors'
  Buffer<T> vector_;
  Buffer<T> parts_;
  Buffer<double> products_;
};

}  // namespace gradring

#endif
