#include "daemon/wire/report_wire.h"

#include <gtest/gtest.h>

#include <functional>

#include "daemon/wire/view_wire.h"
#include "tests/daemon/wire_samples.h"

namespace gradring::daemon {
namespace {

constexpr uint64_t kEnded = 6;  // the samples are about the epoch that follows

bool believed(const wire::Report& report) {
  core::Report read;
  return from_wire(report, kEnded, &read);
}
bool report_with(const std::function<void(wire::Report*)>& bend) {
  wire::Report report;
  to_wire(sample_report(), &report);
  bend(&report);
  return believed(report);
}
bool op_with(const std::function<void(wire::ReportedOp*)>& bend) {
  return report_with([&](wire::Report* r) { bend(r->mutable_ops(0)); });
}

bool proposal_with(const std::function<void(wire::Proposal*)>& bend) {
  wire::Proposal proposal;
  to_wire(sample_proposal(), &proposal);
  bend(&proposal);
  core::Proposal read;
  return from_wire(proposal, sample_job(), kEnded, &read);
}
bool view_with(const std::function<void(wire::View*)>& bend) {
  return proposal_with([&](wire::Proposal* p) { bend(p->mutable_view()); });
}
bool fate_with(const std::function<void(wire::OpFate*)>& bend) {
  return proposal_with([&](wire::Proposal* p) { bend(p->mutable_ops(0)); });
}

TEST(ReportWire, SamplesAreBelieved) {
  EXPECT_TRUE(report_with([](auto*) {}));
  EXPECT_TRUE(proposal_with([](auto*) {}));
}

TEST(ReportWire, WhatWasThereBeforeIsGone) {
  wire::Report message;
  to_wire(core::Report{"z", {}, {}, {}, {}, {}, {}, {}, false}, &message);
  core::Report report = sample_report();
  ASSERT_TRUE(from_wire(message, kEnded, &report));
  EXPECT_EQ(report, (core::Report{"z", {}, {}, {}, {}, {}, {}, {}, false}));
}

TEST(ReportWire, ValuesOutsideTheirEnumerationsAreRefused) {
  for (const uint32_t value : {3u, 256u, 257u, UINT32_MAX}) {
    EXPECT_FALSE(op_with([&](auto* op) { op->mutable_slices(0)->set_state(value); })) << value;
    EXPECT_FALSE(fate_with([&](auto* op) { op->mutable_slices(0)->set_route(value); })) << value;
  }
  for (const uint32_t value : {4u, 256u, 257u, UINT32_MAX}) {
    EXPECT_FALSE(fate_with([&](auto* op) { op->set_kind(value); })) << value;
  }
  EXPECT_FALSE(op_with([](auto* op) { op->mutable_signature()->set_dtype(kDtypeLast + 1); }));
  EXPECT_FALSE(report_with(
      [](auto* r) { r->mutable_failed(0)->mutable_failure()->set_cause(kCauseLast + 1); }));
  EXPECT_FALSE(report_with(
      [](auto* r) { r->mutable_lost(0)->mutable_failure()->set_cause(kCauseLast + 1); }));
  EXPECT_FALSE(fate_with([](auto* op) { op->mutable_failure()->set_cause(kCauseLast + 1); }));
  EXPECT_FALSE(view_with([](auto* view) { view->mutable_closed()->set_cause(kCauseLast + 1); }));
}

// A run is a few bytes, whatever it counts.
TEST(ReportWire, AnOpHasTheSlicesThatItsBytesAreCutInto) {
  const auto runs = [](std::vector<uint32_t> counts) {
    return op_with([&](auto* op) {
      op->clear_slices();
      for (const uint32_t count : counts) op->add_slices()->set_count(count);
    });
  };
  EXPECT_TRUE(runs({10}));
  EXPECT_TRUE(runs({1, 9}));
  EXPECT_FALSE(runs({9}));
  EXPECT_FALSE(runs({11}));
  EXPECT_FALSE(runs({0, 10}));
  EXPECT_FALSE(runs({UINT32_MAX, 11})) << "ten, in 32 bits";
  EXPECT_FALSE(runs({}));

  EXPECT_FALSE(op_with([](auto* op) { op->clear_signature(); }));
  EXPECT_FALSE(op_with([](auto* op) { op->set_slice_bytes(0); }));
  EXPECT_FALSE(op_with([](auto* op) { op->mutable_signature()->set_count(0); }));
  EXPECT_FALSE(op_with([](auto* op) {
    op->mutable_signature()->set_collective(static_cast<uint32_t>(Collective::kBarrier));
  }));
}

// An allgather, an alltoall, ... of three ranks; each block is cut for itself.
TEST(ReportWire, AnOpInBlocksHasTheSlicesOfAllOfThem) {
  constexpr uint64_t kLongest = 2500;  // 10,000 bytes: 3 slices of 4 KiB
  const auto with = [](Collective collective, uint64_t blocks_digest, uint32_t slices) {
    return op_with([&](auto* op) {
      wire::Signature* signature = op->mutable_signature();
      signature->set_collective(static_cast<uint32_t>(collective));
      signature->set_ranks(3);
      signature->set_count(kLongest);
      signature->set_blocks(blocks_digest);
      op->clear_slices();
      op->add_slices()->set_count(slices);
    });
  };
  EXPECT_TRUE(with(Collective::kReduce, 0, 3));
  EXPECT_FALSE(with(Collective::kReduce, 0, 9));
  for (const Collective collective : {Collective::kAllgather, Collective::kReduceScatter,
                                      Collective::kGather, Collective::kScatter}) {
    EXPECT_TRUE(with(collective, 0, 9)) << name_of(collective);
    EXPECT_FALSE(with(collective, 0, 3)) << name_of(collective);
    // Only the longest is known: the others have as many or fewer.
    for (const uint32_t slices : {3, 4, 9}) EXPECT_TRUE(with(collective, 77, slices));
    for (const uint32_t slices : {2, 10}) EXPECT_FALSE(with(collective, 77, slices));
  }
  EXPECT_TRUE(with(Collective::kAlltoall, 0, 27));
  EXPECT_FALSE(with(Collective::kAlltoall, 0, 9));
  EXPECT_TRUE(with(Collective::kAlltoall, 77, 27));
  EXPECT_FALSE(with(Collective::kAlltoall, 77, 28));
}

TEST(ReportWire, EvenALargeOpHasABoundedNumberOfSlices) {
  const auto with = [](uint64_t slices) {
    return op_with([&](auto* op) {
      op->mutable_signature()->set_count(slices);
      op->set_slice_bytes(4);
      op->clear_slices();
      op->add_slices()->set_count(static_cast<uint32_t>(slices));
    });
  };
  EXPECT_TRUE(with(kSlicesMax));
  EXPECT_FALSE(with(kSlicesMax + 1));
  const auto fates = [](uint64_t slices) {
    return fate_with([&](auto* op) {
      op->clear_slices();
      op->add_slices()->set_count(1);
      op->add_slices()->set_count(static_cast<uint32_t>(slices - 1));
    });
  };
  EXPECT_TRUE(fates(kSlicesMax));
  EXPECT_FALSE(fates(kSlicesMax + 1));
  EXPECT_FALSE(fates(uint64_t{1} << 32));
}

TEST(ReportWire, OnlyWhatIsRecoveredHasSlices) {
  for (const auto kind :
       {core::OpFate::Kind::kFresh, core::OpFate::Kind::kComplete, core::OpFate::Kind::kFail}) {
    EXPECT_FALSE(fate_with([&](auto* op) { op->set_kind(static_cast<uint32_t>(kind)); }));
  }
  EXPECT_FALSE(fate_with([](auto* op) { op->clear_slices(); }));
  EXPECT_FALSE(fate_with([](auto* op) { op->set_slice_bytes(0); }));
  EXPECT_FALSE(fate_with([](auto* op) { op->mutable_slices(1)->set_count(0); }));
}

TEST(ReportWire, FatesNameMembersOfTheirView) {
  EXPECT_TRUE(fate_with([](auto* op) { op->mutable_slices(1)->set_holder(0); }));
  EXPECT_FALSE(fate_with([](auto* op) { op->mutable_slices(1)->set_holder(2); }));
  EXPECT_FALSE(fate_with([](auto* op) { op->mutable_slices(0)->set_holder(UINT32_MAX); }));
  EXPECT_FALSE(fate_with([](auto* op) { op->set_root_node("c"); }));
  EXPECT_TRUE(fate_with([](auto* op) { op->clear_root_node(); }));
}

TEST(ReportWire, KeysComeInOrderAndOnce) {
  EXPECT_FALSE(report_with([](auto* r) { r->mutable_ops()->SwapElements(0, 1); }));
  EXPECT_FALSE(report_with([](auto* r) { *r->mutable_ops(1) = r->ops(0); }));
  EXPECT_FALSE(report_with([](auto* r) { r->mutable_failed()->SwapElements(0, 1); }));
  EXPECT_FALSE(report_with([](auto* r) { *r->mutable_failed(1) = r->failed(0); }));
  EXPECT_FALSE(proposal_with([](auto* p) { p->mutable_ops()->SwapElements(2, 3); }));
  EXPECT_FALSE(proposal_with([](auto* p) { *p->mutable_ops(3) = p->ops(2); }));
}

TEST(ReportWire, EndedKeysAreIntervalsInOrderAndApart) {
  struct Interval {
    uint64_t space, first, last;
  };
  const auto with = [](const std::vector<Interval>& intervals) {
    return report_with([&](auto* r) {
      r->clear_ended();
      for (const auto& [space, first, last] : intervals) {
        wire::KeyInterval* interval = r->add_ended();
        interval->set_space(space);
        interval->set_first(first);
        interval->set_last(last);
      }
    });
  };
  EXPECT_TRUE(with({}));
  EXPECT_TRUE(with({{0, 0, UINT64_MAX}, {1, 0, 0}, {1, 2, 3}}));
  EXPECT_FALSE(with({{0, 5, 4}}));
  EXPECT_FALSE(with({{0, 0, 4}, {0, 4, 6}}));
  EXPECT_FALSE(with({{0, 5, 6}, {0, 0, 1}}));
  EXPECT_FALSE(with({{1, 0, 0}, {0, 0, 0}}));
  EXPECT_FALSE(with({{0, 0, UINT64_MAX}, {0, 0, 0}}));
}

TEST(ReportWire, NamesAreThereAndOfSomeLength) {
  const std::string too_long(kNodeNameMax + 1, 'x');
  for (const std::string& name : {std::string(), too_long}) {
    EXPECT_FALSE(report_with([&](auto* r) { r->set_node(name); }));
    EXPECT_FALSE(report_with([&](auto* r) { r->set_reachable(1, name); }));
    EXPECT_FALSE(view_with([&](auto* view) { view->mutable_members(0)->set_node(name); }));
  }
  EXPECT_FALSE(op_with([](auto* op) { op->set_name(std::string(kTextMax + 1, 'x')); }));
  for (const auto set : {&wire::Blame::set_node<std::string>, &wire::Blame::set_device<std::string>,
                         &wire::Blame::set_evidence<std::string>}) {
    EXPECT_FALSE(report_with([&](auto* r) {
      (r->mutable_failed(0)->mutable_failure()->mutable_blame()->*set)(
          std::string(kTextMax + 1, 'x'));
    }));
  }
}

TEST(ReportWire, RanksAreInOrderAndCameInBefore) {
  EXPECT_FALSE(report_with([](auto* r) { r->mutable_ranks()->SwapElements(0, 1); }));
  EXPECT_FALSE(report_with([](auto* r) { r->mutable_ranks(1)->set_rank(r->ranks(0).rank()); }));
  EXPECT_FALSE(report_with([](auto* r) { r->mutable_ranks(0)->set_since(0); }));
  EXPECT_FALSE(report_with([](auto* r) { r->mutable_ranks(0)->set_since(kEnded + 1); }));
}

TEST(ReportWire, TheViewIsTheNextOneOfTheSameJob) {
  EXPECT_FALSE(view_with([](auto* view) { view->clear_incarnation(); }));
  EXPECT_FALSE(view_with([](auto* view) { view->set_incarnation(std::string(16, 'x')); }));
  for (const uint64_t epoch : {uint64_t{0}, uint64_t{1}, kEnded, kEnded + 2, UINT64_MAX}) {
    EXPECT_FALSE(view_with([&](auto* view) { view->set_epoch(epoch); })) << epoch;
  }
  EXPECT_FALSE(view_with([](auto* view) { view->set_grown(0); }));
  EXPECT_FALSE(view_with([](auto* view) { view->set_grown(kEnded + 2); }));

  // The epoch after the last, and the one that is of forming.
  wire::Proposal proposal;
  to_wire(sample_proposal(), &proposal);
  core::Proposal read;
  for (const uint64_t epoch : {0, 1}) {
    proposal.mutable_view()->set_epoch(epoch);
    EXPECT_FALSE(from_wire(proposal, sample_job(), epoch - 1, &read)) << epoch;
  }
}

TEST(ReportWire, TheViewIsOneThatCanBe) {
  EXPECT_FALSE(view_with([](auto* view) { view->set_size(4); }));
  EXPECT_FALSE(view_with([](auto* view) { view->clear_job(); }));
  EXPECT_FALSE(view_with([](auto* view) { view->mutable_members(1)->set_node("b"); }));
  EXPECT_FALSE(view_with([](auto* view) {
    view->mutable_members(0)->mutable_ranks(1)->set_rank(4);
  })) << "rank 4 is there twice";
  EXPECT_FALSE(
      view_with([](auto* view) { view->mutable_members(0)->mutable_ranks()->SwapElements(0, 1); }));
  const auto without_ranks = [](wire::View* view) {
    view->mutable_members(1)->clear_ranks();
    view->set_size(2);
  };
  EXPECT_TRUE(view_with(without_ranks)) << "the view is closed";
  EXPECT_FALSE(view_with([&](auto* view) {
    without_ranks(view);
    view->clear_closed();
  }));
  EXPECT_FALSE(view_with([](auto* view) {
    while (view->members_size() <= kMembersMax) {
      view->add_members()->set_node("n" + std::to_string(view->members_size()));
    }
  }));
}

}  // namespace
}  // namespace gradring::daemon
