#include "client/python/views.h"

#include <utility>

#include "client/python/raise.h"
#include "proto/base/text.h"

namespace firnkv::python {
namespace {

// One piece of a block: what a memoryview refers to, and keeps the batch by.
struct ViewPiece {
  // Shared: see Views.
  std::shared_ptr<ViewBatch> batch;
  absl::Span<const std::byte> bytes;
};

py::buffer_info Describe(ViewPiece& piece) {
  // Bytes, as every reader of raw memory wants them.
  return py::buffer_info(
      const_cast<std::byte*>(piece.bytes.data()), sizeof(std::byte),
      py::format_descriptor<unsigned char>::format(), 1,
      {static_cast<py::ssize_t>(piece.bytes.size())}, {py::ssize_t{1}},
      /*readonly=*/true);
}

std::vector<Outcome> OutcomesOf(const ViewBatch& batch,
                                std::vector<Outcome> refused) {
  if (!refused.empty()) return refused;
  std::vector<Outcome> outcomes(batch.size());
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    outcomes[i] = batch.outcome(i);
  }
  return outcomes;
}

}  // namespace

Views::Views(ViewBatch batch, std::vector<Outcome> refused, std::string why)
    : opened_(OutcomesOf(batch, std::move(refused))),
      report_(batch.report()),
      why_(std::move(why)),
      // Shared: see the header.
      batch_(std::make_shared<ViewBatch>(std::move(batch))),
      given_(opened_.size()) {}

py::tuple Views::Pieces(std::ptrdiff_t index) {
  const auto size = static_cast<std::ptrdiff_t>(opened_.size());
  if (index < 0) index += size;
  if (index < 0 || index >= size) {
    Raise("IndexError", StrCat("view ", index, " of ", size));
  }
  if (closed()) Raise("ValueError", "these views have been closed");
  const auto place = static_cast<std::size_t>(index);
  if (opened_[place] != Outcome::kHit) {
    Raise("LookupError",
          StrCat("block ", index, " is ", OutcomeLabel(opened_[place]),
                 "; only hits can be looked at"));
  }
  if (given_[place].empty()) {
    const auto spans = batch_->spans(place);
    py::tuple pieces(spans.size());
    for (std::size_t i = 0; i < spans.size(); ++i) {
      pieces[i] = py::memoryview(py::cast(ViewPiece{batch_, spans[i]}));
    }
    given_[place] = std::move(pieces);
  }
  return given_[place];
}

py::object Views::At(std::ptrdiff_t index) {
  const py::tuple pieces = Pieces(index);
  if (pieces.size() != 1) {
    Raise("BufferError", StrCat("block ", index, " lies in ", pieces.size(),
                                " pieces: use pieces()"));
  }
  return pieces[0];
}

const std::vector<Outcome>& Views::Close() {
  if (closed()) return verdicts_;
  for (py::tuple& pieces : given_) {
    for (const py::handle view : pieces) {
      // One that an array was made of refuses; whether anybody still looks is
      // counted below.
      py::object done = py::reinterpret_steal<py::object>(
          PyObject_CallMethod(view.ptr(), "release", nullptr));
      if (!done) PyErr_Clear();
    }
    pieces = py::tuple();
  }
  // Ours, and one for each piece that something refers to.
  const long users = batch_.use_count() - 1;
  if (users > 0) {
    Raise("BufferError",
          StrCat(users,
                 " pieces of these views are still used, by arrays, "
                 "tensors or memoryviews made of them: drop those (or "
                 "copy what you need) before the views are closed"));
  }
  verdicts_ = batch_->size() == 0 ? opened_ : std::move(*batch_).Close();
  batch_ = nullptr;
  return verdicts_;
}

void DefineViews(py::module_& module) {
  py::class_<ViewPiece>(module, "_ViewPiece", py::buffer_protocol())
      .def_buffer(&Describe);
  py::class_<Views>(module, "Views",
                    "Blocks where they lie in the local node's memory. What "
                    "was read of them counts only where verdicts says HIT, "
                    "after the last use.")
      .def("__len__", &Views::size)
      .def("__getitem__", &Views::At, py::arg("index"),
           "The block's bytes as a read-only memoryview.")
      .def("pieces", &Views::Pieces, py::arg("index"),
           "The same as a tuple, for blocks in several pieces.")
      .def_property_readonly(
          "outcomes", [](const Views& self) { return ToPython(self.opened()); },
          "What became of the opening, for each block.")
      .def_property_readonly(
          "verdicts", [](Views& self) { return ToPython(self.Close()); },
          "Whether what was read counts, for each block; closes.")
      .def(
          "close", [](Views& self) { return ToPython(self.Close()); },
          "Ends the views and says verdicts. BufferError while arrays or "
          "memoryviews made of them live.")
      .def_property_readonly("closed", &Views::closed)
      .def_property_readonly("why", &Views::why,
                             "Why there are no views at all; '' otherwise.")
      .def_property_readonly(
          "invalid",
          [](const Views& self) {
            return absl::IsInvalidArgument(self.report().status);
          })
      .def_property_readonly(
          "hits", [](const Views& self) { return self.report().hits; })
      .def_property_readonly(
          "leading_hits",
          [](const Views& self) { return self.report().leading_hits; })
      .def_property_readonly(
          "nbytes", [](const Views& self) { return self.report().bytes; },
          "Bytes of the hits.")
      .def_property_readonly(
          "good_for",
          [](const Views& self) {
            return absl::ToDoubleSeconds(self.report().good_for);
          },
          "Seconds after the opening in which a verdict may be HIT.")
      .def_property_readonly(
          "retry_after",
          [](const Views& self) {
            return absl::ToDoubleSeconds(self.report().retry_after);
          })
      .def_property_readonly("took",
                             [](const Views& self) {
                               return absl::ToDoubleSeconds(self.report().took);
                             })
      .def("__enter__", [](py::object self) { return self; })
      .def("__exit__", [](Views& self, const py::args&) { self.Close(); });
}

}  // namespace firnkv::python
