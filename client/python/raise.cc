#include "client/python/raise.h"

namespace firnkv::python {
void Raise(const absl::Status& status) {
  py::module_::import("firnkv._errors")
      .attr("fail")(static_cast<int>(status.code()),
                    std::string(status.message()));
  py::pybind11_fail("firnkv._errors.fail has returned");
}

void Raise(const char* builtin, const std::string& message) {
  py::module_::import("firnkv._errors").attr("fail_with")(builtin, message);
  py::pybind11_fail("firnkv._errors.fail_with has returned");
}

py::list ToPython(const std::vector<Outcome>& outcomes) {
  // By number. Leaked: nothing of ours runs at the process's end, when Python
  // may be gone already.
  static const auto* const members =
      new py::tuple(py::module_::import("firnkv._outcome").attr("MEMBERS"));
  py::list list(outcomes.size());
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    // Unlike operator[] these check nothing twice: a batch has thousands.
    PyObject* const member =
        PyTuple_GET_ITEM(members->ptr(), static_cast<Py_ssize_t>(outcomes[i]));
    Py_INCREF(member);
    PyList_SET_ITEM(list.ptr(), static_cast<Py_ssize_t>(i), member);
  }
  return list;
}

}  // namespace firnkv::python
