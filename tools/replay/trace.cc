#include "tools/replay/trace.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "proto/base/status.h"
#include "proto/base/text.h"

namespace firnkv {
namespace {

// Lines of a stream, none longer than kMaxTraceLineBytes.
class BoundedLines {
 public:
  explicit BoundedLines(std::istream& in) : in_(in) {}

  // nullopt at the end.
  absl::StatusOr<std::optional<std::string_view>> Next() {
    line_.clear();
    ++number_;
    while (true) {
      if (place_ == filled_ && !Fill()) {
        if (in_.bad()) return absl::DataLossError("the file cannot be read");
        if (line_.empty()) return std::optional<std::string_view>();
        return std::optional<std::string_view>(line_);
      }
      const char* begin = chunk_ + place_;
      const auto* end =
          static_cast<const char*>(std::memchr(begin, '\n', filled_ - place_));
      const std::size_t size =
          end == nullptr ? filled_ - place_ : std::size_t(end - begin);
      if (line_.size() + size > kMaxTraceLineBytes) {
        return absl::InvalidArgumentError(StrCat(
            "line ", number_, ": longer than ", kMaxTraceLineBytes, " bytes"));
      }
      line_.append(begin, size);
      place_ += size + (end == nullptr ? 0 : 1);
      if (end != nullptr) return std::optional<std::string_view>(line_);
    }
  }

  std::size_t number() const { return number_; }

 private:
  bool Fill() {
    in_.read(chunk_, sizeof(chunk_));
    filled_ = static_cast<std::size_t>(in_.gcount());
    place_ = 0;
    return filled_ > 0;
  }

  std::istream& in_;
  std::size_t number_ = 0;
  std::string line_;
  std::size_t place_ = 0;
  std::size_t filled_ = 0;
  char chunk_[64 << 10];
};

absl::Status CheckAndCut(const TraceOptions& options, TraceRequest* request) {
  const std::size_t full = request->input_tokens / options.block_tokens;
  const std::size_t all =
      full + (request->input_tokens % options.block_tokens == 0 ? 0 : 1);
  if (request->ids.size() < full || request->ids.size() > all) {
    return absl::InvalidArgumentError(
        StrCat(request->input_tokens, " tokens in blocks of ",
               options.block_tokens, " are ", all, " hash_ids, not ",
               request->ids.size(), ": is the number of block tokens right?"));
  }
  request->ids.resize(full);
  return absl::OkStatus();
}

// Which id every id follows: always the same one, or it is no chain.
class ChainCheck {
 public:
  absl::Status Check(const std::vector<std::uint64_t>& ids) {
    const std::uint64_t* previous = nullptr;
    std::uint32_t position = 0;
    for (const std::uint64_t& id : ids) {
      const Before before{previous == nullptr ? 0 : *previous, position++};
      const auto [place, added] = before_.emplace(id, before);
      if (!added && (place->second.position != before.position ||
                     place->second.id != before.id)) {
        return absl::InvalidArgumentError(
            StrCat("hash_id ", id, " stands at position ", before.position,
                   " after ", before.id, ", elsewhere at position ",
                   place->second.position, " after ", place->second.id,
                   ": an id must stand for a block and all before it"));
      }
      previous = &id;
    }
    return absl::OkStatus();
  }
  std::size_t distinct() const { return before_.size(); }

 private:
  struct Before {
    std::uint64_t id;
    std::uint32_t position;
  };
  absl::flat_hash_map<std::uint64_t, Before> before_;
};

absl::Status AtLine(std::size_t number, const absl::Status& status) {
  return Annotate(status, StrCat("line ", number));
}

// Cuts to what `options` want and counts what is left.
void Finish(const TraceOptions& options, Trace* trace) {
  std::stable_sort(
      trace->requests.begin(), trace->requests.end(),
      [](const TraceRequest& a, const TraceRequest& b) { return a.at < b.at; });
  const auto late = std::find_if(
      trace->requests.begin(), trace->requests.end(),
      [&](const TraceRequest& request) { return request.at >= options.first; });
  trace->requests.erase(late, trace->requests.end());
  if (trace->requests.size() > options.most_requests) {
    trace->requests.resize(options.most_requests);
  }
}

void Count(Trace* trace) {
  absl::flat_hash_map<std::uint64_t, bool> seen;
  for (const TraceRequest& request : trace->requests) {
    trace->references += request.ids.size();
    trace->input_tokens += request.input_tokens;
    for (const std::uint64_t id : request.ids) seen.emplace(id, true);
  }
  trace->distinct = seen.size();
}

}  // namespace

absl::StatusOr<Trace> ReadTrace(std::istream& in, const TraceOptions& options) {
  if (options.block_tokens == 0) {
    return absl::InvalidArgumentError("block tokens must not be 0");
  }
  Trace trace;
  ChainCheck chains;
  std::size_t references = 0;
  BoundedLines lines(in);
  while (true) {
    ASSIGN_OR_RETURN(const std::optional<std::string_view> line, lines.Next());
    if (!line.has_value()) break;
    if (line->find_first_not_of(" \t\r") == std::string_view::npos) continue;
    absl::StatusOr<TraceRequest> request = ParseTraceLine(*line);
    if (!request.ok()) return AtLine(lines.number(), request.status());
    RETURN_IF_ERROR(AtLine(lines.number(), CheckAndCut(options, &*request)));
    RETURN_IF_ERROR(AtLine(lines.number(), chains.Check(request->ids)));
    references += request->ids.size();
    if (trace.requests.size() == kMaxTraceRequests ||
        references > kMaxTraceReferences) {
      return AtLine(lines.number(),
                    absl::ResourceExhaustedError(
                        StrCat("more than ", kMaxTraceRequests, " requests or ",
                               kMaxTraceReferences, " blocks; cut the file")));
    }
    trace.requests.push_back(*std::move(request));
  }
  Finish(options, &trace);
  Count(&trace);
  if (trace.requests.empty()) {
    return absl::InvalidArgumentError("no request in it");
  }
  return trace;
}

absl::StatusOr<Trace> ReadTraceFile(const std::string& path,
                                    const TraceOptions& options) {
  std::ifstream in(path, std::ios::binary);
  if (!in) {
    return absl::ErrnoToStatus(errno, ToAbsl(StrCat("trace ", path)));
  }
  absl::StatusOr<Trace> trace = ReadTrace(in, options);
  if (!trace.ok()) return Annotate(trace.status(), StrCat("trace ", path));
  return trace;
}

void WriteTrace(const Trace& trace, std::ostream& out) {
  for (const TraceRequest& request : trace.requests) {
    out << "{\"timestamp\": " << absl::ToInt64Milliseconds(request.at)
        << ", \"input_length\": " << request.input_tokens
        << ", \"output_length\": " << request.output_tokens
        << ", \"hash_ids\": [";
    const char* separator = "";
    for (const std::uint64_t id : request.ids) {
      out << separator << id;
      separator = ", ";
    }
    out << "]}\n";
  }
}

}  // namespace firnkv
