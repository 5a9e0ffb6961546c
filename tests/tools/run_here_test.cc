// Which hosts of -H gradring-run takes for its own.
#include <gtest/gtest.h>

#include "tools/run/here.h"

namespace gradring::tools {
namespace {

TEST(Here, IsByNameAndByAddress) {
  for (const char* host : {"", "localhost", "127.0.0.1", "127.0.1.1", "::1"})
    EXPECT_TRUE(is_here(host)) << host;
  EXPECT_TRUE(is_here(host_name()));
  for (const char* host : {"alpha", "192.0.2.1", "2001:db8::1", "127.0.0.1.example"})
    EXPECT_FALSE(is_here(host)) << host;
}

TEST(Here, IsByItsNameInAnyCaseAndWithoutItsDomain) {
  for (const char* host : {"Node-1.Example.com", "node-1.example.com", "NODE-1", "node-1"})
    EXPECT_TRUE(is_name_of(host, "Node-1.Example.com")) << host;
  for (const char* host : {"node-1.example", "node", "node-10", "example.com", "user@node-1"})
    EXPECT_FALSE(is_name_of(host, "Node-1.Example.com")) << host;
  EXPECT_TRUE(is_name_of("alpha", "alpha"));
  EXPECT_FALSE(is_name_of("alpha.example.com", "alpha")) << "whose domain that is, nobody is asked";
}

}  // namespace
}  // namespace gradring::tools
