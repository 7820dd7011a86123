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
