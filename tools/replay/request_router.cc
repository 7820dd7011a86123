#include "tools/replay/request_router.h"

#include <optional>

namespace firnkv {

std::size_t RequestRouter::Assign(const TraceRequest& request) {
  if (routing_ == Routing::kInTurn) return NextInTurn();
  std::optional<std::size_t> worker;
  for (std::size_t i = request.ids.size(); i > 1 && !worker; --i) {
    const auto had = had_.find(request.ids[i - 1]);
    if (had != had_.end()) worker = had->second;
  }
  const std::size_t chosen = worker.has_value() ? *worker : NextInTurn();
  for (std::size_t i = 1; i < request.ids.size(); ++i) {
    had_[request.ids[i]] = static_cast<std::uint32_t>(chosen);
  }
  return chosen;
}

}  // namespace firnkv
