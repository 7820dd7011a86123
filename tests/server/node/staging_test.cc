// Clients' memory: what is accepted, what it counts, and how long it stays.

#include "server/node/staging.h"

#include <memory>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/bytes.h"
#include "tests/server/tier/pool_fixture.h"
#include "tests/support/matchers.h"
#include "tests/support/sim_memory.h"

namespace firnkv {
namespace {

using ::testing::HasSubstr;

const TenantId kTenant = MakeId<TenantId>(1);
const SessionId kWriter = MakeId<SessionId>(11);
const SessionId kOther = MakeId<SessionId>(12);

class StagingTest : public testing::Test {
 protected:
  std::shared_ptr<SharedMemory> Memory(std::uint64_t bytes) {
    return *memory_.Make(MemoryKindWanted::kStaging, "test", bytes);
  }
  absl::Status Add(std::uint64_t id, std::uint64_t bytes,
                   SessionId session = kWriter) {
    return staging_.Add(session, kTenant, id, bytes, Memory(bytes));
  }

  SimMemory memory_;
  Staging staging_{{.max_bytes_a_session = 4 * kMiB,
                    .max_count_a_session = 3,
                    .max_bytes_a_tenant = 6 * kMiB,
                    .max_count_a_tenant = 4}};
};

TEST_F(StagingTest, ARangeOfAcceptedMemoryIsWhatTheClientWroteThere) {
  auto memory = Memory(kMiB);
  auto mapping = *memory->Map(MapAccess::kReadWrite);
  mapping->bytes()[5000] = std::byte{42};
  ASSERT_OK(staging_.Add(kWriter, kTenant, 7, kMiB, memory));

  ASSERT_OK_AND_ASSIGN(const StagingRange range,
                       staging_.Resolve(kWriter, 7, 5000, 10));

  EXPECT_EQ(range.bytes.size(), 10u);
  EXPECT_EQ(range.bytes[0], std::byte{42});
}

// Rule S1.
TEST_F(StagingTest, UnsealedMemoryIsRefused) {
  EXPECT_FALSE(
      staging_.Add(kWriter, kTenant, 1, kMiB, memory_.MakeUnsealed(kMiB)).ok());
  EXPECT_EQ(staging_.mapped_bytes(), 0u);
}

TEST_F(StagingTest, MemoryThatIsNotWhatWasSaidIsRefused) {
  EXPECT_THAT(staging_.Add(kWriter, kTenant, 1, 2 * kMiB, Memory(kMiB)),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("2097152 bytes and has 1048576")));
  EXPECT_THAT(staging_.Add(kWriter, kTenant, 0, kMiB, Memory(kMiB)),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(staging_.Add(kWriter, kTenant, 1, kMiB, nullptr),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_F(StagingTest, ANumberIsGivenOnceASession) {
  ASSERT_OK(Add(1, kMiB));

  EXPECT_THAT(Add(1, kMiB), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_OK(Add(1, kMiB, kOther));
  EXPECT_EQ(staging_.mapped_bytes(), 2 * kMiB);
}

// Rule S1: size and count are capped by session and by tenant.
TEST_F(StagingTest, ASessionsBytesAndCountAreCapped) {
  ASSERT_OK(Add(1, 3 * kMiB));
  EXPECT_THAT(Add(2, 2 * kMiB), StatusIs(absl::StatusCode::kResourceExhausted));
  ASSERT_OK(Add(2, kMiB / 2));
  ASSERT_OK(Add(3, kMiB / 2));
  EXPECT_THAT(Add(4, 4096), StatusIs(absl::StatusCode::kResourceExhausted,
                                     HasSubstr("of the session")));
}

TEST_F(StagingTest, ATenantsBytesAndCountAreCappedOverItsSessions) {
  ASSERT_OK(Add(1, 4 * kMiB));
  EXPECT_THAT(Add(1, 3 * kMiB, kOther),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("of the tenant")));
  ASSERT_OK(Add(1, kMiB, kOther));
  ASSERT_OK(Add(2, 4096, kOther));
  ASSERT_OK(Add(3, 4096, kOther));
  EXPECT_THAT(Add(1, 4096, MakeId<SessionId>(13)),
              StatusIs(absl::StatusCode::kResourceExhausted));
}

TEST_F(StagingTest, ARangeBeyondItsMemoryIsRefusedWithoutOverflow) {
  ASSERT_OK(Add(1, kMiB));

  for (const auto& [offset, length] :
       {std::pair<std::uint64_t, std::uint64_t>{kMiB, 1},
        {0, kMiB + 1},
        {kMiB - 1, 2},
        {UINT64_MAX, 2},
        {2, UINT64_MAX}}) {
    EXPECT_THAT(staging_.Resolve(kWriter, 1, offset, length),
                StatusIs(absl::StatusCode::kInvalidArgument));
  }
  EXPECT_OK(staging_.Resolve(kWriter, 1, kMiB, 0));
}

// Rule S3.
TEST_F(StagingTest, AnotherSessionsStagingCannotBeNamed) {
  ASSERT_OK(Add(1, kMiB));

  EXPECT_THAT(staging_.Resolve(kOther, 1, 0, 1),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

// Rule S1: unmapped once its copies have ended, and charged until then.
TEST_F(StagingTest, DroppedMemoryStaysMappedForACopyInFlight) {
  ASSERT_OK(Add(1, 4 * kMiB));
  ASSERT_OK_AND_ASSIGN(StagingRange range,
                       staging_.Resolve(kWriter, 1, 0, kMiB));

  staging_.Drop(kWriter, 1);
  EXPECT_EQ(memory_.mappings(), 1);
  EXPECT_EQ(range.bytes[0], std::byte{0});
  EXPECT_THAT(Add(2, kMiB), StatusIs(absl::StatusCode::kResourceExhausted))
      << "it is still charged";
  range = StagingRange{};

  EXPECT_EQ(memory_.mappings(), 0);
  EXPECT_EQ(staging_.mapped_bytes(), 0u);
  EXPECT_OK(Add(2, kMiB));
}

TEST_F(StagingTest, ASessionsEndGivesEverythingBack) {
  ASSERT_OK(Add(1, kMiB));
  ASSERT_OK(Add(2, kMiB));
  ASSERT_OK(Add(1, kMiB, kOther));

  staging_.EndSession(kWriter);

  EXPECT_EQ(staging_.mapped_bytes(), kMiB);
  EXPECT_THAT(staging_.Resolve(kWriter, 1, 0, 1),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_OK(staging_.Resolve(kOther, 1, 0, 1));
}

}  // namespace
}  // namespace firnkv
