// The page for machines that watch a daemon.

#include "server/base/admin_http.h"

#include <httplib.h>

#include <string>

#include "gtest/gtest.h"

namespace firnkv {
namespace {

class AdminHttpTest : public testing::Test {
 protected:
  void SetUp() override {
    auto started = AdminHttp::Start(
        "127.0.0.1:0", {.metrics = [] { return std::string("firnkv_up 1\n"); },
                        .unhealthy_because = [this] { return trouble_; },
                        .config = [] { return std::string("dram: {}\n"); }});
    ASSERT_TRUE(started.ok()) << started.status();
    http_ = *std::move(started);
  }
  httplib::Result Get(const char* path) {
    return httplib::Client("http://" + http_->address()).Get(path);
  }

  std::string trouble_;
  std::unique_ptr<AdminHttp> http_;
};

TEST_F(AdminHttpTest, MetricsAreServed) {
  const httplib::Result result = Get("/metrics");
  ASSERT_TRUE(result);
  EXPECT_EQ(result->body, "firnkv_up 1\n");
}

TEST_F(AdminHttpTest, HealthTellsTroubleByItsStatus) {
  EXPECT_EQ(Get("/healthz")->status, 200);
  trouble_ = "draining";
  EXPECT_EQ(Get("/healthz")->status, 503);
}

// Once, two clients that kept their connections left no thread for a third one.
TEST_F(AdminHttpTest, ClientsThatKeepTheirConnectionsKeepNobodyOut) {
  httplib::Client first("http://" + http_->address());
  httplib::Client second("http://" + http_->address());
  for (httplib::Client* one : {&first, &second}) {
    one->set_keep_alive(true);
    const httplib::Result result = one->Get("/metrics");
    ASSERT_TRUE(result);
    EXPECT_EQ(result->get_header_value("Connection"), "close");
  }

  const httplib::Result health = Get("/healthz");

  ASSERT_TRUE(health);
  EXPECT_EQ(health->status, 200);
}

TEST_F(AdminHttpTest, TheFirstPageNamesTheOthers) {
  const httplib::Result result = Get("/");
  ASSERT_TRUE(result);
  for (const char* page : {"/metrics", "/healthz", "/configz"}) {
    EXPECT_NE(result->body.find(page), std::string::npos) << page;
  }
}

TEST_F(AdminHttpTest, WhatIsNotThereIsNotFound) {
  EXPECT_EQ(Get("/secrets")->status, 404);
}

TEST_F(AdminHttpTest, AnAddressInUseIsRefusedWithWhatToDo) {
  const auto second = AdminHttp::Start(http_->address(), {});
  ASSERT_FALSE(second.ok());
  EXPECT_NE(std::string(second.status().message()).find("http.address"),
            std::string::npos);
}

TEST_F(AdminHttpTest, AnAddressThatIsNoneIsRefused) {
  EXPECT_FALSE(AdminHttp::Start("localhost", {}).ok());
  EXPECT_FALSE(AdminHttp::Start("localhost:99999", {}).ok());
}

}  // namespace
}  // namespace firnkv
