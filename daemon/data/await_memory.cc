// What a driver makes for jobs, which takes its time while other jobs have ops under way.

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "daemon/clock.h"
#include "daemon/data/data_thread.h"

namespace gradring::daemon {
namespace {

// For memory that is awaited, but not as long as other nodes would miss us.
constexpr auto kWaits = std::chrono::seconds(1);

}  // namespace

// By the GPUs, and before the lanes are told: a transport that reaches GPUs pins by itself what it
// does not find pinned, and asks nobody what they do meanwhile.
void DataThread::pin_memory(JobExecutor& job) {
  job.await_memory();
  const auto made = std::make_shared<std::promise<Pinned>>();
  pins_made_[job.id()] = {made->get_future(), monotonic_now()};
  pins_.put([this, memory = job.memory(), id = job.id(), made] {
    made->set_value(options_.gpus->make_ready(memory, std::nullopt));
    commands_->post(MemoryPinned{id});
  });
}

// It has been made.
void DataThread::have_memory(const JobId& id) {
  auto made = pins_made_.extract(id);
  if (made.empty()) return;  // somebody has waited for it
  Pinned pinned = made.mapped().made.get();
  // GPUs that have failed are no reason to have no job: let_ride() will say it.
  if (!pinned) spdlog::debug("the staging memory is not pinned: {}", pinned.error().message());
  JobExecutor* job = find(id);
  const auto is_it = [&id](const auto& removed) { return removed->id() == id; };
  if (job == nullptr) job = std::find_if(removed_.begin(), removed_.end(), is_it)->get();
  const Status ready = job->have_memory(pinned ? *std::move(pinned) : nullptr, lanes_);
  if (!ready.ok()) refuse_job(id, ready.message());
}

// Nothing of it begins any more.
void DataThread::refuse_job(const JobId& id, const std::string& why) {
  JobExecutor* const job = find(id);
  if (job == nullptr) return;
  job->refuse(why);
  submit_held(id, *job);
}

// Of each GPU, for slices that go from there.
void DataThread::prepare_ride(JobExecutor& job, const core::EngineOptions& engine) {
  if (!options_.gpu_direct || options_.gpus == nullptr || engine.checksum || engine.verify) return;
  job.await_ride();
  const auto made = std::make_shared<std::promise<StagingMade>>();
  staging_made_[job.id()] = {made->get_future(), monotonic_now()};
  makes_staging_.put([this, engine, id = job.id(), made] {
    made->set_value(GpuStaging::create(*options_.gpus, engine.slots, engine.start_buffers,
                                       engine.plan.slice_bytes_max));
    commands_->post(GpuStagingMade{id});
  });
}

// Where it cannot be had, what lies on GPUs goes by way of the host.
void DataThread::let_ride(const JobId& id) {
  auto made = staging_made_.extract(id);
  if (made.empty()) return;  // somebody has waited for it
  if (made.mapped().made.wait_for(kWaits) != std::future_status::ready) return go_by_host(id);
  auto staging = made.mapped().made.get();
  JobExecutor* const job = find(id);
  if (job == nullptr) {
    if (staging) let_go(*std::move(staging));
    return;
  }
  Status refused = staging ? (*staging)->make_ready(lanes_) : staging.error();
  if (refused.ok()) {
    const std::string lacking = (*staging)->lacking();
    if (!lacking.empty()) {
      spdlog::warn(
          "what job {} has on some of the GPUs here goes by the host's memory although gpu-direct "
          "is on: {}",
          job->engine().view().job, lacking);
    }
    return job->let_ride(*std::move(staging));
  }
  spdlog::warn("slices of job {} go from the host's memory although gpu-direct is on: {}",
               job->engine().view().job, refused.message());
  job->let_ride(nullptr);
  if (!staging) return;
  (*staging)->leave_transports();
  let_go(*std::move(staging));
}

// If it comes after all, it goes where it was made.
void DataThread::go_by_host(const JobId& id) {
  staging_made_.erase(id);
  JobExecutor* const job = find(id);
  if (job == nullptr) return;
  spdlog::warn(
      "slices of job {} go from the host's memory although gpu-direct is on: a GPU's driver gave "
      "no memory for them in time; see nvidia-smi and the kernel's log",
      job->engine().view().job);
  job->let_ride(nullptr);
}

void DataThread::look_at_awaited_memory(core::Time now) {
  std::vector<JobId> late;
  for (const auto& [id, awaited] : staging_made_) {
    if (now - awaited.since >= options_.gpu_memory_within) late.push_back(id);
  }
  for (const JobId& id : late) go_by_host(id);
  for (auto& [id, awaited] : pins_made_) {
    if (now - awaited.since < options_.gpu_memory_within) continue;
    if (std::exchange(awaited.late, true)) continue;
    // What is told of memory to a lane that reaches GPUs has the driver pin it as well.
    refuse_job(id,
               "a GPU's driver did not pin the job's memory in time, which gpu-direct takes; see "
               "nvidia-smi and the kernel's log");
  }
}

// What waits for that alone counts, whoever goes meanwhile.
void DataThread::let_ride_now(const std::function<bool(const Submit&)>& wanted) {
  std::vector<JobId> awaited;
  for (const auto& [id, job] : jobs_) {
    const auto of_it = [&, of = id](const Submit& s) { return s.job == of && wanted(s); };
    if (gate_.any(of_it)) awaited.push_back(id);
  }
  for (const JobId& id : awaited) {
    const auto pin = pins_made_.find(id);
    const bool pinned =
        pin == pins_made_.end() || pin->second.made.wait_for(kWaits) == std::future_status::ready;
    if (!pinned) continue;
    have_memory(id);
    let_ride(id);
  }
  if (!awaited.empty()) pass_gate();
}

}  // namespace gradring::daemon
