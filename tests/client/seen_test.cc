#include "tests/client/restart.h"

// What the trainer has taken in, and so the daemon need not tell again after a restart.
namespace gradring::test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class SeenEnds : public Restart {
 protected:
  // Submits, and returns what was told with it.
  std::vector<uint64_t> seen_with(gradring_request* request) {
    *request = submit_barrier();
    const auto all = daemon_.wait_for_messages(wire::ClientMessage::kSubmit, submits_);
    return seen(all.back().submit());
  }
  static std::vector<uint64_t> seen(const wire::Submit& submit) {
    return {submit.seen().begin(), submit.seen().end()};
  }
  // What is told after a restart when no op is under way: another call has to look.
  std::vector<uint64_t> seen_after_restart() {
    alloc(comm_, 1);
    return seen(submitted_again());
  }
  void finish(gradring_request request) {
    for (const auto& operation : operations()) {
      if (operation.ticket() != request) continue;
      daemon_.complete(operation);
      return wait_good(request);
    }
    FAIL() << "request " << request << " never reached the daemon";
  }
};

TEST_F(SeenEnds, AreToldWithTheNextSubmissionOnce) {
  gradring_request a = 0, b = 0, c = 0, d = 0;
  EXPECT_THAT(seen_with(&a), IsEmpty());
  EXPECT_THAT(seen_with(&b), IsEmpty());
  finish(b);
  finish(a);
  EXPECT_THAT(seen_with(&c), ElementsAre(b, a));
  EXPECT_THAT(seen_with(&d), IsEmpty());
}

TEST_F(SeenEnds, AreToldAgainUnlessALaterEndProvesThatTheyWereRead) {
  gradring_request a = 0, b = 0, c = 0, d = 0;
  seen_with(&a);
  finish(a);
  EXPECT_THAT(seen_with(&b), ElementsAre(a));
  finish(b);  // so the daemon has read of a
  EXPECT_THAT(seen_with(&c), ElementsAre(b));
  restart();  // and may not have read of b
  EXPECT_THAT(seen(drive(c)), ElementsAre(b));
  restart();
  EXPECT_THAT(seen(drive(c)), ElementsAre(b)) << "the daemon may not have read that either";
  finish(c);  // told in the last life, perhaps before anything was read in this one
  restart();
  EXPECT_THAT(seen_after_restart(), ElementsAre(b, c));
  EXPECT_THAT(seen_with(&d), IsEmpty());
  finish(d);
  restart();
  EXPECT_THAT(seen_after_restart(), ElementsAre(d));
}

TEST_F(SeenEnds, AreNotToldWhereNoRestartCanFollow) {
  daemon_.set([](Script& script) { script.restart_grace_ms = 0; });
  comm_ = open(daemon_);
  gradring_request a = 0, b = 0;
  seen_with(&a);
  finish(a);
  EXPECT_THAT(seen_with(&b), IsEmpty());
}

}  // namespace
}  // namespace gradring::test
