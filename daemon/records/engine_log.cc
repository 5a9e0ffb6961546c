#include "daemon/records/engine_log.h"

#include "daemon/wire/report_wire.h"
#include "daemon/wire/view_wire.h"
#include "proto/wire.h"

namespace gradring::daemon {

EngineLog::EngineLog(RecordLog* log, const KeptSlices* kept, const ToldOutcomes* told)
    : log_(log), kept_(kept), told_(told) {
  landed_.set_landed(true);
}

void EngineLog::write() { log_->append(entry_); }

void EngineLog::begin(const core::EngineRecord& whole) {
  log_->begin_anew();
  entry_.Clear();  // it may hold a head already: two epochs in a row without an op
  to_wire(whole, entry_.mutable_head());
  write();
  for (const auto& [key, op] : whole.ops) {
    entry_.Clear();
    to_wire(op, *kept_, entry_.mutable_op());
    write();
  }
  for (const auto& [session, ends] : *told_) {
    for (const auto& [ticket, outcome] : ends) told(session, ticket, outcome);
  }
  log_->publish();
}

void EngineLog::submitted(const core::Op& op, const core::Submission& submission,
                          const core::LocalRecord& by) {
  wire::OpSubmitted* entry = entry_.mutable_submitted();
  entry->Clear();
  to_wire(core::head_of(op), *kept_, entry->mutable_op());
  to_wire(submission, entry->mutable_submission());
  to_wire(by, entry->mutable_by());
  write();
}

namespace {

void write_held(const core::Op& op, uint32_t slice, const core::ValueId& value,
                wire::SliceHeld* to) {
  gradring::to_wire(op.key, to->mutable_key());
  to->set_slice(slice);
  to->set_slices(op.plan.slices);
  to->set_slice_bytes(op.plan.slice_bytes);
  to->set_epoch(value.epoch);
  to->set_ranks(value.ranks);
}

}  // namespace

void EngineLog::held(const core::Op& op, uint32_t slice, const core::ValueId& value,
                     core::Staging from) {
  wire::SliceHeld* entry = held_.mutable_held();
  write_held(op, slice, value, entry);
  entry->set_staging_kind(static_cast<uint32_t>(from.kind));
  entry->set_staging_index(from.index);
  log_->append(held_);
}

void EngineLog::landed() { log_->append(landed_); }

void EngineLog::kept(const core::Op& op, uint32_t slice) {
  wire::SliceKept* entry = copied_.mutable_kept();
  gradring::to_wire(op.key, entry->mutable_key());
  entry->set_slice(slice);
  const uint32_t number = *op.slices[slice].kept;
  to_wire(number, kept_->place(number), entry->mutable_place());
  log_->append(copied_);
}

void EngineLog::dropped(const core::Op& op, uint32_t slice) {
  wire::SliceDropped* entry = dropped_.mutable_dropped();
  gradring::to_wire(op.key, entry->mutable_key());
  entry->set_slice(slice);
  log_->append(dropped_);
}

void EngineLog::elsewhere(const core::Op& op, uint32_t slice, const core::ValueId& value) {
  write_held(op, slice, value, elsewhere_.mutable_elsewhere());
  log_->append(elsewhere_);
}

void EngineLog::decided(const core::Op& op) {
  wire::OpDecided* entry = entry_.mutable_decided();
  gradring::to_wire(op.key, entry->mutable_key());
  entry->mutable_outcome()->set_epoch(op.outcome.epoch);
  entry->mutable_outcome()->set_ranks(op.outcome.ranks);
  write();
}

void EngineLog::ended(const core::Op& op) {
  entry_.mutable_ended()->Clear();
  to_wire(core::head_of(op), *kept_, entry_.mutable_ended());
  write();
}

void EngineLog::forgotten(const OpKey& key) {
  gradring::to_wire(key, entry_.mutable_forgotten());
  write();
}

void EngineLog::local(const core::LocalRecord& record) {
  entry_.mutable_local()->Clear();
  to_wire(record, entry_.mutable_local());
  write();
}

void EngineLog::told(core::SessionId session, uint64_t ticket, const core::Outcome& outcome) {
  entry_.mutable_told()->Clear();
  to_wire(session, ticket, outcome, entry_.mutable_told());
  write();
}

// ---- reading ----

namespace {

bool apply(const wire::EngineEntry& entry, bool first, EngineMemory* to) {
  core::EngineRecord& record = to->record;
  const auto key = [](const wire::OpKey& from) { return gradring::from_wire(from); };
  if (entry.has_head() != first) return false;
  if (!entry.has_landed()) to->landing.reset();
  switch (entry.body_case()) {
    case wire::EngineEntry::kHead:
      return from_wire(entry.head(), &record);
    case wire::EngineEntry::kOp: {
      core::OpRecord op;
      if (!from_wire(entry.op(), &op, &to->places)) return false;
      record.ops[op.key] = std::move(op);
      return true;
    }
    case wire::EngineEntry::kSubmitted: {
      core::OpRecord head;
      core::Submission submission;
      core::LocalRecord by;
      const wire::OpSubmitted& from = entry.submitted();
      if (!from_wire(from.op(), &head, &to->places) || !from_wire(from.by(), &by) ||
          !from_wire(from.submission(), head.key, head.name, &submission)) {
        return false;
      }
      record.submitted(std::move(head), submission, by);
      return true;
    }
    case wire::EngineEntry::kHeld: {
      const wire::SliceHeld& held = entry.held();
      if (held.slices() > kSlicesMax) return false;
      record.held(key(held.key()), held.slice(), held.slices(), held.slice_bytes(),
                  {held.epoch(), held.ranks()});
      const auto kind =
          held.staging_kind() == 0 ? core::Staging::Kind::kSlot : core::Staging::Kind::kStart;
      to->landing = {key(held.key()), held.slice(), {kind, held.staging_index()}};
      return true;
    }
    case wire::EngineEntry::kElsewhere: {
      const wire::SliceHeld& from = entry.elsewhere();
      if (from.slices() > kSlicesMax) return false;
      record.held(key(from.key()), from.slice(), from.slices(), from.slice_bytes(),
                  {from.epoch(), from.ranks()});
      record.dropped(key(from.key()), from.slice());
      return true;
    }
    case wire::EngineEntry::kLanded:
      to->landing.reset();
      return true;
    case wire::EngineEntry::kKept: {
      const wire::KeptPlace& place = entry.kept().place();
      to->places[place.number()] = {place.offset(), place.length(), 0};
      record.kept(key(entry.kept().key()), entry.kept().slice(), place.number());
      return true;
    }
    case wire::EngineEntry::kDropped:
      record.dropped(key(entry.dropped().key()), entry.dropped().slice());
      return true;
    case wire::EngineEntry::kDecided:
      record.decided(key(entry.decided().key()),
                     {entry.decided().outcome().epoch(), entry.decided().outcome().ranks()});
      return true;
    case wire::EngineEntry::kEnded: {
      core::OpRecord head;
      if (!from_wire(entry.ended(), &head, &to->places)) return false;
      record.ended(head);
      return true;
    }
    case wire::EngineEntry::kForgotten:
      record.forgotten(key(entry.forgotten()));
      return true;
    case wire::EngineEntry::kLocal: {
      core::LocalRecord local;
      if (!from_wire(entry.local(), &local)) return false;
      record.local(local);
      return true;
    }
    case wire::EngineEntry::kTold: {
      core::Outcome outcome;
      if (!from_wire(entry.told(), &outcome)) return false;
      to->told[entry.told().session()][entry.told().ticket()] = outcome;
      return true;
    }
    case wire::EngineEntry::BODY_NOT_SET:
      return false;  // of a later version, and we do not know what it means
  }
  return false;
}

}  // namespace

tl::expected<EngineMemory, std::string> read_engine_log(const RecordLog& log) {
  EngineMemory memory;
  uint64_t count = 0;
  wire::EngineEntry entry;
  const bool whole = log.for_each([&](std::span<const std::byte> bytes) {
    ++count;
    return entry.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())) &&
           apply(entry, count == 1, &memory);
  });
  for (const auto& [key, op] : memory.record.ops) {
    for (const core::SliceRecord& slice : op.slices) {
      if (slice.kept && memory.places.count(*slice.kept) == 0) {
        return tl::unexpected("a copy of " + describe(key) + " is nowhere");
      }
    }
  }
  if (whole && count > 0) return memory;
  if (count == 0) return tl::unexpected(std::string("it has no record of the job's ops"));
  return tl::unexpected("entry " + std::to_string(count) + " of its record cannot be understood");
}

}  // namespace gradring::daemon
