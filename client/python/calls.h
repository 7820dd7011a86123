// The calls on blocks: read, write, exists, remove, views.
//
// Threading and life: as Call (call.h).

#ifndef FIRNKV_CLIENT_PYTHON_CALLS_H_
#define FIRNKV_CLIENT_PYTHON_CALLS_H_

#include <memory>
#include <string>
#include <vector>

#include "client/python/call.h"
#include "client/python/pinned_memory.h"

namespace firnkv::python {

// The memory of each block of a call: pieces in order, all of them in `flat`.
template <typename Piece>
struct BlockMemory {
  std::vector<Piece> flat;
  // Where the pieces of block i begin; one more for the end.
  std::vector<std::size_t> begins;

  absl::Span<const Piece> of(std::size_t block) const {
    return absl::MakeConstSpan(flat).subspan(begins[block],
                                             begins[block + 1] - begins[block]);
  }
};

// OK for every other status: what it says is in the outcomes too.
absl::Status OnlyInvalid(const absl::Status& status);

class ReadCall : public Call {
 public:
  // `into`: one piece of memory that the blocks share evenly, or a sequence
  // with one or several pieces for each block. Raises as PinnedMemory::Pin, and
  // ValueError where the numbers do not fit.
  ReadCall(BlockSource blocks, py::handle into, absl::Duration deadline,
           ReadWant want);

  void Run(Client* client, const NamespaceHandle& handle) override;
  void Start(Client* client, const NamespaceHandle& handle, Done done) override;
  void Refuse(Outcome outcome, std::string_view why) override;
  py::object Tell() override;
  absl::Status Wrong() const override { return OnlyInvalid(report_.status); }

 private:
  ReadRequest Request(const NamespaceHandle& handle);

  const ReadWant want_;
  PinnedMemory pins_;
  BlockMemory<Buffer> memory_;
  std::vector<ReadTarget> targets_;
  ReadReport report_;
  std::string why_;
};

class WriteCall : public Call {
 public:
  struct Options {
    absl::Duration deadline;
    WriteWait wait = WriteWait::kLocal;
    WriteHint hint;
  };
  // `source`: as ReadCall's `into`.
  WriteCall(BlockSource blocks, py::handle source, const Options& options);

  void Run(Client* client, const NamespaceHandle& handle) override;
  void Start(Client* client, const NamespaceHandle& handle, Done done) override;
  void Refuse(Outcome outcome, std::string_view why) override;
  py::object Tell() override;
  absl::Status Wrong() const override { return OnlyInvalid(report_.status); }

 private:
  WriteRequest Request(const NamespaceHandle& handle);

  const Options options_;
  PinnedMemory pins_;
  BlockMemory<ConstBuffer> memory_;
  std::vector<WriteBlock> writes_;
  WriteReport report_;
  std::string why_;
};

// Exists and Remove: no memory, one end.
class ExistsCall : public Call {
 public:
  // The lengths that the report has besides.
  struct Told : ExistsReport {
    std::vector<std::uint64_t> lengths;
  };
  ExistsCall(BlockSource blocks, absl::Duration deadline, ReadWant want)
      : Call(std::move(blocks), deadline), want_(want) {}

  void Run(Client* client, const NamespaceHandle& handle) override;
  void Start(Client* client, const NamespaceHandle& handle, Done done) override;
  void Refuse(Outcome outcome, std::string_view why) override;
  py::object Tell() override;
  absl::Status Wrong() const override { return OnlyInvalid(report_.status); }

 private:
  ExistsRequest Request(const NamespaceHandle& handle);

  const ReadWant want_;
  std::vector<ExistsTarget> targets_;
  ExistsReport report_;
  std::string why_;
};

class RemoveCall : public Call {
 public:
  RemoveCall(BlockSource blocks, absl::Duration deadline)
      : Call(std::move(blocks), deadline) {}

  void Run(Client* client, const NamespaceHandle& handle) override;
  void Start(Client* client, const NamespaceHandle& handle, Done done) override;
  void Refuse(Outcome outcome, std::string_view why) override;
  py::object Tell() override;
  absl::Status Wrong() const override { return OnlyInvalid(report_.status); }

 private:
  RemoveRequest Request(const NamespaceHandle& handle);

  std::vector<RemoveTarget> targets_;
  RemoveReport report_;
  std::string why_;
};

class ViewsCall : public Call {
 public:
  ViewsCall(BlockSource blocks, absl::Duration deadline, ReadWant want,
            absl::Duration max_age)
      : Call(std::move(blocks), deadline), want_(want), max_age_(max_age) {}

  void Run(Client* client, const NamespaceHandle& handle) override;
  void Start(Client* client, const NamespaceHandle& handle, Done done) override;
  void Refuse(Outcome outcome, std::string_view why) override;
  py::object Tell() override;
  absl::Status Wrong() const override {
    return OnlyInvalid(batch_.report().status);
  }

 private:
  OpenViewsRequest Request(const NamespaceHandle& handle);

  const ReadWant want_;
  const absl::Duration max_age_;
  std::vector<BlockKey> keys_;
  ViewBatch batch_;
  // Of a call that was not made; empty otherwise.
  std::vector<Outcome> refused_;
  std::string why_;
};

// Adds the results to the module.
void DefineResults(py::module_& module);

}  // namespace firnkv::python

#endif  // FIRNKV_CLIENT_PYTHON_CALLS_H_
