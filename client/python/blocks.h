// Which blocks a call is about, as Python says it: a Chain or a part of one, or
// names of an unchained namespace.
//
// Threading. Under the GIL, unless a method says otherwise.

#ifndef FIRNKV_CLIENT_PYTHON_BLOCKS_H_
#define FIRNKV_CLIENT_PYTHON_BLOCKS_H_

#include <pybind11/pybind11.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "client/chain.h"

namespace firnkv::python {

namespace py = pybind11;

using BlockVector = std::vector<Chain::Block>;

// Some blocks with their keys and places; never changes.
class Blocks {
 public:
  explicit Blocks(BlockVector blocks)
      : blocks_(std::make_shared<const BlockVector>(std::move(blocks))) {}

  const BlockVector& get() const { return *blocks_; }
  // Shared by the Python object and calls in flight.
  const std::shared_ptr<const BlockVector>& shared() const { return blocks_; }

 private:
  const std::shared_ptr<const BlockVector> blocks_;  // See shared().
};

// Bytes of str (as UTF-8) or bytes; TypeError for anything else. Alive as long
// as `object`.
std::string_view TextOf(py::handle object, const char* what);

// What a call was given. Names are hashed only once the GIL is gone: two
// SHA-256 each, which for a batch is longer than a submit may take.
class BlockSource {
 public:
  // Raises TypeError for what is neither; ValueError for names of a chained
  // namespace.
  BlockSource(py::handle given, bool chained);

  std::size_t size() const {
    return blocks_ != nullptr ? blocks_->size() : ends_.size();
  }
  // Without the GIL; the first time it takes as long as the hashing.
  const BlockVector& Get();

 private:
  void AddName(std::string_view name);

  // Shared: see Blocks. Null until names have been hashed.
  std::shared_ptr<const BlockVector> blocks_;
  // The names one behind the other, and where each ends.
  std::string names_;
  std::vector<std::size_t> ends_;
};

// Adds Chain, Blocks and unchained() to the module.
void DefineBlocks(py::module_& module);

}  // namespace firnkv::python

#endif  // FIRNKV_CLIENT_PYTHON_BLOCKS_H_
