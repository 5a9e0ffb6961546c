// What is made of several ops: adaptive and sparse sums, through a real daemon.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <gradring/adasum.hpp>
#include <gradring/sparse.hpp>
#include <numeric>
#include <vector>

#include "tests/daemon/live_ranks.h"

namespace gradring::daemon {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

using LiveRecipesTest = LiveRanks;
using Vector = std::vector<double>;

double product(const Vector& a, const Vector& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

// The rule as it is written, two by two.
Vector adasum(const std::vector<Vector>& vectors) {
  if (vectors.size() == 1) return vectors[0];
  std::vector<Vector> next;
  for (size_t i = 0; i < vectors.size(); i += 2) {
    next.push_back(vectors[i]);
    if (i + 1 == vectors.size()) break;
    const Vector &a = vectors[i], &b = vectors[i + 1];
    const double of_a = 1 - product(a, b) / (2 * product(a, a));
    const double of_b = 1 - product(a, b) / (2 * product(b, b));
    for (size_t k = 0; k < a.size(); ++k) next.back()[k] = of_a * a[k] + of_b * b[k];
  }
  return adasum(next);
}

Vector drawn(int rank, size_t count) {
  Vector vector(count);
  for (size_t i = 0; i < count; ++i)
    vector[i] = std::sin(static_cast<double>(i * 7 + 1) * (rank + 1));
  return vector;
}

TEST_F(LiveRecipesTest, OrthogonalGradientsAreAddedAndParallelOnesAveraged) {
  run("train", [](Communicator& job) {
    Adasum<float> adasum(job, 4);
    std::vector<float> own(4);
    own[static_cast<size_t>(job.rank())] = 5;
    adasum.run(own.data());
    EXPECT_THAT(own, ElementsAre(5, 5, 5, 5));
    std::vector<float> same = {1, -2, 3, 0};
    adasum.run(same.data(), "same");
    EXPECT_THAT(same, ElementsAre(1, -2, 3, 0));
    std::vector<float> none(4);
    adasum.run(none.data());
    EXPECT_THAT(none, ElementsAre(0, 0, 0, 0));
  });
}

TEST_F(LiveRecipesTest, AnyNumberOfRanksIsCombinedByTheRule) {
  run("train", [](Communicator& job) {
    constexpr size_t kCount = 10'001;
    const Communicator three = job.rank() < 3 ? job.group({0, 1, 2}) : job.group({3});
    for (const Communicator& some : {job, three}) {
      std::vector<Vector> all;
      for (int rank = 0; rank < some.size(); ++rank) {
        all.push_back(drawn(rank + (job.rank() == 3 && some.size() == 1 ? 3 : 0), kCount));
      }
      Vector mine = all[static_cast<size_t>(some.rank())];
      Adasum<double>(some, kCount).run(mine.data());
      const Vector expected = adasum(all);
      for (size_t i = 0; i < kCount; ++i) ASSERT_NEAR(mine[i], expected[i], 1e-12) << i;
    }
  });
}

// Where those that are left have other numbers than places.
TEST_F(LiveRecipesTest, AnElasticJobIsCombinedByThoseThatAreLeft) {
  policy_ = "elastic min=1";
  run("train", [](Communicator& job) {
    constexpr size_t kCount = 1001;
    Adasum<double> before(job, kCount);
    const auto expect = [&](Adasum<double>& sum, const std::vector<int>& ranks) {
      std::vector<Vector> all;
      for (const int rank : ranks) all.push_back(drawn(rank, kCount));
      Vector mine = drawn(job.rank(), kCount);
      sum.run(mine.data());
      const Vector expected = adasum(all);
      for (size_t i = 0; i < kCount; ++i) ASSERT_NEAR(mine[i], expected[i], 1e-12) << i;
    };
    expect(before, {0, 1, 2, 3});
    if (job.rank() == 1) return job.leave();
    job.barrier();
    ASSERT_EQ(job.size(), 3);
    expect(before, {0, 2, 3});
    Adasum<double> after(job, kCount);
    expect(after, {0, 2, 3});
    job.barrier();
  });
}

TEST_F(LiveRecipesTest, SparseRowsAreSummedInTheOrderOfRanks) {
  run("train", [](Communicator& job) {
    SparseRows<float> mine;
    mine.width = 2;
    if (job.rank() == 0) mine = {2, {9, 4, 9}, {1, 2, 3, 4, 10, 20}};
    if (job.rank() == 2) mine = {2, {4}, {0.5, 0.25}};
    const SparseRows<float> sum = sparse_allreduce(job, mine);
    EXPECT_THAT(sum.rows, ElementsAre(4, 9));
    EXPECT_THAT(sum.values, ElementsAre(3.5, 4.25, 11, 22));
    const SparseRows<float> average = sparse_allreduce(job, mine, GRADRING_AVERAGE, "embedding");
    EXPECT_THAT(average.values, ElementsAre(3.5 / 4, 4.25 / 4, 11.0 / 4, 22.0 / 4));
    EXPECT_THAT(sparse_allreduce(job, SparseRows<float>()).rows, IsEmpty());
  });
}

TEST_F(LiveRecipesTest, SparseRowsAreThoseOfTheDenseSum) {
  run("train", [](Communicator& job) {
    constexpr size_t kRows = 3000, kWidth = 16;
    SparseRows<int> mine;
    mine.width = kWidth;
    auto dense = job.allocate<int>(kRows * kWidth);
    for (size_t row = static_cast<size_t>(job.rank()); row < kRows; row += 7) {
      mine.rows.push_back(static_cast<int64_t>(row));
      for (size_t i = 0; i < kWidth; ++i) {
        mine.values.push_back(static_cast<int>(row * kWidth + i));
        dense[row * kWidth + i] = mine.values.back();
      }
    }
    job.allreduce(dense);
    const SparseRows<int> sum = sparse_allreduce(job, mine);
    std::vector<int> spread(kRows * kWidth);
    for (size_t i = 0; i < sum.rows.size(); ++i) {
      std::copy_n(sum.values.begin() + static_cast<std::ptrdiff_t>(i * kWidth), kWidth,
                  spread.begin() + sum.rows[i] * static_cast<std::ptrdiff_t>(kWidth));
    }
    EXPECT_TRUE(std::equal(spread.begin(), spread.end(), dense.begin()));
  });
}

TEST_F(LiveRecipesTest, WhatMakesNoSenseIsRefusedInWords) {
  run("train", [](Communicator& job) {
    EXPECT_THROW(sparse_allreduce(job, SparseRows<float>{2, {1}, {1}}), Error);
    EXPECT_THROW(sparse_allreduce(job, SparseRows<float>(), GRADRING_MAX), Error);
    EXPECT_THROW(sparse_allreduce(job, SparseRows<int>(), GRADRING_AVERAGE), Error);
  });
}

}  // namespace
}  // namespace gradring::daemon
