// One batch that Python has asked for: what it names, the memory it uses, and
// what became of it. The calls themselves are in calls.h.
//
// Life: made under the GIL, which checks what was given; run or started without
// it; told and destroyed under it again, since it keeps Python objects.
//
// Threading. One thread at a time: the caller's, then the Client's, then the
// drainer's; a mutex lies between each two.

#ifndef FIRNKV_CLIENT_PYTHON_CALL_H_
#define FIRNKV_CLIENT_PYTHON_CALL_H_

#include <pybind11/pybind11.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/client.h"
#include "client/python/blocks.h"

namespace firnkv::python {

namespace py = pybind11;

// What became of a batch: an outcome for each block and the SDK's report.
template <typename Report>
struct Result {
  std::vector<Outcome> outcomes;
  Report report;
  // Why the call as a whole was not made; empty where it was.
  std::string why;
  // The request itself was wrong, as `why` says.
  bool invalid = false;
};

// Shared by all calls that are about blocks.
class Call {
 public:
  Call(BlockSource blocks, absl::Duration deadline)
      : blocks_(std::move(blocks)), deadline_(deadline) {}
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  virtual ~Call() = default;

  // Without the GIL: does it and waits.
  virtual void Run(Client* client, const NamespaceHandle& handle) = 0;
  // The same without waiting; `done` runs once, when buffers are free too.
  using Done = absl::AnyInvocable<void() &&>;
  virtual void Start(Client* client, const NamespaceHandle& handle,
                     Done done) = 0;
  // Instead of both: every block ends with `outcome`, for that reason.
  virtual void Refuse(Outcome outcome, std::string_view why) = 0;

  // Under the GIL, once, after it ended: the Python result.
  virtual py::object Tell() = 0;

  // Why the request itself was wrong; OK otherwise.
  virtual absl::Status Wrong() const = 0;

  // By which it is known once it was submitted.
  std::uint64_t id = 0;

 protected:
  std::size_t size() const { return blocks_.size(); }
  const BlockVector& blocks() { return blocks_.Get(); }
  absl::Duration deadline() const { return deadline_; }

 private:
  BlockSource blocks_;
  const absl::Duration deadline_;
};

}  // namespace firnkv::python

#endif  // FIRNKV_CLIENT_PYTHON_CALL_H_
