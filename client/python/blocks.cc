#include "client/python/blocks.h"

#include <pybind11/stl.h>

#include <utility>

#include "client/python/raise.h"
#include "proto/base/text.h"

namespace firnkv::python {
namespace {

// As chain.h bounds it.
constexpr std::size_t kLongestHash = 4096;

Shard ShardOf(int index, int count) {
  if (count < 1 || count > UINT16_MAX || index < 0 || index >= count) {
    Raise("ValueError", StrCat("shard ", index, " of ", count,
                               ": count is 1 to 65535, index below it"));
  }
  return Shard{.count = static_cast<std::uint16_t>(count),
               .index = static_cast<std::uint16_t>(index)};
}

std::string_view HashOf(py::handle object) {
  const std::string_view hash = TextOf(object, "a block's hash");
  if (hash.empty() || hash.size() > kLongestHash) {
    Raise("ValueError", StrCat("a block's hash has ", hash.size(),
                               " bytes; 1 to ", kLongestHash));
  }
  return hash;
}

std::size_t Append(Chain& chain, py::handle hash) {
  chain.Append(HashOf(hash));
  return chain.size() - 1;
}

void Extend(Chain& chain, const py::iterable& hashes) {
  for (const py::handle hash : hashes) chain.Append(HashOf(hash));
}

BlockVector Slice(const BlockVector& all, const py::slice& slice) {
  std::size_t start = 0;
  std::size_t stop = 0;
  std::size_t step = 0;
  std::size_t count = 0;
  if (!slice.compute(all.size(), &start, &stop, &step, &count)) {
    const py::error_already_set said;
    Raise("ValueError", py::str(said.value()).cast<std::string>());
  }
  BlockVector some;
  some.reserve(count);
  for (std::size_t i = 0; i < count; ++i) some.push_back(all[start + i * step]);
  return some;
}

BlockVector Index(const BlockVector& all, std::ptrdiff_t index) {
  const auto size = static_cast<std::ptrdiff_t>(all.size());
  if (index < 0) index += size;
  if (index < 0 || index >= size) {
    Raise("IndexError", StrCat("block ", index, " of ", size));
  }
  return {all[static_cast<std::size_t>(index)]};
}

py::list Keys(const BlockVector& blocks) {
  py::list keys;
  for (const Chain::Block& block : blocks) {
    const std::string_view key = block.key.view();
    keys.append(py::bytes(key.data(), key.size()));
  }
  return keys;
}

Blocks Unchained(const py::iterable& names, int shard_index, int shard_count) {
  const Shard shard = ShardOf(shard_index, shard_count);
  BlockVector blocks;
  for (const py::handle name : names) {
    blocks.push_back(UnchainedBlock(HashOf(name), shard));
  }
  return Blocks(std::move(blocks));
}

}  // namespace

std::string_view TextOf(py::handle object, const char* what) {
  if (PyUnicode_Check(object.ptr())) {
    Py_ssize_t size = 0;
    // Kept by the str itself.
    const char* const text = PyUnicode_AsUTF8AndSize(object.ptr(), &size);
    if (text != nullptr) return {text, static_cast<std::size_t>(size)};
    PyErr_Clear();
    Raise("ValueError", StrCat(what, " is no text of valid characters"));
  }
  if (PyBytes_Check(object.ptr())) {
    return {PyBytes_AS_STRING(object.ptr()),
            static_cast<std::size_t>(PyBytes_GET_SIZE(object.ptr()))};
  }
  Raise("TypeError",
        StrCat(what, " is bytes or str, not ", Py_TYPE(object.ptr())->tp_name));
}

void BlockSource::AddName(std::string_view name) {
  if (name.empty() || name.size() > kLongestHash) {
    Raise("ValueError", StrCat("a block's name has ", name.size(),
                               " bytes; 1 to ", kLongestHash));
  }
  names_.append(name);
  ends_.push_back(names_.size());
}

BlockSource::BlockSource(py::handle given, bool chained) {
  if (py::isinstance<Blocks>(given)) {
    blocks_ = given.cast<const Blocks&>().shared();
    return;
  }
  if (py::isinstance<Chain>(given)) {
    // A copy: the chain may grow while the call is in flight. Shared: see
    // Blocks.
    blocks_ = std::make_shared<const BlockVector>(
        given.cast<const Chain&>().blocks());
    return;
  }
  if (PyUnicode_Check(given.ptr()) || PyBytes_Check(given.ptr()) ||
      !py::isinstance<py::iterable>(given)) {
    Raise("TypeError",
          StrCat("blocks are a Chain, a part of one, or a list of names; not ",
                 Py_TYPE(given.ptr())->tp_name));
  }
  if (chained) {
    Raise("ValueError",
          "blocks of a chained namespace come from a Chain; names are for "
          "namespaces that were opened with chained=False");
  }
  for (const py::handle name : py::reinterpret_borrow<py::iterable>(given)) {
    AddName(TextOf(name, "a block's name"));
  }
}

const BlockVector& BlockSource::Get() {
  if (blocks_ == nullptr) {
    BlockVector blocks;
    blocks.reserve(ends_.size());
    std::size_t begin = 0;
    for (const std::size_t end : ends_) {
      blocks.push_back(
          UnchainedBlock(std::string_view(names_).substr(begin, end - begin)));
      begin = end;
    }
    // Shared: see Blocks.
    blocks_ = std::make_shared<const BlockVector>(std::move(blocks));
  }
  return *blocks_;
}

void DefineBlocks(py::module_& module) {
  py::class_<Blocks>(module, "Blocks",
                     "Some blocks with their keys and places; never changes.")
      .def("__len__", [](const Blocks& self) { return self.get().size(); })
      .def("__getitem__",
           [](const Blocks& self, const py::slice& slice) {
             return Blocks(Slice(self.get(), slice));
           })
      .def("__getitem__",
           [](const Blocks& self, std::ptrdiff_t index) {
             return Blocks(Index(self.get(), index));
           })
      .def_property_readonly(
          "keys", [](const Blocks& self) { return Keys(self.get()); },
          "The 32 bytes by which the cluster knows each block.");
  py::class_<Chain>(module, "Chain",
                    "Block hashes of one token prefix, in its order. Grows "
                    "with its conversation; a slice of it is Blocks.")
      .def(py::init([](std::uint32_t block_tokens, int index, int count) {
             if (block_tokens == 0) {
               Raise("ValueError", "block_tokens must be positive");
             }
             return Chain({.block_tokens = block_tokens,
                           .shard = ShardOf(index, count)});
           }),
           py::kw_only(), py::arg("block_tokens"), py::arg("shard_index") = 0,
           py::arg("shard_count") = 1)
      .def("append", &Append, py::arg("hash"),
           "Adds the next block by the engine's hash of it and all tokens "
           "before it (bytes or str, at most 4 KiB); says its position.")
      .def("extend", &Extend, py::arg("hashes"), "append() for each.")
      .def("__len__", &Chain::size)
      .def("__getitem__",
           [](const Chain& self, const py::slice& slice) {
             return Blocks(Slice(self.blocks(), slice));
           })
      .def("__getitem__",
           [](const Chain& self, std::ptrdiff_t index) {
             return Blocks(Index(self.blocks(), index));
           })
      .def_property_readonly(
          "keys", [](const Chain& self) { return Keys(self.blocks()); },
          "The 32 bytes by which the cluster knows each block.");
  module.def("unchained", &Unchained, py::arg("names"), py::kw_only(),
             py::arg("shard_index") = 0, py::arg("shard_count") = 1,
             "Blocks of a namespace that is not chained, by names of the "
             "caller's own (bytes or str, at most 4 KiB each).");
}

}  // namespace firnkv::python
