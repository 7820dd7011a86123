// Memory of Python objects, kept where it is while an operation is in flight:
// anything with the buffer protocol (numpy arrays, memoryviews, bytearrays,
// SharedMemory), CPU tensors of torch, and bare (address, length) pairs, which
// nobody keeps.
//
// Threading. Under the GIL, its end too; the memory itself may be used without.
//
// Ownership. Keeps a reference to each object, and its buffer exported, so that
// the object can be neither freed nor resized.

#ifndef FIRNKV_CLIENT_PYTHON_PINNED_MEMORY_H_
#define FIRNKV_CLIENT_PYTHON_PINNED_MEMORY_H_

#include <pybind11/pybind11.h>

#include <cstddef>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"

namespace firnkv::python {

namespace py = pybind11;

enum class Access { kRead, kWrite };

inline constexpr std::size_t kAllBlocks = ~std::size_t{0};

class PinnedMemory {
 public:
  PinnedMemory() = default;
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;
  ~PinnedMemory();

  // All bytes of `object`. Raises TypeError for what has no memory, BufferError
  // for memory that is not contiguous, is on a device, or is read-only though
  // it is to be written; the message says of which block, or kAllBlocks.
  absl::Span<std::byte> Pin(py::handle object, Access access,
                            std::size_t block);

 private:
  // A deque: exporters may point into a Py_buffer, which therefore stays.
  std::deque<Py_buffer> buffers_;
  std::vector<py::object> tensors_;
};

// Whether `object` is one piece of memory, rather than a sequence of such.
bool IsMemory(py::handle object);

}  // namespace firnkv::python

#endif  // FIRNKV_CLIENT_PYTHON_PINNED_MEMORY_H_
