// What is UCX's own: devices, addresses, and senders that are none of ours.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <ucs/sys/event_set.h>
#include <unistd.h>

#include <cstddef>
#include <set>

#include "tests/transport/conformance.h"
#include "transport/address.h"
#include "transport/ucx/devices.h"
#include "transport/ucx/events_apart.h"
#include "transport/ucx/memlock.h"
#include "transport/ucx/settings.h"
#include "transport/ucx/ucx_transport.h"
#include "transport/ucx/worker.h"

namespace gradring::transport::conformance {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// A host with the usual things on it.
DeviceInventory host() {
  DeviceInventory inventory;
  inventory.interfaces = {{"lo", true, false, {"127.0.0.1", "::1"}},
                          {"eth0", true, false, {"10.1.2.3", "fd00::3"}},
                          {"eth1", true, false, {"192.168.9.1"}},
                          {"eth2", false, false, {}},
                          {"eth3", true, false, {}},
                          {"docker0", true, true, {"172.17.0.1"}},
                          {"lan", true, true, {"10.9.9.9"}}};
  inventory.usable = {{"docker0", false}, {"eth0", false},   {"eth1", false},
                      {"lan", false},     {"lo", false},     {"mlx5_0:1", true},
                      {"mlx5_1:1", true}, {"mlx5_1:2", true}};
  return inventory;
}

std::string chosen(const std::vector<std::string>& wanted, const std::string& address) {
  const auto choice = choose_devices(wanted, address, host());
  return choice ? choice->names() : "refused: " + choice.error().message();
}

TEST(UcxDevices, WithoutANameTheCarrierOfTheListenAddressIsTaken) {
  EXPECT_EQ(chosen({}, "10.1.2.3"), "eth0");
  EXPECT_EQ(chosen({}, "fd00:0::3"), "eth0");
  EXPECT_EQ(chosen({}, "127.0.0.1"), "lo");
  EXPECT_EQ(chosen({}, "127.4.5.6"), "lo") << "all of 127/8 is loopback";
  EXPECT_EQ(chosen({}, "::1"), "lo");
  const auto choice = choose_devices({}, "10.1.2.3", host());
  EXPECT_THAT(choice->reason, HasSubstr("10.1.2.3"));
}

TEST(UcxDevices, AWildcardTakesWhatLeadsOutOfTheHostAndSaysWhatItLeftOut) {
  for (const char* address : {"0.0.0.0", "::", "*", ""}) {
    EXPECT_EQ(chosen({}, address), "eth0,eth1") << address;
  }
  const auto choice = choose_devices({}, "0.0.0.0", host());
  EXPECT_THAT(choice->reason, HasSubstr("docker0, lan, lo"));
  DeviceInventory lonely = host();
  lonely.usable = {{"lo", false}};
  EXPECT_FALSE(choose_devices({}, "0.0.0.0", lonely));
}

TEST(UcxDevices, NamedDevicesAreTakenAsNamed) {
  EXPECT_EQ(chosen({"eth1", "eth0", "eth1"}, "10.1.2.3"), "eth1,eth0");
  EXPECT_EQ(chosen({"docker0"}, ""), "docker0");
  EXPECT_EQ(chosen({"mlx5_0:1"}, ""), "mlx5_0:1");
  EXPECT_EQ(chosen({"mlx5_0"}, ""), "mlx5_0:1");
  EXPECT_TRUE(choose_devices({"mlx5_0"}, "", host())->any_rdma());
}

// A cable may be out when the daemon starts, too, and UCX asks for an address by the interface's
// name.
TEST(UcxDevices, WhereSocketsCarrySlicesAnInterfaceWillDoThatUcxCannotUse) {
  DeviceInventory inventory = host();
  inventory.interfaces.push_back({"eth4", false, false, {"10.4.0.1"}, true});
  inventory.interfaces.push_back({"eth5", false, false, {"10.5.0.1"}, false});
  inventory.interfaces.push_back({"eth6", false, false, {"fd06::1"}, true});
  inventory.interfaces.push_back({"eth8", true, false, {"10.8.0.1"}, false});
  for (const bool by_sockets : {false, true}) {
    EXPECT_EQ(choose_devices({}, "10.8.0.1", inventory, by_sockets).has_value(), by_sockets);
    EXPECT_EQ(choose_devices({"eth0", "eth4"}, "", inventory, by_sockets).has_value(), by_sockets);
    EXPECT_EQ(choose_devices({}, "10.4.0.1", inventory, by_sockets).has_value(), by_sockets);
    EXPECT_FALSE(choose_devices({"eth5"}, "", inventory, by_sockets)) << "it has been taken down";
    EXPECT_FALSE(choose_devices({"eth6"}, "", inventory, by_sockets)) << "nobody can listen there";
  }
}

TEST(UcxDevices, RefusalsSayWhatIsWrongAndWhatThereIs) {
  EXPECT_THAT(chosen({"eth7"}, ""), HasSubstr("no network device 'eth7'"));
  EXPECT_THAT(chosen({"eth7"}, ""), HasSubstr("docker0, eth0, eth1, lan, lo, mlx5_0:1"));
  EXPECT_THAT(chosen({"eth0", "eth2"}, ""), HasSubstr("'eth2' is down"));
  EXPECT_THAT(chosen({"eth3"}, ""), HasSubstr("'eth3' has no IP address"));
  EXPECT_THAT(chosen({"mlx5_1"}, ""), HasSubstr("several ports"));
  EXPECT_THAT(chosen({}, "10.1.2.4"), HasSubstr("eth0 (10.1.2.3, fd00::3)"));
  EXPECT_THAT(chosen({}, "somewhere"), HasSubstr("not a numeric IP address"));
}

TEST(UcxDevices, CardsReachGpusByAModuleOfTheKernelOrByDmabufsOfBothSides) {
  using Cards = std::vector<UcxDevice>;
  const auto why = [](const Cards& cards, bool dmabufs) {
    return can_reach_gpus({cards, ""}, dmabufs).message();
  };
  const UcxDevice by_module{"mlx5_0:1", true, true, false},
      by_dmabufs{"mlx5_1:1", true, false, true}, by_none{"mlx5_2:1", true, false, false};
  EXPECT_EQ(why({by_module}, false), "");
  EXPECT_EQ(why({by_module, by_dmabufs}, true), "");
  EXPECT_THAT(why({by_module, by_dmabufs}, false),
              AllOf(HasSubstr("mlx5_1:1 cannot reach memory of GPUs"),
                    HasSubstr("driver does not lend"), HasSubstr("modprobe nvidia_peermem")));
  EXPECT_THAT(why({by_none, by_module}, true),
              AllOf(HasSubstr("mlx5_2:1 cannot reach"), HasSubstr("neither a module"),
                    HasSubstr("modprobe nvidia_peermem")));
}

TEST(UcxMemlock, AnRdmaDeviceNeedsMemoryThatMayBeLocked) {
  const DeviceChoice card{{{"eth0", false}, {"mlx5_0:1", true}}, "named in net-device"};
  const Status refused = check_memlock(card, {false, 8 << 20});
  EXPECT_EQ(refused.code(), Code::kInvalidArgument);
  EXPECT_THAT(refused.message(),
              AllOf(HasSubstr("net-device: mlx5_0:1"), HasSubstr("named in net-device"),
                    HasSubstr("8192 KiB"), HasSubstr("LimitMEMLOCK=infinity")));
  EXPECT_TRUE(check_memlock(card, {true, 0}).ok());
  EXPECT_TRUE(check_memlock(card, {false, RLIM_INFINITY}).ok());
  EXPECT_TRUE(check_memlock({{{"eth0", false}}, ""}, {false, 0}).ok()) << "TCP pins nothing";
}

TEST(UcxMemlock, TheLimitIsThatOfThisProcess) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_MEMLOCK, &before), 0);
  const rlimit lower{64 << 10, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_MEMLOCK, &lower), 0);
  EXPECT_EQ(lockable_memory().limit_bytes, 64u << 10);
  setrlimit(RLIMIT_MEMLOCK, &before);
}

TEST(UcxDevices, ThisHostHasALoopbackInterface) {
  const auto inventory = take_device_inventory();
  ASSERT_TRUE(inventory);
  EXPECT_THAT(list_devices(inventory->usable), HasSubstr("lo"));
  const UcxViability viability = ucx_viability();
  EXPECT_TRUE(viability.works) << viability.why;
  EXPECT_THAT(viability.why, HasSubstr("UCX " + ucx_version()));
}

TEST(UcxTransport, RefusesADeviceThatIsNotThere) {
  const auto made = make_ucx_transport({{"nonsense0"}, "127.0.0.1", {}});
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code(), Code::kInvalidArgument);
  EXPECT_THAT(made.error().message(), HasSubstr("lo"));
}

TEST(UcxTransport, TellsItsDeviceAndWhy) {
  const auto made = make_ucx_transport({{}, "127.0.0.1", {}});
  ASSERT_TRUE(made);
  EXPECT_EQ((*made)->devices(), "lo (TCP)");
  EXPECT_THAT((*made)->devices_reason(), HasSubstr("127.0.0.1"));
  EXPECT_EQ((*made)->name() + ".", "ucx " + ucx_version().substr(0, (*made)->name().size() - 3));
}

TEST(UcxEvents, UcxAsksForThemThroughUs) {
  Node a((*make_ucx_transport({{"lo"}, "", {}})));
  Node b((*make_ucx_transport({{"lo"}, "", {}})));
  const uint64_t before = waits_seen();
  ASSERT_TRUE(a.connect(1, b).ok());
  ASSERT_TRUE(a.transport->send(1, header_of(3), {}, 0).ok());
  ASSERT_TRUE(pump({&a, &b}, [&] { return b.seen.received == 1; }));
  EXPECT_GT(waits_seen(), before) << "the program does not export ucs_event_set_wait";
}

TEST(UcxEvents, OneKindIsHandedOverAtATimeAndNeitherStarves) {
  ucs_sys_event_set_t* set = nullptr;
  ASSERT_EQ(ucs_event_set_create(&set), UCS_OK);
  int fds[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
  ASSERT_EQ(write(fds[1], "x", 1), 1);
  int data = 0;
  const ucs_event_set_types_t both = UCS_EVENT_SET_EVREAD | UCS_EVENT_SET_EVWRITE;
  ASSERT_EQ(ucs_event_set_add(set, fds[0], both, &data), UCS_OK);
  std::multiset<int> seen;
  const auto note = [](void* from, ucs_event_set_types_t events, void* to) {
    *static_cast<int*>(from) += 1;
    static_cast<std::multiset<int>*>(to)->insert(events);
  };
  for (int turn = 1; turn <= 200; ++turn) {
    unsigned most = 16;
    ASSERT_EQ(ucs_event_set_wait(set, &most, 0, note, &seen), UCS_OK);
    ASSERT_EQ(data, turn);
  }
  EXPECT_GT(seen.count(UCS_EVENT_SET_EVREAD), 50u);
  EXPECT_GT(seen.count(UCS_EVENT_SET_EVWRITE), 50u);
  EXPECT_EQ(seen.count(UCS_EVENT_SET_EVREAD) + seen.count(UCS_EVENT_SET_EVWRITE), 200u);
  ucs_event_set_cleanup(set);
  close(fds[0]);
  close(fds[1]);
}

// As over RDMA: rendezvous makes the transport await its wiring.
Node awaiting() { return Node(*make_ucx_transport({{"lo"}, "", size_t{64} << 10})); }

TEST(UcxWiring, WhatStillConnectsWhenItIsLeftIsTakenUpAgain) {
  Node a = awaiting();
  Node b = awaiting();
  const auto payload = pattern(1000, 1);
  // b does not answer.
  ASSERT_TRUE(a.connect(1, b).ok());
  ASSERT_TRUE(a.transport->send(1, header_of(1), payload, 1).ok());
  idle({&a}, std::chrono::milliseconds(50));
  EXPECT_TRUE(a.seen.sent.empty()) << "nothing goes out before both ends have met";
  a.transport->disconnect(1);
  a.turn();
  ASSERT_EQ(a.seen.sent.count({1, 1}), 1u);
  EXPECT_FALSE(a.seen.sent.at({1, 1}));
  EXPECT_EQ(a.transport->send(1, header_of(1), {}, 0).code(), Code::kUnavailable);
  // Now it does, and is known by another number.
  ASSERT_TRUE(a.connect(2, b).ok());
  ASSERT_TRUE(a.transport->send(2, header_of(2), payload, 2).ok());
  ASSERT_TRUE(pump({&a, &b}, [&] { return b.seen.received == 1 && a.seen.sent.size() == 2; }));
  EXPECT_TRUE(a.seen.sent.at({2, 2}));
  EXPECT_EQ(number_of(b.seen.messages[0].header), 2u);
  EXPECT_TRUE(a.seen.lost.empty());
}

TEST(UcxWiring, WhatConnectsAfterItWasLeftIsClosed) {
  Node a = awaiting();
  Node b = awaiting();
  ASSERT_TRUE(a.connect(1, b).ok());
  a.transport->disconnect(1);
  idle({&a, &b}, std::chrono::milliseconds(100));
  ASSERT_TRUE(a.connect(1, b).ok());
  ASSERT_TRUE(a.transport->send(1, header_of(1), {}, 0).ok());
  ASSERT_TRUE(pump({&a, &b}, [&] { return b.seen.received == 1; }));
  EXPECT_TRUE(a.seen.lost.empty());
}

TEST(UcxWiring, ATransportMayEndWhileItStillConnects) {
  const Node b = awaiting();
  for (int life = 0; life < 3; ++life) {
    Node a = awaiting();
    ASSERT_TRUE(a.connect(1, b).ok());
    if (life != 0) a.transport->disconnect(1);
    if (life == 2) a.turn();
  }
}

TEST(UcxAddress, IsRefusedWhenItIsOfAnotherVersionOrDamaged) {
  const std::string raw = "some raw bytes\nwith anything in them";
  const std::string sealed = seal_address("ucx 1.13", raw);
  EXPECT_EQ(open_address("ucx 1.13", sealed).raw, raw);
  const auto other = open_address("ucx 1.16", sealed);
  EXPECT_TRUE(other.raw.empty());
  EXPECT_THAT(other.refusal, HasSubstr("'ucx 1.13'"));
  for (size_t cut = 0; cut < sealed.size(); ++cut) {
    EXPECT_TRUE(open_address("ucx 1.13", sealed.substr(0, cut)).raw.empty()) << cut;
  }
  for (size_t at = 0; at < sealed.size(); ++at) {
    std::string damaged = sealed;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    EXPECT_TRUE(open_address("ucx 1.13", damaged).raw.empty()) << at;
  }
}

// Speaks UCX as we do, and has headers of its own idea.
class Stranger {
 public:
  explicit Stranger(const std::string& sealed)
      : worker_(*UcxWorker::open(settings_for({{{"lo", false}}, ""}, {}, {}))) {
    const std::string raw = open_address(sealed.substr(0, sealed.find('\n')), sealed).raw;
    ucp_ep_params_t params{};
    params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
    params.address = reinterpret_cast<const ucp_address_t*>(raw.data());
    params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
    EXPECT_EQ(ucp_ep_create(worker_.get(), &params, &ep_), UCS_OK);
  }
  ~Stranger() {
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    param.flags = UCP_EP_CLOSE_FLAG_FORCE;
    ucp_ep_close_nbx(ep_, &param);
  }
  bool send(size_t header_bytes, size_t payload_bytes) {
    static const std::vector<std::byte> kJunk(10'000, std::byte{0x5a});
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL;
    return ucp_am_send_nbx(ep_, 0, kJunk.data(), header_bytes, kJunk.data(), payload_bytes,
                           &param) == nullptr;
  }
  void turn() { ucp_worker_progress(worker_.get()); }

 private:
  UcxWorker worker_;
  ucp_ep_h ep_ = nullptr;
};

TEST(UcxTransport, DropsAndCountsWhatHasNotOurHeader) {
  Node a((*make_ucx_transport({{"lo"}, "", {}})));
  Node b((*make_ucx_transport({{"lo"}, "", {}})));
  Stranger stranger(a.transport->address());
  const std::pair<size_t, size_t> shapes[] = {{0, 0},     {0, 100}, {5, 0},
                                              {127, 500}, {129, 0}, {4000, 1}};
  uint64_t sent = 0;
  ASSERT_TRUE(pump({&a}, [&] {
    stranger.turn();
    if (sent < std::size(shapes) && stranger.send(shapes[sent].first, shapes[sent].second)) ++sent;
    return a.transport->counters().messages_dropped == std::size(shapes);
  }));
  EXPECT_EQ(a.seen.headers, 0u);
  // The right size goes through: that the bytes are no frame is for the owner to find out.
  ASSERT_TRUE(pump({&a}, [&] {
    stranger.turn();
    if (sent == std::size(shapes) && stranger.send(kFrameBytes, 77)) ++sent;
    return a.seen.received == 1;
  }));
  ASSERT_TRUE(b.connect(1, a).ok());
  ASSERT_TRUE(b.transport->send(1, header_of(3), {}, 0).ok());
  ASSERT_TRUE(pump({&a, &b}, [&] { return a.seen.received == 2; }))
      << "and nobody else is disturbed";
}

}  // namespace
}  // namespace gradring::transport::conformance
