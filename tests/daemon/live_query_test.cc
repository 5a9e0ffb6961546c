// What gradringctl asks a daemon, which asks another for it.

#include <gtest/gtest.h>

#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "proto/flight.h"
#include "proto/status.h"
#include "tests/daemon/live_daemon.h"
#include "tests/daemon/raw_trainer.h"

namespace gradring::daemon {
namespace {

class LiveQueryTest : public testing::Test {
 protected:
  static std::vector<std::string> flags(int peer) {
    return {"--peer", "127.0.0.1:" + std::to_string(peer), "--trace-size", "64K"};
  }
  wire::FlightReport flight(bool trace, uint64_t offset, uint64_t bytes) {
    wire::ClientMessage query;
    query.mutable_query()->set_node("b");
    query.mutable_query()->set_what(wire::Query::FLIGHT);
    query.mutable_query()->mutable_flight()->set_trace(trace);
    query.mutable_query()->mutable_flight()->set_offset(offset);
    query.mutable_query()->mutable_flight()->set_bytes(bytes);
    const wire::DaemonMessage answer = x_.ask(query);
    refused_ = answer.refused();
    return answer.reply().flight();
  }
  wire::FlightReport trace(bool on) {
    wire::ClientMessage query;
    query.mutable_query()->set_node("b");
    query.mutable_query()->set_what(wire::Query::TRACE);
    query.mutable_query()->set_trace_on(on);
    return x_.ask(query).reply().flight();
  }
  void SetUp() override { ASSERT_TRUE(form_job("job", {&x_, &y_})); }

  const int port_a_ = free_port(), port_b_ = free_port();
  LiveDaemon a_{flags(port_b_), "a", port_a_};
  LiveDaemon b_{flags(port_a_), "b", port_b_};
  RawTrainer x_{a_.runtime_dir()}, y_{b_.runtime_dir()};
  wire::Refused refused_;
};

TEST_F(LiveQueryTest, ADaemonIsAskedThroughItsPeer) {
  wire::ClientMessage query;
  query.mutable_query()->set_node("b");
  query.mutable_query()->set_what(wire::Query::STATUS);
  const wire::QueryReply status = x_.ask(query).reply();
  EXPECT_EQ(status.status().node(), "b");
  EXPECT_GT(status.answered_at(), status.forwarded_at());  // both have the clock of this machine
  EXPECT_LT(status.answered_at(), status.returned_at());
  query.mutable_query()->set_what(wire::Query::JOB);
  query.mutable_query()->set_job("job");
  EXPECT_EQ(x_.ask(query).reply().job().ranks_size(), 2);
  query.mutable_query()->set_job("another");
  EXPECT_NE(x_.ask(query).refused().message().find("node b knows no job"), std::string::npos);
  query.mutable_query()->set_node("c");
  EXPECT_EQ(x_.ask(query).refused().code(), static_cast<uint32_t>(Code::kNotFound));
}

TEST_F(LiveQueryTest, ATraceIsReadInPartsAndGoesOnWhereItEnded) {
  EXPECT_EQ(flight(true, 0, 0).file_bytes(), 0u);
  EXPECT_EQ(refused_.code(), static_cast<uint32_t>(Code::kNotFound)) << "none was begun";
  const wire::FlightReport begun = trace(true);
  EXPECT_TRUE(begun.tracing());
  ASSERT_EQ(begun.file_bytes(), kFlightHeaderBytes + 2 * (64u << 10));
  EXPECT_EQ(trace(true).trace_since(), begun.trace_since()) << "the same one";
  EXPECT_FALSE(trace(false).tracing());
  const std::string head = flight(true, 0, kFlightHeaderBytes).data();
  const auto header = decode_flight_header(std::as_bytes(std::span(head)), begun.file_bytes());
  ASSERT_TRUE(header) << header.error();
  EXPECT_EQ(text_in(header->node), "b");
  // Of the control thread: who is in which job comes first.
  const std::string events = flight(true, header->rings[0].offset, 2 * kFlightEventBytes).data();
  FlightEvent first;
  ASSERT_EQ(events.size(), 2 * kFlightEventBytes);
  std::memcpy(&first, events.data(), sizeof first);
  EXPECT_EQ(first.kind, FlightKind::kJobProposed);
  EXPECT_GT(trace(true).trace_since(), begun.trace_since());
}

TEST_F(LiveQueryTest, OnlyWhatIsThereIsRead) {
  const uint64_t bytes = flight(false, 0, 0).file_bytes();
  ASSERT_GT(bytes, 0u);
  EXPECT_EQ(flight(false, bytes - 64, 64).data().size(), 64u);
  for (const auto& [offset, length] : std::vector<std::pair<uint64_t, uint64_t>>{
           {bytes - 63, 64}, {bytes, 1}, {~0ull, 64}, {64, ~0ull}, {0, (256u << 10) + 1}}) {
    EXPECT_TRUE(flight(false, offset, length).data().empty());
    EXPECT_EQ(refused_.code(), static_cast<uint32_t>(Code::kInvalidArgument));
  }
}

}  // namespace
}  // namespace gradring::daemon
