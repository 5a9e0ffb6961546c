#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <stdexcept>

#include "tests/transport/conformance.h"
#include "transport/loopback/fabric.h"
#include "transport/tcp/tcp_transport.h"
#include "transport/ucx/ucx_transport.h"

namespace gradring::transport::conformance {
namespace {

class LoopbackDoomed final : public DoomedPeer {
 public:
  explicit LoopbackDoomed(Fabric& fabric)
      : fabric_(fabric), node_(fabric.join("doomed")), payload_(pattern(kDoomedBytes, 1)) {
    node_.seen.keep = false;
  }
  std::string address() const override { return node_.transport->address(); }
  void meet(const std::string& address) override {
    EXPECT_TRUE(node_.transport->connect(0, address).ok());
    met_ = true;
  }
  void freeze() override { frozen_ = true; }
  void kill() override { fabric_.kill("doomed"); }
  void turn() override {
    if (frozen_) return;
    // A send that is refused is one that the dead no longer make.
    if (met_ && node_.transport->send(0, header_of(next_), payload_, next_).ok()) ++next_;
    node_.turn();
  }

 private:
  Fabric& fabric_;
  Node node_;
  const std::vector<std::byte> payload_;
  bool met_ = false, frozen_ = false;
  uint64_t next_ = 1;
};

class LoopbackBody final : public Body {
 public:
  std::unique_ptr<Transport> make(const std::string& name) override { return fabric_.join(name); }
  std::unique_ptr<DoomedPeer> doomed() override {
    return std::make_unique<LoopbackDoomed>(fabric_);
  }

 private:
  Fabric fabric_{1};
};

// A process of its own, started by exec: UCX does not survive a fork. Speaks lines of hexadecimal
// addresses over its stdin, a socket; see conformance_peer.cc.
class ProcessDoomed final : public DoomedPeer {
 public:
  explicit ProcessDoomed(const std::string& body) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
      throw std::runtime_error("socketpair");
    }
    pid_ = fork();
    if (pid_ == 0) {
      dup2(ends[1], 0);
      execl(CONFORMANCE_PEER, CONFORMANCE_PEER, body.c_str(), static_cast<char*>(nullptr));
      _exit(127);
    }
    close(ends[1]);
    line_ = ends[0];
    address_ = read_line();
  }
  ~ProcessDoomed() override {
    kill();
    close(line_);
  }
  std::string address() const override { return address_; }
  void meet(const std::string& address) override {
    std::string line;
    for (const char byte : address) {
      static constexpr char kDigits[] = "0123456789abcdef";
      line += kDigits[static_cast<unsigned char>(byte) >> 4];
      line += kDigits[static_cast<unsigned char>(byte) & 15];
    }
    line += '\n';
    ASSERT_EQ(write(line_, line.data(), line.size()), static_cast<ssize_t>(line.size()));
  }
  void freeze() override { ::kill(pid_, SIGSTOP); }
  void kill() override {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }
  void turn() override {}

 private:
  std::string read_line() const {
    std::string bytes, pair;
    for (;;) {
      pollfd ready{line_, POLLIN, 0};
      char digit = 0;
      if (poll(&ready, 1, 20'000) != 1 || read(line_, &digit, 1) != 1) {
        ADD_FAILURE() << "the peer process did not tell its address";
        return bytes;
      }
      if (digit == '\n') return bytes;
      pair += digit;
      if (pair.size() < 2) continue;
      bytes += static_cast<char>(std::strtoul(pair.c_str(), nullptr, 16));
      pair.clear();
    }
  }

  pid_t pid_ = 0;
  int line_ = -1;
  std::string address_;
};

class UcxBody final : public Body {
 public:
  explicit UcxBody(size_t rendezvous_bytes) : rendezvous_bytes_(rendezvous_bytes) {}
  std::unique_ptr<Transport> make(const std::string& /*name*/) override {
    UcxOptions options;
    options.devices = {ucx_device()};
    if (rendezvous_bytes_ != 0) options.rendezvous_bytes = rendezvous_bytes_;
    auto made = make_ucx_transport(options);
    if (!made) throw std::runtime_error(made.error().message());
    return std::move(*made);
  }
  std::unique_ptr<DoomedPeer> doomed() override {
    return std::make_unique<ProcessDoomed>(std::to_string(rendezvous_bytes_));
  }

 private:
  const size_t rendezvous_bytes_;
};

class TcpBody final : public Body {
 public:
  explicit TcpBody(size_t apart_bytes) : apart_bytes_(apart_bytes) {}
  std::unique_ptr<Transport> make(const std::string& /*name*/) override {
    auto made = make_tcp_transport({{"lo"}, "for tests", apart_bytes_});
    if (!made) throw std::runtime_error(made.error().message());
    return std::move(*made);
  }
  std::unique_ptr<DoomedPeer> doomed() override { return std::make_unique<ProcessDoomed>("tcp"); }

 private:
  const size_t apart_bytes_;
};

}  // namespace

std::vector<BodyKind> all_bodies() {
  return {{"loopback", [] { return std::make_unique<LoopbackBody>(); }},
          {"tcp", [] { return std::make_unique<TcpBody>(0); }},
          // Of what the tests send some goes by the thread, and all, also what is nothing.
          {"tcp_some_apart", [] { return std::make_unique<TcpBody>(size_t{64} << 10); }},
          {"tcp_all_apart", [] { return std::make_unique<TcpBody>(1); }},
          {"ucx", [] { return std::make_unique<UcxBody>(0); }},
          // What RDMA does to large payloads, on machines that have only TCP.
          {"ucx_rendezvous", [] { return std::make_unique<UcxBody>(size_t{64} << 10); }}};
}

}  // namespace gradring::transport::conformance
