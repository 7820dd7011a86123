#include "client/python/calls.h"

#include <utility>

#include "client/python/raise.h"
#include "client/python/views.h"
#include "proto/base/text.h"

namespace firnkv::python {
namespace {

// Adds one piece, or each of a sequence of pieces.
template <typename Piece>
void AddPieces(py::handle given, Access access, std::size_t block,
               PinnedMemory* pins, std::vector<Piece>* flat) {
  const auto add = [&](py::handle piece) {
    const absl::Span<std::byte> memory = pins->Pin(piece, access, block);
    flat->push_back({.address = memory.data(), .length = memory.size()});
  };
  if (IsMemory(given)) return add(given);
  if (!PyList_Check(given.ptr()) && !PyTuple_Check(given.ptr())) {
    return add(given);  // Says what it ought to be.
  }
  for (const py::handle piece : py::reinterpret_borrow<py::sequence>(given)) {
    add(piece);
  }
}

// One piece of memory that all blocks share evenly.
template <typename Piece>
void ShareEvenly(py::handle given, Access access, std::size_t blocks,
                 PinnedMemory* pins, BlockMemory<Piece>* memory) {
  const absl::Span<std::byte> all = pins->Pin(given, access, kAllBlocks);
  if (blocks == 0 || all.size() % blocks != 0) {
    Raise("ValueError",
          StrCat(all.size(), " bytes cannot be shared evenly by ", blocks,
                 " blocks; give a list with the memory of each block"));
  }
  const std::size_t each = all.size() / blocks;
  for (std::size_t i = 0; i < blocks; ++i) {
    memory->begins.push_back(i);
    memory->flat.push_back({.address = all.data() + i * each, .length = each});
  }
  memory->begins.push_back(blocks);
}

template <typename Piece>
BlockMemory<Piece> MemoryOf(py::handle given, Access access, std::size_t blocks,
                            PinnedMemory* pins) {
  BlockMemory<Piece> memory;
  memory.flat.reserve(blocks);
  memory.begins.reserve(blocks + 1);
  if (IsMemory(given)) {
    ShareEvenly(given, access, blocks, pins, &memory);
    return memory;
  }
  if (!PyList_Check(given.ptr()) && !PyTuple_Check(given.ptr())) {
    pins->Pin(given, access, kAllBlocks);  // Raises.
  }
  const auto list = py::reinterpret_borrow<py::sequence>(given);
  if (list.size() != blocks) {
    Raise("ValueError",
          StrCat("memory of ", list.size(), " blocks for ", blocks, " blocks"));
  }
  for (std::size_t i = 0; i < blocks; ++i) {
    memory.begins.push_back(memory.flat.size());
    const py::object given_here = list[i];
    AddPieces(given_here, access, i, pins, &memory.flat);
  }
  memory.begins.push_back(memory.flat.size());
  return memory;
}

template <typename Targets>
std::vector<Outcome> OutcomesOf(const Targets& targets) {
  std::vector<Outcome> outcomes;
  outcomes.reserve(targets.size());
  for (const auto& target : targets) outcomes.push_back(target.outcome);
  return outcomes;
}

template <typename Targets>
void RefuseAll(std::size_t count, Outcome outcome, Targets* targets) {
  targets->resize(count);
  for (auto& target : *targets) target.outcome = outcome;
}

// What a report says of the call as a whole.
template <typename Report>
std::string Why(const Report& report, const std::string& refused) {
  if (!refused.empty() || report.status.ok()) return refused;
  return std::string(report.status.message());
}

}  // namespace

absl::Status OnlyInvalid(const absl::Status& status) {
  return absl::IsInvalidArgument(status) ? status : absl::OkStatus();
}

// --- Read.

ReadCall::ReadCall(BlockSource blocks, py::handle into, absl::Duration deadline,
                   ReadWant want)
    : Call(std::move(blocks), deadline),
      want_(want),
      memory_(MemoryOf<Buffer>(into, Access::kWrite, size(), &pins_)) {}

ReadRequest ReadCall::Request(const NamespaceHandle& handle) {
  const BlockVector& all = blocks();
  targets_.resize(all.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    targets_[i] = {.key = all[i].key,
                   .anchor = all[i].place.anchor,
                   .destination = memory_.of(i)};
  }
  return {.name_space = handle,
          .blocks = absl::MakeSpan(targets_),
          .deadline = deadline(),
          .want = want_};
}

void ReadCall::Run(Client* client, const NamespaceHandle& handle) {
  report_ = client->Read(Request(handle));
}

void ReadCall::Start(Client* client, const NamespaceHandle& handle, Done done) {
  client->StartRead(
      Request(handle),
      {.on_outcome = [this](const ReadReport& told) { report_ = told; },
       .on_buffers_free = std::move(done)});
}

void ReadCall::Refuse(Outcome outcome, std::string_view why) {
  RefuseAll(size(), outcome, &targets_);
  why_ = why;
}

py::object ReadCall::Tell() {
  return py::cast(Result<ReadReport>{.outcomes = OutcomesOf(targets_),
                                     .report = report_,
                                     .why = Why(report_, why_),
                                     .invalid = !Wrong().ok()});
}

// --- Write.

WriteCall::WriteCall(BlockSource blocks, py::handle source,
                     const Options& options)
    : Call(std::move(blocks), options.deadline),
      options_(options),
      memory_(MemoryOf<ConstBuffer>(source, Access::kRead, size(), &pins_)) {}

WriteRequest WriteCall::Request(const NamespaceHandle& handle) {
  const BlockVector& all = blocks();
  writes_.resize(all.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    writes_[i] = {
        .key = all[i].key, .place = all[i].place, .source = memory_.of(i)};
  }
  return {.name_space = handle,
          .blocks = absl::MakeSpan(writes_),
          .deadline = deadline(),
          .wait_for = options_.wait,
          .hint = options_.hint};
}

void WriteCall::Run(Client* client, const NamespaceHandle& handle) {
  report_ = client->Write(Request(handle));
}

void WriteCall::Start(Client* client, const NamespaceHandle& handle,
                      Done done) {
  client->StartWrite(
      Request(handle),
      {.on_outcome = [this](const WriteReport& told) { report_ = told; },
       .on_buffers_free = std::move(done)});
}

void WriteCall::Refuse(Outcome outcome, std::string_view why) {
  RefuseAll(size(), outcome, &writes_);
  why_ = why;
}

py::object WriteCall::Tell() {
  return py::cast(Result<WriteReport>{.outcomes = OutcomesOf(writes_),
                                      .report = report_,
                                      .why = Why(report_, why_),
                                      .invalid = !Wrong().ok()});
}

// --- Exists.

ExistsRequest ExistsCall::Request(const NamespaceHandle& handle) {
  const BlockVector& all = blocks();
  targets_.resize(all.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    targets_[i] = {.key = all[i].key, .anchor = all[i].place.anchor};
  }
  return {.name_space = handle,
          .blocks = absl::MakeSpan(targets_),
          .deadline = deadline(),
          .want = want_};
}

void ExistsCall::Run(Client* client, const NamespaceHandle& handle) {
  report_ = client->Exists(Request(handle));
}

void ExistsCall::Start(Client* client, const NamespaceHandle& handle,
                       Done done) {
  client->StartExists(Request(handle), [this, done = std::move(done)](
                                           const ExistsReport& report) mutable {
    report_ = report;
    std::move(done)();
  });
}

void ExistsCall::Refuse(Outcome outcome, std::string_view why) {
  RefuseAll(size(), outcome, &targets_);
  why_ = why;
}

py::object ExistsCall::Tell() {
  Told told;
  static_cast<ExistsReport&>(told) = report_;
  for (const ExistsTarget& target : targets_) {
    told.lengths.push_back(target.length);
  }
  return py::cast(Result<Told>{.outcomes = OutcomesOf(targets_),
                               .report = std::move(told),
                               .why = Why(report_, why_),
                               .invalid = !Wrong().ok()});
}

// --- Remove.

RemoveRequest RemoveCall::Request(const NamespaceHandle& handle) {
  const BlockVector& all = blocks();
  targets_.resize(all.size());
  for (std::size_t i = 0; i < all.size(); ++i) targets_[i] = {all[i].key};
  return {.name_space = handle,
          .blocks = absl::MakeSpan(targets_),
          .deadline = deadline()};
}

void RemoveCall::Run(Client* client, const NamespaceHandle& handle) {
  report_ = client->Remove(Request(handle));
}

void RemoveCall::Start(Client* client, const NamespaceHandle& handle,
                       Done done) {
  client->StartRemove(Request(handle), [this, done = std::move(done)](
                                           const RemoveReport& report) mutable {
    report_ = report;
    std::move(done)();
  });
}

void RemoveCall::Refuse(Outcome outcome, std::string_view why) {
  RefuseAll(size(), outcome, &targets_);
  why_ = why;
}

py::object RemoveCall::Tell() {
  return py::cast(Result<RemoveReport>{.outcomes = OutcomesOf(targets_),
                                       .report = report_,
                                       .why = Why(report_, why_),
                                       .invalid = !Wrong().ok()});
}

// --- Views.

OpenViewsRequest ViewsCall::Request(const NamespaceHandle& handle) {
  for (const Chain::Block& block : blocks()) keys_.push_back(block.key);
  return {.name_space = handle,
          .keys = keys_,
          .deadline = deadline(),
          .want = want_,
          .max_age = max_age_};
}

void ViewsCall::Run(Client* client, const NamespaceHandle& handle) {
  batch_ = client->OpenViews(Request(handle));
}

void ViewsCall::Start(Client* client, const NamespaceHandle& handle,
                      Done done) {
  client->StartOpenViews(
      Request(handle), [this, done = std::move(done)](ViewBatch batch) mutable {
        batch_ = std::move(batch);
        std::move(done)();
      });
}

void ViewsCall::Refuse(Outcome outcome, std::string_view why) {
  refused_.assign(size(), outcome);
  why_ = why;
}

py::object ViewsCall::Tell() {
  std::string why = Why(batch_.report(), why_);
  return py::cast(std::make_unique<Views>(std::move(batch_),
                                          std::move(refused_), std::move(why)));
}

}  // namespace firnkv::python
