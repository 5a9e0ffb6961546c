// The control channel by itself, against a plain socket.
#include "client/src/session/control.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <thread>
#include <zmq.hpp>

#include "tests/client/fake_sockets.h"

namespace gradring::client {
namespace {

TEST(Control, KeepsWhatADaemonSaidBeforeItWent) {
  std::string folder = (std::filesystem::temp_directory_path() / "gradring-XXXXXX").string();
  test::must(::mkdtemp(folder.data()) != nullptr, "mkdtemp");
  zmq::context_t context(1);
  zmq::socket_t daemon(context, zmq::socket_type::router);
  daemon.set(zmq::sockopt::rcvtimeo, 5000);
  daemon.set(zmq::sockopt::linger, 5000);
  daemon.bind("ipc://" + folder + "/control.sock");

  auto control = ControlSocket::connect(folder);
  ASSERT_TRUE(control) << control.error().message();
  ASSERT_TRUE(control->send(wire::ClientMessage()).ok());
  zmq::message_t who, question;
  ASSERT_TRUE(daemon.recv(who) && daemon.recv(question));
  wire::DaemonMessage answer;
  answer.set_request(7);
  daemon.send(who, zmq::send_flags::sndmore);
  daemon.send(zmq::buffer(answer.SerializeAsString()), zmq::send_flags::none);
  daemon.close();
  context.close();  // once it has sent all
  // As a trainer that computes: both the answer and the end have come by the time it looks.
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  const auto received = control->receive();
  ASSERT_TRUE(received) << received.error().message();
  ASSERT_TRUE(received->has_value());
  EXPECT_EQ((*received)->request(), 7u);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace gradring::client
