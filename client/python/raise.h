// From the SDK's statuses to Python's exceptions, and from its outcomes to
// members of firnkv.Outcome. Which exception a code is stands in
// firnkv/_errors.py.
//
// Threading. Under the GIL.

#ifndef FIRNKV_CLIENT_PYTHON_RAISE_H_
#define FIRNKV_CLIENT_PYTHON_RAISE_H_

#include <pybind11/pybind11.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/base/outcome.h"

namespace firnkv::python {

namespace py = pybind11;

// Does not return: pybind11 unwinds to Python.
[[noreturn]] void Raise(const absl::Status& status);
// A built-in exception: "TypeError", "ValueError", "BufferError".
[[noreturn]] void Raise(const char* builtin, const std::string& message);

template <typename T>
T ValueOrRaise(absl::StatusOr<T> value) {
  if (!value.ok()) Raise(value.status());
  return *std::move(value);
}

// A list of firnkv.Outcome.
py::list ToPython(const std::vector<Outcome>& outcomes);

}  // namespace firnkv::python

#endif  // FIRNKV_CLIENT_PYTHON_RAISE_H_
