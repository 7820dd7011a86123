// A whole simulated catalog that outlives many inputs: a member that announces
// whatever, and another whose entries nobody else may touch.
//
// Threading. One thread only.

#ifndef FIRNKV_TESTS_FUZZ_FUZZ_CATALOG_H_
#define FIRNKV_TESTS_FUZZ_FUZZ_CATALOG_H_

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "proto/base/check.h"
#include "tests/server/catalog/service_fixture.h"

namespace firnkv {

class FuzzCatalog : public ServiceFixture {
 public:
  FuzzCatalog() {
    // A failed expectation of the fixture is a finding too.
    testing::GTEST_FLAG(break_on_failure) = true;
    tenant_ = MakeTenant("alice");
    facts_ = Open(tenant_, "granite")->facts();
    sound_ = Join(2, 20);
    Publish(&sound_, facts_, {1, 2, 3});
    member_ = Join(1, 10);
  }
  void TestBody() override {}

  using ServiceFixture::Member;
  using ServiceFixture::RegisterRequestOf;

  // The one in use; a new one now and then, so that none grows for ever.
  static FuzzCatalog& Fresh() {
    static std::unique_ptr<FuzzCatalog> catalog;
    static int inputs = 0;
    if (inputs++ % 200 == 0) {
      catalog.reset();
      catalog = std::make_unique<FuzzCatalog>();
    }
    return *catalog;
  }

  // Every call is answered.
  absl::StatusOr<std::string> CallRaw(std::string_view service,
                                      std::string_view method,
                                      const std::string& request) {
    std::optional<absl::StatusOr<std::string>> answer;
    channel_->StartCall(StrCat("/firnkv.v1.", service, "/", method), request,
                        absl::Seconds(5),
                        [&](absl::StatusOr<std::string> response) {
                          CHECK(!answer.has_value());
                          answer = std::move(response);
                        });
    CHECK(world_.RunUntil([&] { return answer.has_value(); }));
    return *std::move(answer);
  }
  v1::RequestHeader HeaderOf(Role role) {
    RequestHeader header;
    header.remaining = absl::Seconds(5);
    header.token = Token(role, role == Role::kTenant ? tenant_ : TenantId{});
    v1::RequestHeader message;
    ToProto(header, &message);
    return message;
  }

  // The registration of the member that misbehaves, again where it was lost.
  Member& member() {
    if (!KeepAlive(&member_).ok()) {
      member_ = Join(1, next_epoch_++);
    }
    return member_;
  }
  const v1::NamespaceFacts& facts() const { return facts_; }
  v1::AnnounceRequest Batch(v1::AnnounceRequest::Kind kind,
                            const std::vector<std::uint64_t>& keys) {
    return BatchOf(member_, kind, facts_, keys);
  }

  // What the sound member said is still known, whoever asks.
  void CheckUnharmed() {
    CHECK(KeepAlive(&sound_).ok());
    for (const Outcome outcome : OutcomesOf(tenant_, facts_, {1, 2, 3})) {
      CHECK(outcome == Outcome::kHit);
    }
  }

 private:
  TenantId tenant_;
  v1::NamespaceFacts facts_;
  Member sound_;
  Member member_;
  std::uint64_t next_epoch_ = 11;
};

}  // namespace firnkv

#endif  // FIRNKV_TESTS_FUZZ_FUZZ_CATALOG_H_
