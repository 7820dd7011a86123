// A node's link to the catalog that the test plays, over the parts of
// node_fixture.h.
//
// Threading. One thread only.

#ifndef FIRNKV_TESTS_SERVER_NODE_LINK_FIXTURE_H_
#define FIRNKV_TESTS_SERVER_NODE_LINK_FIXTURE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/base/log.h"
#include "server/node/catalog_link.h"
#include "tests/server/node/node_fixture.h"

namespace firnkv {

class LinkFixture : public NodeFixture {
 protected:
  LinkFixture() {
    address_.node = state_.memory().node;
    address_.epoch = NodeEpoch{0xe90c};
    address_.stream_address = "node:7411";
    address_.control_address = "node:7410";
  }
  ~LinkFixture() override { StopLink(); }

  void StartLink(AnnouncementLog* log = nullptr) {
    link_ = std::make_unique<CatalogLink>(
        CatalogLink::Options{.address = &address_,
                             .version = "test",
                             .announcer = announcer_options_},
        CatalogLink::Parts{.executor = executor(),
                           .random = node_->seams().random,
                           .log = &log_,
                           .catalog = &catalog_client_,
                           .credentials = &credentials_,
                           .state = &state_,
                           .announcements = log ? log : &announcements_,
                           .namespaces = &namespaces_,
                           .pool = pool_.get()},
        [this] { superseded_ = true; });
    link_->Start();
  }
  void StopLink() {
    if (link_ != nullptr) link_->Stop();
    catalog_client_.Close();
    link_.reset();
  }
  // Registered, inventory applied.
  void Settle() {
    StartLink();
    ASSERT_TRUE(world_.executor()->RunUntil([this] {
      return link_->state() == CatalogLink::State::kRegistered &&
             link_->settled();
    }));
  }
  std::vector<Outcome> WaitPublished(std::uint64_t n, absl::Duration within) {
    std::vector<Outcome> got;
    link_->WaitPublished(
        {{granite_.name_space, KeyOf(n)}}, In(within),
        [&](std::vector<Outcome> outcomes) { got = std::move(outcomes); });
    EXPECT_TRUE(world_.executor()->RunUntil([&] { return !got.empty(); }));
    return got;
  }
  bool Published(std::uint64_t n) const {
    return catalog_.published.count({granite_.name_space, KeyOf(n)}) > 0;
  }

  NodeAddress address_;
  // Of the next StartLink.
  Announcer::Options announcer_options_;
  // What was logged.
  class Lines : public LogSink {
   public:
    void Emit(Severity, std::string_view line) override {
      text.append(line).append("\n");
    }
    std::string text;
  };
  Lines lines_;
  Logger log_{Logger::Options{}, node_->process()->clock(), &lines_};
  bool superseded_ = false;
  std::unique_ptr<CatalogLink> link_;
};

}  // namespace firnkv

#endif  // FIRNKV_TESTS_SERVER_NODE_LINK_FIXTURE_H_
