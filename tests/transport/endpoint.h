#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "transport/tcp/endpoints.h"

namespace gradring::transport {

// Of one address, in a network of so many bits.
inline Endpoint endpoint(const std::string& address, uint8_t network_bits, uint16_t port = 0) {
  Endpoint made;
  made.v6 = address.find(':') != std::string::npos;
  EXPECT_EQ(inet_pton(made.v6 ? AF_INET6 : AF_INET, address.c_str(), made.address.data()), 1);
  made.network_bits = network_bits;
  made.port = port;
  return made;
}

}  // namespace gradring::transport
