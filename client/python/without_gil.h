// Gives the GIL away for a scope.
//
// As pybind11's gil_scoped_release, but at the interpreter's end. A daemon
// thread that comes back from a call then may not have the GIL any more: Python
// would end the thread by unwinding it, through destructors that need the GIL
// or may not throw, which aborts the process. Such a thread stays here instead,
// until the process is gone, as Python itself does it from 3.14 on. The thread
// that ends the interpreter keeps the GIL: nobody else will get it.

#ifndef FIRNKV_CLIENT_PYTHON_WITHOUT_GIL_H_
#define FIRNKV_CLIENT_PYTHON_WITHOUT_GIL_H_

#include <pybind11/pybind11.h>
#include <unistd.h>

namespace firnkv::python {

class WithoutGil {
 public:
  // Under the GIL.
  WithoutGil() : state_(Ending() ? nullptr : PyEval_SaveThread()) {}
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;
  // May unwind: where the end begins between the two lines.
  ~WithoutGil() noexcept(false) {
    if (state_ == nullptr) return;
    while (Ending()) ::pause();
    PyEval_RestoreThread(state_);
  }

 private:
  static bool Ending() {
#if PY_VERSION_HEX >= 0x030D0000
    return Py_IsFinalizing() != 0;
#else
    return _Py_IsFinalizing() != 0;
#endif
  }

  PyThreadState* const state_;
};

}  // namespace firnkv::python

#endif  // FIRNKV_CLIENT_PYTHON_WITHOUT_GIL_H_
