// How Python sees what became of a batch.

#include <string>
#include <type_traits>

#include "client/python/calls.h"
#include "client/python/raise.h"

namespace firnkv::python {
namespace {

double Seconds(absl::Duration duration) {
  return absl::ToDoubleSeconds(duration);
}

bool IsGood(Outcome outcome) {
  return outcome == Outcome::kHit || outcome == Outcome::kStored ||
         outcome == Outcome::kAlreadyThere;
}

// A field of the report, durations as seconds.
template <auto Field, typename Report>
auto FieldOf(const Result<Report>& self) {
  const auto& field = self.report.*Field;
  if constexpr (std::is_same_v<decltype(field), const absl::Duration&>) {
    return Seconds(field);
  } else {
    return field;
  }
}

// What all results have.
template <typename Report>
py::class_<Result<Report>> DefineResult(py::module_& module, const char* name,
                                        const char* doc) {
  using Self = Result<Report>;
  return py::class_<Self>(module, name, doc)
      .def("__len__", [](const Self& self) { return self.outcomes.size(); })
      .def_property_readonly(
          "outcomes", [](const Self& self) { return ToPython(self.outcomes); },
          "What became of each block: a list of Outcome, in their order.")
      .def_property_readonly(
          "good",
          [](const Self& self) {
            py::list good(self.outcomes.size());
            for (std::size_t i = 0; i < good.size(); ++i) {
              good[i] = py::bool_(IsGood(self.outcomes[i]));
            }
            return good;
          },
          "Of each block: HIT, STORED or ALREADY_THERE.")
      .def_readonly("why", &Self::why,
                    "Why the call as a whole was not made (this process is a "
                    "fork, the namespace is not open yet); '' where it was.")
      .def_readonly("invalid", &Self::invalid,
                    "The request itself was wrong, as `why` says; only of "
                    "submitted calls, others raise InvalidArgument.")
      .def_property_readonly(
          "took", [](const Self& self) { return Seconds(self.report.took); },
          "Seconds from the call to its outcome.");
}

}  // namespace

void DefineResults(py::module_& module) {
  DefineResult<ReadReport>(module, "ReadResult", "What a read brought.")
      .def_property_readonly(
          "hits", &FieldOf<&ReadReport::hits, ReadReport>,
          "How many blocks are HIT: their bytes are in the caller's memory "
          "and verified.")
      .def_property_readonly(
          "leading_hits", &FieldOf<&ReadReport::leading_hits, ReadReport>,
          "How many at the front are HIT: prefill resumes there.")
      .def_property_readonly(
          "bytes_mapped", &FieldOf<&ReadReport::bytes_mapped, ReadReport>,
          "Bytes of hits that came out of the local node's memory.")
      .def_property_readonly("bytes_remote",
                             &FieldOf<&ReadReport::bytes_remote, ReadReport>,
                             "Bytes of hits that came over the network.")
      .def_property_readonly(
          "retry_after", &FieldOf<&ReadReport::retry_after, ReadReport>,
          "Seconds after which CONGESTED blocks may be asked for again; 0.0 "
          "where there is none.");
  DefineResult<WriteReport>(module, "WriteResult", "What a write has done.")
      .def_property_readonly("stored",
                             &FieldOf<&WriteReport::stored, WriteReport>,
                             "How many blocks are STORED.")
      .def_property_readonly(
          "already_there", &FieldOf<&WriteReport::already_there, WriteReport>,
          "How many were there before; nothing of them was copied.")
      .def_property_readonly("bytes_stored",
                             &FieldOf<&WriteReport::bytes_stored, WriteReport>,
                             "Bytes of the STORED blocks.")
      .def_property_readonly(
          "bytes_copied", &FieldOf<&WriteReport::bytes_copied, WriteReport>,
          "Of those, bytes that the SDK had to copy itself: 0 for memory of "
          "allocate_shared.")
      .def_property_readonly("retry_after",
                             &FieldOf<&WriteReport::retry_after, WriteReport>,
                             "As ReadResult.retry_after.");
  using Exists = ExistsCall::Told;
  DefineResult<Exists>(module, "ExistsResult", "Which blocks are there.")
      .def_property_readonly("hits", &FieldOf<&ExistsReport::hits, Exists>,
                             "How many blocks are HIT.")
      .def_property_readonly("leading_hits",
                             &FieldOf<&ExistsReport::leading_hits, Exists>,
                             "How many at the front are HIT.")
      .def_property_readonly(
          "lengths",
          [](const Result<Exists>& self) {
            py::list lengths;
            for (const std::uint64_t length : self.report.lengths) {
              lengths.append(length);
            }
            return lengths;
          },
          "Bytes of each block; 0 where it is no hit or that is not known.");
  DefineResult<RemoveReport>(module, "RemoveResult", "What was removed.")
      .def_property_readonly(
          "removed", &FieldOf<&RemoveReport::removed, RemoveReport>,
          "How many blocks were known and are gone or on their way out.")
      .def_property_readonly(
          "pending", &FieldOf<&RemoveReport::pending, RemoveReport>,
          "Copies whose nodes have not yet said that they are gone.");
}

}  // namespace firnkv::python
