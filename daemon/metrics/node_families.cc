// The daemon itself: is it well, and how far is it from its limits.

#include "daemon/metrics/labels.h"
#include "daemon/metrics/page.h"

namespace gradring::daemon::metrics {
namespace {

using Counts = std::map<std::string, uint64_t>;

void add_all(Family family, const char* label, const Counts& counts) {
  for (const auto& [value, count] : counts) family.add({{label, value}}, count);
}

void write_process(const Snapshot& s, core::Time now, Page* page) {
  page->gauge("gradring_build_info", "Always 1; what runs here")
      .add({{"version", label_of(s.version)}, {"transport", label_of(s.transport)}}, 1);
  page->gauge("gradring_uptime_seconds", "Since the daemon was started")
      .add({}, seconds(s.uptime + now - s.taken));
  page->gauge("gradring_snapshot_age_seconds",
              "How old everything else here is; more than a few seconds: the daemon is stuck")
      .add({}, seconds(now - s.taken));
  page->gauge("gradring_draining", "1 while the daemon was told to stop and lets jobs end")
      .add({}, s.draining ? 1 : 0);
  page->counter("gradring_cpu_seconds_total", "Processor time of the daemon")
      .add({}, s.cpu_seconds);
  page->gauge("gradring_resident_memory_bytes", "Memory of the daemon that is in RAM")
      .add({}, s.rss_bytes);
  page->gauge("gradring_open_files", "Descriptors that the daemon has open")
      .add({}, s.open_files.used);
  page->gauge("gradring_open_files_limit", "How many it may have open").add({}, s.open_files.limit);

  Family busy = page->counter("gradring_loop_busy_seconds_total",
                              "Time in which the thread's event loop did something");
  busy.add({{"thread", "control"}}, seconds(s.control_loop.busy));
  busy.add({{"thread", "data"}}, seconds(s.data_loop.busy));
  Family longest = page->gauge("gradring_loop_max_seconds",
                               "Longest turn of the thread's event loop in the last minute");
  longest.add({{"thread", "control"}}, seconds(s.control_loop.longest));
  longest.add({{"thread", "data"}}, seconds(s.data_loop.longest));
}

void write_limits(const Snapshot& s, Page* page) {
  page->gauge("gradring_sessions", "Trainers that are attached").add({}, s.sessions.used);
  page->gauge("gradring_sessions_limit", "max-sessions").add({}, s.sessions.limit);
  page->gauge("gradring_segment_bytes", "Shared memory of the uid that holds most")
      .add({}, s.segment_bytes.used);
  page->gauge("gradring_segment_limit_bytes", "segment-limit, of a uid")
      .add({}, s.segment_bytes.limit);
  page->gauge("gradring_staging_limit_bytes", "staging-limit, of a job").add({}, s.staging_limit);
  page->gauge("gradring_feedback_limit_bytes", "feedback-limit, of a job")
      .add({}, s.feedback_limit);
  add_all(page->gauge("gradring_jobs", "Jobs that this node has part in, by state"), "state",
          s.jobs_by_state);
  page->gauge("gradring_jobs_limit", "max-jobs, of those that form or run").add({}, s.jobs.limit);
}

void write_incidents(const Snapshot& s, Page* page) {
  Family failures = page->counter("gradring_job_failures_total", "Jobs that failed, by cause");
  for (size_t cause = 1; cause < s.job_failures.size(); ++cause) {
    failures.add({{"cause", std::string(name_of(static_cast<Cause>(cause)))}},
                 s.job_failures[cause]);
  }
  add_all(page->counter("gradring_client_deaths_total",
                        "Trainers that ended without leaving their job, by how"),
          "cause", s.client_deaths);
}

void write_traffic(const Snapshot& s, Page* page) {
  page->counter("gradring_messages_sent_total", "Messages of the data transport")
      .add({}, s.messages_sent);
  page->counter("gradring_messages_received_total", "Messages of the data transport")
      .add({}, s.messages_received);
  page->counter("gradring_payload_sent_bytes_total", "Bytes of gradients to all peers")
      .add({}, s.payload_bytes_sent);
  page->counter("gradring_payload_received_bytes_total", "Bytes of gradients from all peers")
      .add({}, s.payload_bytes_received);
  page->counter("gradring_registrations_total", "Times that memory was made known to RDMA cards")
      .add({}, s.registrations);
  page->gauge("gradring_registered_bytes", "Memory that RDMA cards know, a lane each")
      .add({}, s.registered_bytes);
  page->counter("gradring_bundles_sent_total", "Messages in which several frames shared the way")
      .add({}, s.bundles_sent);
  page->counter("gradring_frames_bundled_total", "Frames that went in them")
      .add({}, s.frames_bundled);
  page->counter("gradring_gpu_input_bytes_total", "Bytes of inputs that this node's GPUs summed")
      .add({}, s.gpus.inputs);
  page->counter("gradring_gpu_sum_bytes_total", "Bytes that they brought to the host of those")
      .add({}, s.gpus.sums);
  page->counter("gradring_gpu_result_bytes_total", "Bytes that they took back from the host")
      .add({}, s.gpus.results);
  page->counter("gradring_gpu_sent_bytes_total", "Bytes that went from them to other nodes at once")
      .add({}, s.gpus.sent);
  add_all(page->counter("gradring_frames_dropped_total", "Frames that were not believed, by cause"),
          "cause", s.frames_dropped);
  add_all(page->counter("gradring_malformed_messages_total",
                        "Control messages that made no sense, by who sent them"),
          "cause", s.malformed_messages);
}

}  // namespace

void write_node(const Snapshot& snapshot, core::Time now, Page* page) {
  write_process(snapshot, now, page);
  write_limits(snapshot, page);
  write_incidents(snapshot, page);
  write_traffic(snapshot, page);
}

}  // namespace gradring::daemon::metrics
