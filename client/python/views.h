// Blocks where they lie in the node's memory, as read-only memoryviews.
//
// A closed batch may be unmapped, so that a memoryview of it must not be
// readable any more: close() releases those that it gave, and refuses with
// BufferError while arrays or further memoryviews still use them.
//
// Threading. Under the GIL.
//
// Ownership. The batch is shared by the Views and what looks at its memory; it
// goes with the last of them.

#ifndef FIRNKV_CLIENT_PYTHON_VIEWS_H_
#define FIRNKV_CLIENT_PYTHON_VIEWS_H_

#include <pybind11/pybind11.h>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "client/view.h"

namespace firnkv::python {

namespace py = pybind11;

class Views {
 public:
  // `refused`: the outcomes of a call that was not made; else empty.
  Views(ViewBatch batch, std::vector<Outcome> refused, std::string why);

  std::size_t size() const { return opened_.size(); }
  const std::vector<Outcome>& opened() const { return opened_; }
  const ViewReport& report() const { return report_; }
  const std::string& why() const { return why_; }
  bool closed() const { return batch_ == nullptr; }

  // The memory of a block, in order: nearly always one piece. Raises IndexError
  // and, once closed, ValueError; LookupError where the block is no hit.
  py::tuple Pieces(std::ptrdiff_t index);
  // The same where there is one piece; BufferError else.
  py::object At(std::ptrdiff_t index);

  // The verdicts, also later. BufferError while the memory is still used.
  const std::vector<Outcome>& Close();

 private:
  const std::vector<Outcome> opened_;
  const ViewReport report_;
  const std::string why_;
  // Shared: see the file's comment. Null once closed.
  std::shared_ptr<ViewBatch> batch_;
  // Of each block; empty until asked for.
  std::vector<py::tuple> given_;
  std::vector<Outcome> verdicts_;
};

// Adds Views to the module.
void DefineViews(py::module_& module);

}  // namespace firnkv::python

#endif  // FIRNKV_CLIENT_PYTHON_VIEWS_H_
