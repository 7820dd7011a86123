#include "client/python/pinned_memory.h"

#include <cstdint>

#include "client/python/raise.h"
#include "proto/base/text.h"

namespace firnkv::python {
namespace {

std::string Name(std::size_t block) {
  return block == kAllBlocks ? "the memory" : StrCat("block ", block);
}

bool IsAddress(py::handle object) {
  return PyTuple_Check(object.ptr()) && PyTuple_GET_SIZE(object.ptr()) == 2 &&
         PyLong_Check(PyTuple_GET_ITEM(object.ptr(), 0)) &&
         PyLong_Check(PyTuple_GET_ITEM(object.ptr(), 1));
}

// torch's tensors have no buffer protocol, and those of some element types
// (bfloat16) no numpy twin, but all say where they are.
bool IsTensor(py::handle object) {
  return py::hasattr(object, "data_ptr") && py::hasattr(object, "numel") &&
         py::hasattr(object, "element_size");
}

absl::Span<std::byte> MemoryAt(std::uint64_t address, std::uint64_t length) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): that is what it is.
  return {reinterpret_cast<std::byte*>(address), length};
}

absl::Span<std::byte> TensorMemory(py::handle tensor, std::size_t block) {
  const auto device = py::str(tensor.attr("device")).cast<std::string>();
  if (device.rfind("cpu", 0) != 0) {
    Raise("BufferError",
          StrCat(Name(block), ": the tensor is on ", device,
                 "; give one on the CPU (page-locked memory is fine)"));
  }
  if (!tensor.attr("is_contiguous")().cast<bool>()) {
    Raise("BufferError",
          StrCat(Name(block),
                 ": the tensor is not contiguous; give a list with one "
                 "contiguous piece after the other"));
  }
  return MemoryAt(tensor.attr("data_ptr")().cast<std::uint64_t>(),
                  tensor.attr("numel")().cast<std::uint64_t>() *
                      tensor.attr("element_size")().cast<std::uint64_t>());
}

// What the exporter said, with what it means for the caller.
[[noreturn]] void RaiseNoBuffer(Access access, std::size_t block) {
  const py::error_already_set said;
  Raise("BufferError",
        StrCat(Name(block), ": memory must be contiguous",
               access == Access::kWrite ? " and writable" : "", " (",
               py::str(said.value()).cast<std::string>(), ")"));
}

}  // namespace

PinnedMemory::~PinnedMemory() {
  for (Py_buffer& buffer : buffers_) PyBuffer_Release(&buffer);
}

absl::Span<std::byte> PinnedMemory::Pin(py::handle object, Access access,
                                        std::size_t block) {
  if (PyObject_CheckBuffer(object.ptr()) == 1) {
    Py_buffer& buffer = buffers_.emplace_back();
    const int flags = access == Access::kWrite ? PyBUF_WRITABLE : PyBUF_SIMPLE;
    if (PyObject_GetBuffer(object.ptr(), &buffer, flags) != 0) {
      buffers_.pop_back();
      RaiseNoBuffer(access, block);
    }
    return {static_cast<std::byte*>(buffer.buf),
            static_cast<std::size_t>(buffer.len)};
  }
  if (IsAddress(object)) {
    const auto pair = py::reinterpret_borrow<py::tuple>(object);
    return MemoryAt(pair[0].cast<std::uint64_t>(),
                    pair[1].cast<std::uint64_t>());
  }
  if (IsTensor(object)) {
    const absl::Span<std::byte> memory = TensorMemory(object, block);
    tensors_.push_back(py::reinterpret_borrow<py::object>(object));
    return memory;
  }
  Raise("TypeError",
        StrCat(Name(block), ": ", Py_TYPE(object.ptr())->tp_name,
               " has no memory; give a buffer (numpy array, memoryview, "
               "bytearray), a CPU tensor, or (address, length)"));
}

bool IsMemory(py::handle object) {
  return PyObject_CheckBuffer(object.ptr()) == 1 || IsAddress(object) ||
         (!PyList_Check(object.ptr()) && !PyTuple_Check(object.ptr()) &&
          IsTensor(object));
}

}  // namespace firnkv::python
