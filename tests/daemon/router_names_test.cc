#include "daemon/control/door/router_names.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "tests/daemon/scratch.h"

namespace gradring::daemon {
namespace {

class Door {
 public:
  Door() : router_(make_router(&context_)) {
    router_.set(zmq::sockopt::linger, 0);
    router_.set(zmq::sockopt::rcvtimeo, 10000);
    router_.set(zmq::sockopt::router_mandatory, true);
    router_.bind(address_);
    give_all_names(&router_);
  }

  zmq::socket_t client(const std::string& name = "") {
    zmq::socket_t one(context_, ZMQ_DEALER);
    one.set(zmq::sockopt::linger, 0);
    one.set(zmq::sockopt::rcvtimeo, 10000);
    if (!name.empty()) one.set(zmq::sockopt::routing_id, name);
    one.connect(address_);
    return one;
  }

  // By which the router knows it.
  std::string name_of(zmq::socket_t& one) {
    one.send(zmq::str_buffer("who am I"), zmq::send_flags::none);
    zmq::message_t id, body;
    if (!router_.recv(id) || !router_.recv(body)) return "";
    EXPECT_EQ(body.to_string(), "who am I");
    EXPECT_FALSE(body.more());
    return id.to_string();
  }

  void answer(const std::string& name, const std::string& body) {
    router_.send(zmq::buffer(name), zmq::send_flags::sndmore);
    router_.send(zmq::buffer(body), zmq::send_flags::none);
  }

 private:
  const Scratch scratch_;
  const std::string address_ = "ipc://" + scratch_.path("control.sock");
  zmq::context_t context_;
  zmq::socket_t router_;
};

// The name that the router will give to the one after so many others.
std::string later(const std::string& name, uint32_t many) {
  uint32_t number = 0;
  for (const char byte : name.substr(1)) number = number << 8 | static_cast<uint8_t>(byte);
  number += many;
  std::string next = name.substr(0, 1);
  for (int shift = 24; shift >= 0; shift -= 8) next += static_cast<char>(number >> shift & 0xff);
  return next;
}

TEST(RouterNames, NobodyTakesThatOfTheNextToCome) {
  Door door;
  zmq::socket_t first = door.client();
  const std::string name = door.name_of(first);
  ASSERT_EQ(name.size(), 5u);
  zmq::socket_t thief = door.client(later(name, 3));
  EXPECT_EQ(door.name_of(thief), later(name, 1));
  for (uint32_t i = 2; i < 6; ++i) {
    zmq::socket_t other = door.client();
    EXPECT_EQ(door.name_of(other), later(name, i));
  }
}

TEST(RouterNames, NorThatOfWhoeverIsHere) {
  Door door;
  zmq::socket_t one = door.client("one"), same = door.client("one");
  const std::string name = door.name_of(one);
  EXPECT_NE(door.name_of(same), name);
  for (const std::string answer : {"it is you", "", "still you"}) {
    door.answer(name, answer);
    zmq::message_t body;
    ASSERT_TRUE(one.recv(body));
    EXPECT_EQ(body.to_string(), answer);
  }
}

TEST(RouterNames, NobodyKnowsTheFirst) {
  std::string names[2];
  for (std::string& name : names) {
    srand(1);  // as in every process that has just begun
    Door door;
    zmq::socket_t first = door.client();
    name = door.name_of(first);
  }
  EXPECT_NE(names[0], names[1]);
}

}  // namespace
}  // namespace gradring::daemon
