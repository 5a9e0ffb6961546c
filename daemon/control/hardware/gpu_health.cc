#include "daemon/control/hardware/gpu_health.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <string_view>

#include "daemon/notice.h"

namespace gradring::daemon {
namespace {

using machine::GpuFault;
using machine::GpuMeaning;
using machine::GpuNews;
using machine::GpuVerdict;

// Whatever a driver tells: each has a line in what people are shown.
constexpr size_t kGpusMost = 1024;  // and parts
constexpr size_t kFaultsMost = 32;  // kinds, of each; the rest together is one
constexpr uint64_t kOtherXids = 0;  // which is no Xid

// A program that is at fault may be so a thousand times a second.
constexpr core::Time kSaidAgain = 60 * core::kSecond;

bool is_other(const std::pair<GpuFault, uint64_t>& what) {
  return what.first == GpuFault::kXid && what.second == kOtherXids;
}

uint64_t milliseconds_since(core::Time then, core::Time now) {
  return static_cast<uint64_t>(std::max<core::Time>(now - then, 0) / core::kMillisecond);
}

}  // namespace

std::string bare_uuid(const std::string& name) {
  for (const std::string_view prefix : {"GPU-", "MIG-"}) {
    if (name.starts_with(prefix)) return name.substr(prefix.size());
  }
  return name;
}

std::string uuid_text(const std::array<std::byte, 16>& uuid) {
  std::string text;
  for (size_t i = 0; i < uuid.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", std::to_integer<unsigned>(uuid[i]));
  }
  return text;
}

GpuHealth::GpuHealth(machine::GpuWatch* watch) : watch_(watch) { say_over(); }

std::vector<GpuHealth::Lost> GpuHealth::take(core::Time now) {
  std::vector<Lost> lost;
  if (watch_ == nullptr || watch_->over()) return lost;
  for (const GpuNews& news : watch_->take()) {
    for (Lost& one : heard(news, now)) lost.push_back(std::move(one));
  }
  say_over();
  return lost;
}

void GpuHealth::say_over() const {
  if (watch_ == nullptr || watch_->fault().empty()) return;
  spdlog::warn("errors of GPUs are not heard of until gradringd is restarted: {}", watch_->fault());
}

// Null: there are more than any machine has.
GpuHealth::Gpu* GpuHealth::enter(const GpuNews& news) {
  const std::string& name = news.part.empty() ? news.gpu : news.part;
  const std::string key = bare_uuid(name);
  if (gpus_.size() >= kGpusMost && gpus_.count(key) == 0) return nullptr;
  Gpu& gpu = gpus_[key];
  gpu.name = name;
  gpu.pci = news.pci;
  if (!news.part.empty()) gpu.whole = news.gpu;
  return &gpu;
}

std::vector<GpuHealth::Lost> GpuHealth::heard(const GpuNews& news, core::Time now) {
  std::vector<Lost> lost;
  Gpu* const gpu = enter(news);
  if (gpu == nullptr) return lost;
  if (news.kind != GpuNews::Kind::kFault) {
    const auto whole = gpus_.find(bare_uuid(gpu->whole));
    if (whole != gpus_.end()) lose(*gpu, whole->second.why_unusable, &lost);
    return lost;
  }
  What what{news.fault, news.fault == GpuFault::kXid ? news.xid : 0};
  if (gpu->faults.size() >= kFaultsMost && gpu->faults.count(what) == 0) {
    what = {GpuFault::kXid, kOtherXids};
  }
  Fault& fault = gpu->faults[what];
  ++fault.count;
  fault.last_at = now;
  if (fault.said_at == 0 || now - fault.said_at >= kSaidAgain) {
    say(*gpu, {news.fault, news.xid}, fault);
    fault.said_at = now;
    fault.unsaid = 0;
  } else {
    ++fault.unsaid;
  }
  const GpuMeaning meaning = machine::meaning_of(news.fault, news.xid);
  if (meaning.verdict != GpuVerdict::kUnusable) return lost;
  const std::string why =
      fmt::format("{} ({})", meaning.what, machine::title_of(news.fault, news.xid));
  lose(*gpu, why, &lost);
  for (auto& [uuid, part] : gpus_) {
    if (part.whole == gpu->name) lose(part, why, &lost);
  }
  return lost;
}

void GpuHealth::lose(Gpu& gpu, const std::string& why, std::vector<Lost>* lost) const {
  if (why.empty() || !gpu.why_unusable.empty()) return;
  gpu.why_unusable = why;
  lost->push_back({gpu.name, why});
}

void GpuHealth::say(const Gpu& gpu, const What& what, const Fault& fault) const {
  const GpuMeaning meaning = machine::meaning_of(what.first, what.second);
  const bool unusable = meaning.verdict == GpuVerdict::kUnusable;
  const std::string title = machine::title_of(what.first, what.second);
  const std::string again =
      fault.unsaid == 0 ? "" : fmt::format("; {} times more since it was said last", fault.unsaid);
  tell(unusable ? Notice::kGpuUnusable : Notice::kGpuError,
       meaning.verdict == GpuVerdict::kNote ? spdlog::level::info : spdlog::level::warn,
       {{"GRADRING_GPU", gpu.name},
        {"GRADRING_PCI", text_of(gpu.pci)},
        {"GRADRING_XID", machine::word_of(what.first, what.second)}},
       fmt::format("GPU {} ({}) {} ({}{}): {}", gpu.name, text_of(gpu.pci), meaning.what, title,
                   again, meaning.remedy));
}

std::string GpuHealth::why_unusable(const std::string& uuid) const {
  const auto it = gpus_.find(uuid);
  if (it == gpus_.end() || it->second.why_unusable.empty()) return "";
  return fmt::format("GPU {} {}, and nothing is done with it until gradringd is restarted",
                     it->second.name, it->second.why_unusable);
}

void GpuHealth::add_to(wire::TopologyReport* report, core::Time now) const {
  wire::GpuErrorsReport* const to = report->mutable_gpu_errors();
  to->set_watched(watch_ != nullptr && !watch_->over());
  if (watch_ != nullptr) to->set_reason(watch_->fault());
  for (const auto& [uuid, gpu] : gpus_) {
    for (const auto& [what, fault] : gpu.faults) {
      const GpuMeaning meaning = machine::meaning_of(what.first, what.second);
      wire::GpuErrorReport* const one = to->add_errors();
      one->set_gpu(gpu.name);
      one->set_pci(text_of(gpu.pci));
      one->set_error(is_other(what) ? "others" : machine::title_of(what.first, what.second));
      one->set_verdict(name_of(meaning.verdict));
      one->set_what(meaning.what);
      one->set_remedy(meaning.remedy);
      one->set_count(fault.count);
      one->set_last_ms(milliseconds_since(fault.last_at, now));
    }
  }
}

std::vector<metrics::GpuSeries> GpuHealth::series() const {
  std::vector<metrics::GpuSeries> all;
  for (const auto& [uuid, gpu] : gpus_) {
    metrics::GpuSeries& one = all.emplace_back();
    one.gpu = gpu.name;
    one.unusable = !gpu.why_unusable.empty();
    for (const auto& [what, fault] : gpu.faults) {
      one.errors.emplace_back(
          is_other(what) ? metrics::kOther : machine::word_of(what.first, what.second),
          fault.count);
    }
  }
  return all;
}

}  // namespace gradring::daemon
