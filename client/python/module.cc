// firnkv._core: the SDK as Python sees it. What each call promises stands in
// firnkv/_core.pyi and docs/PYTHON.md.
//
// Every call that can wait gives the GIL away; no thread of the SDK ever takes
// it.

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <memory>
#include <utility>

#include "client/python/blocks.h"
#include "client/python/calls.h"
#include "client/python/client_state.h"
#include "client/python/option_reader.h"
#include "client/python/raise.h"
#include "client/python/views.h"
#include "client/python/without_gil.h"
#include "proto/base/mutex.h"
#include "proto/base/text.h"

namespace firnkv::python {
namespace {

// --- Shared memory.

class SharedMemory {
 public:
  SharedMemory(std::shared_ptr<ClientState> client,
               absl::Span<std::byte> memory)
      : client_(std::move(client)), memory_(memory) {}
  ~SharedMemory() { client_->client()->FreeShared(memory_.data()); }

  absl::Span<std::byte> memory() const { return memory_; }

 private:
  const std::shared_ptr<ClientState> client_;  // See ClientState::Connect.
  const absl::Span<std::byte> memory_;
};

std::unique_ptr<SharedMemory> Allocate(
    const std::shared_ptr<ClientState>& client, std::size_t bytes) {
  absl::StatusOr<absl::Span<std::byte>> memory = [&] {
    const WithoutGil released;
    return client->client()->AllocateShared(bytes);
  }();
  return std::make_unique<SharedMemory>(client,
                                        ValueOrRaise(std::move(memory)));
}

py::buffer_info Describe(SharedMemory& self) {
  return py::buffer_info(self.memory().data(), sizeof(std::byte),
                         py::format_descriptor<unsigned char>::format(), 1,
                         {static_cast<py::ssize_t>(self.memory().size())},
                         {py::ssize_t{1}});
}

void DefineSharedMemory(py::module_& module) {
  py::class_<SharedMemory>(
      module, "SharedMemory", py::buffer_protocol(),
      "Page-aligned memory that the node maps too: writes from it cost the SDK "
      "no copy. A writable buffer of bytes; freed with the last object that "
      "uses it.")
      .def_buffer(&Describe)
      .def("__len__",
           [](const SharedMemory& self) { return self.memory().size(); })
      .def_property_readonly("address", [](const SharedMemory& self) {
        return reinterpret_cast<std::uintptr_t>(self.memory().data());
      });
}

// --- Namespaces.

struct Namespace {
  Namespace(std::shared_ptr<ClientState> owner,
            std::shared_ptr<NamespaceSlot> opened)
      : client(std::move(owner)), slot(std::move(opened)) {}
  ~Namespace() {
    // The slot's lock may be held for ever there (rule S6): it is left alone.
    if (client->forked()) new std::shared_ptr<NamespaceSlot>(slot);
  }

  // See ClientState::Connect, NamespaceSlot.
  const std::shared_ptr<ClientState> client;
  const std::shared_ptr<NamespaceSlot> slot;

  std::optional<NamespaceHandle> handle() const {
    if (client->forked()) return std::nullopt;
    return slot->Peek();
  }
  bool chained() const { return slot->request().chained; }
  BlockSource Source(const py::object& blocks) const {
    return BlockSource(blocks, chained());
  }

  py::object Run(Call& call) const {
    {
      const WithoutGil released;
      client->Run(&call, slot.get());
    }
    if (const absl::Status wrong = call.Wrong(); !wrong.ok()) Raise(wrong);
    return call.Tell();
  }
  std::uint64_t Submit(std::unique_ptr<Call> call) const {
    return ValueOrRaise(client->Submit(&call, slot));
  }
};

std::unique_ptr<Namespace> OpenNamespace(
    const std::shared_ptr<ClientState>& client, const py::dict& arguments,
    bool wait) {
  // Shared: see NamespaceSlot.
  auto slot = std::make_shared<NamespaceSlot>(NamespaceRequestOf(arguments));
  absl::Status status;
  {
    const WithoutGil released;
    if (wait) {
      status = slot->Open(client->client());
    } else if (!client->forked()) {
      (void)slot->Get(client->client(), client->clock());
    }
  }
  if (!status.ok()) Raise(status);
  return std::make_unique<Namespace>(client, std::move(slot));
}

std::unique_ptr<ReadCall> MakeRead(const Namespace& self,
                                   const py::object& blocks,
                                   const py::object& into, double deadline,
                                   const std::string& want) {
  return std::make_unique<ReadCall>(
      self.Source(blocks), into, Seconds(deadline, "deadline"), WantOf(want));
}

std::unique_ptr<WriteCall> MakeWrite(const Namespace& self,
                                     const py::object& blocks,
                                     const py::object& source, double deadline,
                                     const std::string& wait_for,
                                     const std::string& conversation,
                                     const std::string& session) {
  return std::make_unique<WriteCall>(
      self.Source(blocks), source,
      WriteCall::Options{.deadline = Seconds(deadline, "deadline"),
                         .wait = WaitOf(wait_for),
                         .hint = {.conversation = conversation,
                                  .session = SessionOf(session)}});
}

std::unique_ptr<ExistsCall> MakeExists(const Namespace& self,
                                       const py::object& blocks,
                                       double deadline,
                                       const std::string& want) {
  return std::make_unique<ExistsCall>(
      self.Source(blocks), Seconds(deadline, "deadline"), WantOf(want));
}

std::unique_ptr<RemoveCall> MakeRemove(const Namespace& self,
                                       const py::object& blocks,
                                       double deadline) {
  return std::make_unique<RemoveCall>(self.Source(blocks),
                                      Seconds(deadline, "deadline"));
}

std::unique_ptr<ViewsCall> MakeViews(const Namespace& self,
                                     const py::object& blocks, double deadline,
                                     double max_age, const std::string& want) {
  return std::make_unique<ViewsCall>(self.Source(blocks),
                                     Seconds(deadline, "deadline"),
                                     WantOf(want), Seconds(max_age, "max_age"));
}

// One call in its two forms: NAME waits, submit_NAME says an id.
template <typename Class, typename... Arguments, typename CallType,
          typename... Extra>
void DefineCall(Class* type, const char* name,
                std::unique_ptr<CallType> (*make)(const Namespace&,
                                                  Arguments...),
                const char* doc, const Extra&... extra) {
  type->def(
      name,
      [make](const Namespace& self, Arguments... arguments) {
        return self.Run(*make(self, arguments...));
      },
      extra..., doc);
  type->def(
      StrCat("submit_", name).c_str(),
      [make](const Namespace& self, Arguments... arguments) {
        return self.Submit(make(self, arguments...));
      },
      extra...,
      "The same, begun now: says the id under which Client.drain gives the "
      "result. Memory stays untouched until then.");
}

py::object BytesOf(std::string_view bytes) {
  return py::bytes(bytes.data(), bytes.size());
}

void DefineNamespaceFacts(py::class_<Namespace>* type) {
  (*type)
      .def_property_readonly(
          "name",
          [](const Namespace& self) { return self.slot->request().name; })
      .def_property_readonly("chained", &Namespace::chained)
      .def_property_readonly(
          "opened",
          [](const Namespace& self) { return self.handle().has_value(); },
          "Whether the cluster has confirmed it; calls are UNAVAILABLE before.")
      .def_property_readonly(
          "why",
          [](const Namespace& self) {
            if (self.client->forked()) return std::string("a forked process");
            return self.slot->Why();
          },
          "Why it is not open; '' where it is.")
      .def_property_readonly("id",
                             [](const Namespace& self) -> py::object {
                               const auto handle = self.handle();
                               if (!handle) return py::none();
                               return BytesOf(handle->id.view());
                             })
      .def_property_readonly("digest",
                             [](const Namespace& self) -> py::object {
                               const auto handle = self.handle();
                               if (!handle) return py::none();
                               return BytesOf(handle->digest.view());
                             })
      .def_property_readonly("version",
                             [](const Namespace& self) -> py::object {
                               const auto handle = self.handle();
                               if (!handle) return py::none();
                               return py::int_(handle->version);
                             })
      .def_property_readonly("block_bytes",
                             [](const Namespace& self) {
                               const auto handle = self.handle();
                               return handle ? handle->block_bytes
                                             : self.slot->request().block_bytes;
                             })
      .def_property_readonly("created", [](const Namespace& self) {
        const auto handle = self.handle();
        return handle && handle->created;
      });
}

void DefineNamespace(py::module_& module) {
  py::class_<Namespace> type(
      module, "Namespace",
      "One tenant's blocks under one state contract. Every call is a batch of "
      "at most 4,096 blocks and has a deadline in seconds.");
  const auto want = py::arg("want") = "leading";
  DefineCall(&type, "read", &MakeRead,
             "Reads blocks into memory of the caller's.", py::arg("blocks"),
             py::arg("into"), py::kw_only(), py::arg("deadline"), want);
  DefineCall(&type, "write", &MakeWrite, "Writes blocks.", py::arg("blocks"),
             py::arg("source"), py::kw_only(), py::arg("deadline"),
             py::arg("wait_for") = "local", py::arg("conversation") = "",
             py::arg("session") = "");
  DefineCall(&type, "exists", &MakeExists, "Asks which blocks are there.",
             py::arg("blocks"), py::kw_only(), py::arg("deadline"), want);
  DefineCall(&type, "remove", &MakeRemove, "Removes blocks, as well as it can.",
             py::arg("blocks"), py::kw_only(), py::arg("deadline"));
  DefineCall(&type, "views", &MakeViews,
             "Opens blocks where they lie in the local node's memory.",
             py::arg("blocks"), py::kw_only(), py::arg("deadline"),
             py::arg("max_age") = 5.0, want);
  DefineNamespaceFacts(&type);
}

// --- The Client.

py::list Drain(ClientState& self, std::size_t most) {
  py::list drained;
  for (const std::unique_ptr<Call>& call : self.Drain(most)) {
    drained.append(py::make_tuple(call->id, call->Tell()));
  }
  return drained;
}

py::dict About(ClientState& self) {
  py::dict facts;
  if (self.forked()) return facts;  // Locks of the parent's (rule S6).
  const Client::About about = self.client()->Describe();
  facts["session"] = about.session;
  facts["node"] = ToHex(about.node);
  facts["cluster"] = ToHex(about.cluster);
  facts["tenant"] = about.tenant_name;
  facts["catalog_address"] = about.catalog_address;
  facts["mapping"] = about.mapping;
  facts["largest_block_bytes"] = about.largest_block_bytes;
  return facts;
}

template <std::size_t N>
py::dict ByOutcome(const std::array<std::uint64_t, N>& counts) {
  py::dict named;
  for (std::size_t i = 1; i < N; ++i) {
    if (counts[i] == 0) continue;
    const std::string_view label = OutcomeLabel(static_cast<Outcome>(i));
    named[py::str(label.data(), label.size())] = counts[i];
  }
  return named;
}

py::dict StatsOf(ClientState& self) {
  py::dict told;
  if (self.forked()) return told;  // Locks of the parent's (rule S6).
  const ClientStats stats = self.client()->Stats();
  told["read_outcomes"] = ByOutcome(stats.read_outcomes);
  told["write_outcomes"] = ByOutcome(stats.write_outcomes);
  told["view_outcomes"] = ByOutcome(stats.view_outcomes);
  told["bytes_mapped"] = stats.bytes_mapped;
  told["bytes_remote"] = stats.bytes_remote;
  told["bytes_viewed"] = stats.bytes_viewed;
  told["bytes_stored"] = stats.bytes_stored;
  told["bytes_staged"] = stats.bytes_staged;
  told["stream_reads"] = stats.stream_reads;
  told["location_hits"] = stats.location_hits;
  told["locate_failures"] = stats.locate_failures;
  told["corrupt_blocks"] = stats.corrupt_blocks;
  told["promoted_here"] = stats.promoted_here;
  told["views_dropped"] = stats.views_dropped;
  told["sessions"] = stats.sessions;
  told["sessions_lost"] = stats.sessions_lost;
  return told;
}

void DefineClient(py::module_& module) {
  // Named as what Python code derives from (firnkv/_client.py).
  py::class_<ClientState, std::shared_ptr<ClientState>>(module, "ClientBase",
                                                        py::dynamic_attr())
      .def(py::init([](const py::dict& arguments) {
        ClientOptions options = ClientOptionsOf(arguments);
        auto state = [&] {
          const WithoutGil released;
          return ClientState::Connect(std::move(options));
        }();
        return ValueOrRaise(std::move(state));
      }))
      .def("_open_namespace", &OpenNamespace)
      .def("allocate_shared", &Allocate, py::arg("nbytes"))
      .def("drain", &Drain, py::arg("most") = kMaxUndrained)
      .def("completion_fd",
           [](ClientState& self) { return ValueOrRaise(self.CompletionFd()); })
      .def("close", &ClientState::Close, py::call_guard<WithoutGil>())
      .def(
          "set_token",
          [](ClientState& self, const std::string& token) {
            const std::optional<std::string> bytes = FromHex(token);
            if (!bytes) Raise("ValueError", "a token is hex text");
            self.SetToken(*bytes);
          },
          py::arg("token"))
      .def("about", &About)
      .def("stats", &StatsOf)
      .def_property_readonly("forked", &ClientState::forked);
}

py::dict Outcomes() {
  py::dict numbers;
  for (int number = 1; number <= kLastOutcome; ++number) {
    const std::string_view label = OutcomeLabel(static_cast<Outcome>(number));
    numbers[py::str(label.data(), label.size())] = number;
  }
  return numbers;
}

}  // namespace
}  // namespace firnkv::python

PYBIND11_MODULE(_core, module) {
  module.doc() = "The C++ SDK of FirnKV; use the package firnkv.";
  // Of the Abseil that came with this module, which nobody else uses.
  firnkv::TurnOffDeadlockDetection();
  firnkv::python::DefineBlocks(module);
  firnkv::python::DefineResults(module);
  firnkv::python::DefineViews(module);
  firnkv::python::DefineSharedMemory(module);
  firnkv::python::DefineNamespace(module);
  firnkv::python::DefineClient(module);
  module.def("outcomes", &firnkv::python::Outcomes,
             "Number of each outcome by its label.");
}
