#include "client/python/option_reader.h"

#include <unistd.h>

#include <cmath>
#include <set>
#include <string>
#include <utility>

#include "client/python/raise.h"
#include "proto/base/id.h"
#include "proto/base/text.h"

namespace firnkv::python {
namespace {

// Takes arguments out of a dict by name, and knows which nobody has taken.
class Arguments {
 public:
  Arguments(const py::dict& given, const char* of) : given_(given), of_(of) {}

  // Leaves `*to` as it is where there is none.
  template <typename T>
  void Take(const char* name, T* to) {
    if (const py::object value = Find(name)) *to = Cast<T>(name, value);
  }
  template <typename T>
  void Take(const char* name, std::optional<T>* to) {
    if (const py::object value = Find(name)) *to = Cast<T>(name, value);
  }
  void Take(const char* name, absl::Duration* to) {
    if (const py::object value = Find(name)) {
      *to = Seconds(Cast<double>(name, value), name);
    }
  }
  py::object Find(const char* name) {
    taken_.insert(name);
    if (!given_.contains(name)) return py::object();
    py::object value = given_[name];
    return value.is_none() ? py::object() : value;
  }
  // Raises for the first one that nobody has taken.
  void Finish() const {
    for (const auto& [name, value] : given_) {
      const auto text = py::str(name).cast<std::string>();
      if (taken_.count(text) == 0) {
        Raise("TypeError", StrCat(of_, " has no argument '", text, "'"));
      }
    }
  }

 private:
  template <typename T>
  T Cast(const char* name, const py::object& value) const {
    py::detail::make_caster<T> caster;
    if (!caster.load(value, /*convert=*/true)) {
      Raise("TypeError", StrCat(of_, ": ", name, " cannot be ",
                                py::repr(value).cast<std::string>()));
    }
    return py::detail::cast_op<T>(std::move(caster));
  }

  const py::dict given_;
  const char* const of_;
  std::set<std::string> taken_;
};

void TakeToken(Arguments* arguments, ClientOptions* options) {
  std::string token;
  arguments->Take("token", &token);
  if (token.empty()) return;
  std::optional<std::string> bytes = FromHex(token);
  if (!bytes) {
    Raise("ValueError",
          "token must be the hex text that `firnkv tenant token` prints");
  }
  options->token = *std::move(bytes);
}

// Without the GIL and without a lock: one line is one write.
void TakeLog(Arguments* arguments, ClientOptions* options) {
  std::optional<int> fd;
  arguments->Take("log_fd", &fd);
  if (!fd) return;
  options->log = [fd = *fd](std::string_view line) {
    const std::string text = StrCat("firnkv: ", line, "\n");
    // A log that cannot be written to is no reason to fail.
    [[maybe_unused]] const ssize_t done = ::write(fd, text.data(), text.size());
  };
}

void TakeContract(const py::dict& given, StateContract* contract) {
  Arguments arguments(given, "a state contract");
  arguments.Take("model", &contract->model);
  arguments.Take("weights_revision", &contract->weights_revision);
  arguments.Take("tokenizer", &contract->tokenizer);
  arguments.Take("preprocessing", &contract->preprocessing);
  arguments.Take("positional", &contract->positional);
  arguments.Take("kv_dtype", &contract->kv_dtype);
  arguments.Take("layer_order", &contract->layer_order);
  arguments.Take("kv_order", &contract->kv_order);
  arguments.Take("head_grouping", &contract->head_grouping);
  arguments.Take("page_order", &contract->page_order);
  arguments.Take("block_tokens", &contract->block_tokens);
  arguments.Take("tensor_parallel", &contract->tensor_parallel);
  arguments.Take("pipeline_parallel", &contract->pipeline_parallel);
  arguments.Take("context_parallel", &contract->context_parallel);
  arguments.Take("layout_version", &contract->layout_version);
  arguments.Take("cache_salt", &contract->cache_salt);
  if (const py::object adapters = arguments.Find("adapters")) {
    for (const py::handle adapter : adapters) {
      const auto pair = adapter.cast<std::pair<std::string, std::string>>();
      contract->adapters.push_back({pair.first, pair.second});
    }
  }
  arguments.Finish();
}

}  // namespace

absl::Duration Seconds(double seconds, const char* what) {
  if (!std::isfinite(seconds) || seconds < 0) {
    Raise("ValueError", StrCat(what, " must be seconds, 0 or more; not ",
                               std::to_string(seconds)));
  }
  return absl::Seconds(seconds);
}

ClientOptions ClientOptionsOf(const py::dict& given) {
  ClientOptions options;
  Arguments arguments(given, "Client");
  arguments.Take("socket_path", &options.socket_path);
  arguments.Take("catalog_address", &options.catalog_address);
  TakeToken(&arguments, &options);
  arguments.Take("client_name", &options.client_name);
  arguments.Take("server_uid", &options.server_uid);
  arguments.Take("zone", &options.labels.zone);
  arguments.Take("rack", &options.labels.rack);
  arguments.Take("host", &options.labels.host);
  arguments.Take("connect_timeout", &options.connect_timeout);
  arguments.Take("wait_for_node", &options.wait_for_node);
  arguments.Take("longest_deadline", &options.longest_deadline);
  arguments.Take("buffer_grace", &options.buffer_grace);
  arguments.Take("read_lease", &options.read_lease);
  arguments.Take("reservation", &options.reservation);
  arguments.Take("location_life", &options.location_life);
  arguments.Take("staging_bytes", &options.staging_bytes);
  arguments.Take("shared_bytes", &options.shared_bytes);
  arguments.Take("bounce_bytes", &options.bounce_bytes);
  arguments.Take("max_locations", &options.max_locations);
  arguments.Take("map_local_blocks", &options.map_local_blocks);
  arguments.Take("call_frames", &options.call_frames);
  arguments.Take("check_views", &options.check_views);
  arguments.Take("streams_per_node", &options.streams_per_node);
  arguments.Take("stream_connect_timeout", &options.stream_connect_timeout);
  arguments.Take("threads", &options.threads);
  TakeLog(&arguments, &options);
  arguments.Finish();
  return options;
}

OpenNamespaceRequest NamespaceRequestOf(const py::dict& given) {
  OpenNamespaceRequest request;
  Arguments arguments(given, "open_namespace");
  arguments.Take("name", &request.name);
  arguments.Take("create", &request.create);
  arguments.Take("block_bytes", &request.block_bytes);
  arguments.Take("chained", &request.chained);
  arguments.Take("retention", &request.retention);
  arguments.Take("strict_clear", &request.strict_clear);
  arguments.Take("deadline", &request.deadline);
  const py::object contract = arguments.Find("contract");
  if (!contract || !py::isinstance<py::dict>(contract)) {
    Raise("TypeError", "open_namespace: contract must be a StateContract");
  }
  TakeContract(contract, &request.contract);
  arguments.Finish();
  return request;
}

ReadWant WantOf(const std::string& word) {
  if (word == "leading") return ReadWant::kLeadingRun;
  if (word == "every") return ReadWant::kEveryBlock;
  Raise("ValueError", StrCat("want is 'leading' or 'every', not '", word, "'"));
}

WriteWait WaitOf(const std::string& word) {
  if (word == "local") return WriteWait::kLocal;
  if (word == "published") return WriteWait::kPublished;
  if (word == "flash") return WriteWait::kFlash;
  Raise(
      "ValueError",
      StrCat("wait_for is 'local', 'published' or 'flash', not '", word, "'"));
}

WriteHint::Session SessionOf(const std::string& word) {
  if (word.empty()) return WriteHint::Session::kUnknown;
  if (word == "will_return") return WriteHint::Session::kWillReturn;
  if (word == "ended") return WriteHint::Session::kEnded;
  Raise("ValueError",
        StrCat("session is '', 'will_return' or 'ended', not '", word, "'"));
}

}  // namespace firnkv::python
