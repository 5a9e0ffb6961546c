#include "daemon/control/queries/settings_report.h"

#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <string>

namespace gradring::daemon {
namespace {

// Of the device "eth0 (TCP)"; empty where it is none of the kernel's, as "mlx5_0:1 (RDMA)".
std::string mtu_of(const std::string& lane) {
  std::ifstream file("/sys/class/net/" + lane.substr(0, lane.find_first_of(", ")) + "/mtu");
  std::string mtu;
  std::getline(file, mtu);
  return mtu;
}

bool is_rdma(const StandingFacts::Lane& lane) {
  return lane.device.find("(RDMA)") != std::string::npos;
}

// RoCE v1 and v2 do not hear each other, nor do IPv4 and IPv6.
std::string kind_of(const wire::GidReport& gid) {
  if (!gid.type().starts_with("RoCE")) return gid.type();
  return gid.type() + (gid.address().starts_with("::ffff:") ? ", IPv4" : ", IPv6");
}

// In ns: no verdict knows it, it is compared with that of other nodes, for people.
int64_t time_of_day() {
  timespec t{};
  clock_gettime(CLOCK_REALTIME, &t);
  return t.tv_sec * int64_t{1'000'000'000} + t.tv_nsec;
}

}  // namespace

void add_settings(const Config& config, const std::vector<StandingFacts::Lane>& lanes,
                  wire::StatusReport* report) {
  report->set_wall_clock(time_of_day());
  const auto add = [report](std::string name, std::string value) {
    wire::Setting* setting = report->add_settings();
    setting->set_name(std::move(name));
    setting->set_value(std::move(value));
  };
  const auto milliseconds = [](core::Time time) {
    return fmt::format("{} ms", time / core::kMillisecond);
  };
  add("checksum", config.checksum ? "on" : "off");
  add("verify", config.verify ? "on" : "off");
  add("deterministic", config.deterministic ? "on" : "off");
  add("completion", config.completion);
  add("policy", config.policy);
  add("tuning", config.tuning);
  add("suspect", milliseconds(config.suspect));
  add("decide", milliseconds(config.decide));
  add("form-deadline", milliseconds(config.form_deadline));
  add("op-deadline", milliseconds(config.op_deadline));
  add("restart-grace", milliseconds(config.restart_grace));
  add("quorum-wait", milliseconds(config.quorum_wait));
  add("staging-limit", fmt::format("{}", config.staging_limit));
  add("max-jobs", fmt::format("{}", config.max_jobs));
  add("lanes", fmt::format("{}", lanes.size()));
  const bool rdma = std::any_of(lanes.begin(), lanes.end(), is_rdma);
  const auto add_rdma = [&](const char* name, const std::optional<uint32_t>& value) {
    if (rdma) add(name, value ? fmt::format("{}", *value) : "auto");
  };
  add_rdma("rdma-traffic-class", config.rdma_traffic_class);
  add_rdma("rdma-service-level", config.rdma_service_level);
  add_rdma("rdma-path-mtu", config.rdma_path_mtu);
  for (size_t lane = 0; lane < lanes.size(); ++lane) {
    if (const std::string kind = kind_of(lanes[lane].gid); !kind.empty()) {
      add(fmt::format("addresses of lane {}", lane), kind);
    }
    if (std::string mtu = mtu_of(lanes[lane].device); !mtu.empty()) {
      add(fmt::format("mtu of lane {}", lane), std::move(mtu));
    }
  }
}

}  // namespace gradring::daemon
