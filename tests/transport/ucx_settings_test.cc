// What this body tells UCX.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <ucs/config/parser.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "transport/ucx/devices.h"
#include "transport/ucx/settings.h"
#include "transport/ucx/ucx_transport.h"
#include "transport/ucx/worker.h"

namespace gradring::transport {
namespace {

using testing::HasSubstr;

std::string value_of(const std::vector<UcxSetting>& settings, const std::string& name) {
  for (const UcxSetting& setting : settings) {
    if (setting.name == name) return setting.value;
  }
  return "unset";
}

TEST(UcxSettings, RdmaTakesItsTransportsAndTcpKeepsOffZeroCopy) {
  const auto value = [](const DeviceChoice& choice, const std::string& name) {
    return value_of(settings_for(choice, {}, {}), name);
  };
  const DeviceChoice card{{{"rxe0:1", true}}, ""}, wire{{{"eth0", false}}, ""};
  EXPECT_EQ(value(card, "NET_DEVICES"), "rxe0:1");
  EXPECT_THAT(value(card, "TLS"), HasSubstr("rc,ud"));
  EXPECT_EQ(value(card, "ZCOPY_THRESH"), "unset");
  EXPECT_EQ(value(wire, "TLS"), "tcp,self");
  EXPECT_EQ(value(wire, "ZCOPY_THRESH"), "inf");
  const std::string version = ucx_version();
  const int minor = std::stoi(version.substr(version.find('.') + 1));
  EXPECT_EQ(value(card, "UD_ETH_DGID_CHECK"), version[0] == '1' && minor < 19 ? "n" : "unset");
  EXPECT_EQ(value(wire, "UD_ETH_DGID_CHECK"), "unset");
}

TEST(UcxSettings, TcpListensInTheRangeThatIsGiven) {
  const DeviceChoice wire{{{"eth0", false}}, ""};
  const auto settings = settings_for(wire, {}, {}, false, {7310, 7317});
  const auto given = std::ranges::find_if(
      settings, [](const UcxSetting& one) { return one.name.ends_with("PORT_RANGE"); });
  ASSERT_NE(given, settings.end());
  EXPECT_EQ(given->value, "7310-7317");
  EXPECT_TRUE(UcxWorker::open(settings)) << "UCX knows it";
}

TEST(UcxSettings, WhatIsSaidOfACardReachesUcxByTheNamesOfItsVersion) {
  const DeviceChoice card{{{"rxe0:1", true}}, ""}, wire{{{"eth0", false}}, ""};
  const std::string version = ucx_version();
  const std::string gid = std::stoi(version.substr(version.find('.') + 1)) < 17 && version[0] == '1'
                              ? "GID_INDEX"
                              : "IB_GID_INDEX";
  const RdmaOptions options{5, "", 106, 3, 1024, std::chrono::milliseconds(250), 2, 6};
  const auto said = settings_for(card, {}, options);
  EXPECT_EQ(value_of(said, gid), "5");
  EXPECT_EQ(value_of(said, "IB_TRAFFIC_CLASS"), "106");
  EXPECT_EQ(value_of(said, "IB_SL"), "3");
  EXPECT_EQ(value_of(said, "IB_PATH_MTU"), "1024");
  EXPECT_EQ(value_of(said, "RC_TIMEOUT"), "250ms");
  EXPECT_EQ(value_of(said, "RC_RETRY_COUNT"), "2");
  EXPECT_EQ(value_of(said, "RC_RNR_RETRY_COUNT"), "6");
  for (const auto& settings : {settings_for(card, {}, {}), settings_for(wire, {}, options)}) {
    for (const std::string name : {gid.c_str(), "IB_TRAFFIC_CLASS", "IB_SL", "IB_PATH_MTU",
                                   "RC_TIMEOUT", "RC_RETRY_COUNT", "RC_RNR_RETRY_COUNT"}) {
      EXPECT_EQ(value_of(settings, name), "unset") << name;
    }
  }
}

#if UCP_API_VERSION < UCP_VERSION(1, 14)  // the parser is UCX's own affair, and later ones differ
// UCX only warns of a name that it does not know, and only once a card is there. So its own tables
// are asked. Their lists are walked by a macro that reckons from a null pointer.
__attribute__((no_sanitize("undefined"))) bool takes(const std::string& prefix,
                                                     const UcxSetting& setting) {
  ucs_config_global_list_entry_t* entry = nullptr;
  ucs_list_for_each(entry, &ucs_config_global_list, list) {
    if (entry->prefix == nullptr || entry->prefix != prefix) continue;
    std::vector<std::max_align_t> opts(entry->size / sizeof(std::max_align_t) + 1);
    EXPECT_EQ(ucs_config_parser_fill_opts(opts.data(), entry->table, "UCX_", entry->prefix, 0),
              UCS_OK);
    const ucs_status_t status = ucs_config_parser_set_value(
        opts.data(), entry->table, setting.name.c_str(), setting.value.c_str());
    ucs_config_parser_release_opts(opts.data(), entry->table);
    return status == UCS_OK;
  }
  return false;
}

TEST(UcxSettings, TheCardsTablesHaveTheNames) {
  ASSERT_TRUE(ucx_viability().works);  // by then UCX has loaded what it has
  if (!takes("RC_VERBS_", {"RC_FC_ENABLE", "y"})) GTEST_SKIP() << "this UCX has no RDMA";
  const RdmaOptions options{5, "", 255, 15, 4096, std::chrono::milliseconds(250), 7, 7};
  size_t of_cards = 0;
  for (const UcxSetting& setting : settings_for({{{"rxe0:1", true}}, ""}, {}, options)) {
    const bool card = setting.name == "GID_INDEX";
    const bool both = setting.name.starts_with("IB_"), rc = setting.name.starts_with("RC_");
    EXPECT_TRUE(!card || takes("IB_", setting));
    EXPECT_TRUE(!(both || rc) || takes("RC_VERBS_", setting)) << setting.name;
    EXPECT_TRUE(!both || takes("UD_VERBS_", setting)) << setting.name;
    of_cards += card || both || rc ? 1 : 0;
  }
  EXPECT_EQ(of_cards, 7u);
  EXPECT_FALSE(takes("RC_VERBS_", {"IB_PATH_MTU", "256"})) << "then rdma-path-mtu may allow it";
  EXPECT_FALSE(takes("IB_", {"IB_GID_INDEX", "5"}));
}
#endif

}  // namespace
}  // namespace gradring::transport
