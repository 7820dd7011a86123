// From keyword arguments, which Python has collected in a dict, to the SDK's
// structs. Durations are seconds (int or float).
//
// Threading. Under the GIL.

#ifndef FIRNKV_CLIENT_PYTHON_OPTION_READER_H_
#define FIRNKV_CLIENT_PYTHON_OPTION_READER_H_

#include <pybind11/pybind11.h>

#include "absl/time/time.h"
#include "client/namespace.h"
#include "client/options.h"
#include "client/read.h"
#include "client/write.h"

namespace firnkv::python {

namespace py = pybind11;

// Raises ValueError for a number that is none, or negative.
absl::Duration Seconds(double seconds, const char* what);

// Raise TypeError naming the argument that has another type, ValueError for one
// that is out of its bounds or unknown. Absent and None: the default.
ClientOptions ClientOptionsOf(const py::dict& arguments);
OpenNamespaceRequest NamespaceRequestOf(const py::dict& arguments);

// "leading", "every"; "local", "published", "flash"; "", "will_return",
// "ended".
ReadWant WantOf(const std::string& word);
WriteWait WaitOf(const std::string& word);
WriteHint::Session SessionOf(const std::string& word);

}  // namespace firnkv::python

#endif  // FIRNKV_CLIENT_PYTHON_OPTION_READER_H_
