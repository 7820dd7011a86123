#include "tests/support/sim_memory.h"

#include <cstddef>
#include <memory>

#include "gtest/gtest.h"
#include "tests/support/matchers.h"

namespace firnkv {
namespace {

TEST(SimMemoryTest, TwoMappingsOfOneMemoryShowTheSameBytes) {
  SimMemory memory;
  ASSERT_OK_AND_ASSIGN(auto made,
                       memory.Make(MemoryKindWanted::kRegion, "r", 8192));
  ASSERT_OK_AND_ASSIGN(auto writer, made->Map(MapAccess::kReadWrite));
  ASSERT_OK_AND_ASSIGN(auto reader_end, made->ReopenReadOnly());
  ASSERT_OK_AND_ASSIGN(auto reader, reader_end->Map(MapAccess::kRead));

  writer->bytes()[4096] = std::byte{7};

  EXPECT_EQ(reader->bytes()[4096], std::byte{7});
}

// Rule P10.
TEST(SimMemoryTest, ADescriptorReopenedReadOnlyIsNotMappedForWriting) {
  SimMemory memory;
  ASSERT_OK_AND_ASSIGN(auto made,
                       memory.Make(MemoryKindWanted::kRegion, "r", 4096));
  ASSERT_OK_AND_ASSIGN(auto reader, made->ReopenReadOnly());

  EXPECT_THAT(reader->Map(MapAccess::kReadWrite),
              StatusIs(absl::StatusCode::kPermissionDenied));
  EXPECT_THAT(DuplicateDescriptor(reader.get())->Map(MapAccess::kReadWrite),
              StatusIs(absl::StatusCode::kPermissionDenied));
}

// Rule P10.
TEST(SimMemoryTest, AHeaderTableHasNoWritableMappingButItsMakers) {
  SimMemory memory;
  ASSERT_OK_AND_ASSIGN(auto table, memory.MakeHeaderTable("h", 4096));

  EXPECT_EQ(table.writable->bytes().size(), 4096u);
  EXPECT_THAT(table.memory->Map(MapAccess::kReadWrite),
              StatusIs(absl::StatusCode::kPermissionDenied));
}

TEST(SimMemoryTest, PunchedBytesReadAsZeros) {
  SimMemory memory;
  ASSERT_OK_AND_ASSIGN(auto made,
                       memory.Make(MemoryKindWanted::kRegion, "r", 8192));
  ASSERT_OK_AND_ASSIGN(auto mapped, made->Map(MapAccess::kReadWrite));
  mapped->bytes()[0] = std::byte{1};
  mapped->bytes()[4096] = std::byte{2};

  ASSERT_OK(made->Punch(4096, 4096));

  EXPECT_EQ(mapped->bytes()[0], std::byte{1});
  EXPECT_EQ(mapped->bytes()[4096], std::byte{0});
  EXPECT_THAT(made->Punch(4096, 4097), StatusIs(absl::StatusCode::kOutOfRange));
}

TEST(SimMemoryTest, MemoryIsChargedUntilTheLastMappingIsGone) {
  SimMemory memory;
  ASSERT_OK_AND_ASSIGN(auto made,
                       memory.Make(MemoryKindWanted::kStaging, "s", 4096));
  ASSERT_OK_AND_ASSIGN(auto mapped, made->Map(MapAccess::kRead));

  made.reset();
  EXPECT_EQ(memory.bytes_made(), 4096u);
  EXPECT_EQ(memory.descriptors(), 0);
  mapped.reset();

  EXPECT_EQ(memory.bytes_made(), 0u);
}

TEST(SimMemoryTest, AllocationFailsWhenOrderedAndOverTheLimit) {
  SimMemory memory;
  memory.FailNext(1);
  EXPECT_THAT(memory.Make(MemoryKindWanted::kRegion, "r", 4096),
              StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_OK(memory.Make(MemoryKindWanted::kRegion, "r", 4096));

  memory.set_limit(4096);
  EXPECT_OK(memory.Make(MemoryKindWanted::kRegion, "r", 4096));
  EXPECT_THAT(memory.Make(MemoryKindWanted::kRegion, "r", 8192),
              StatusIs(absl::StatusCode::kResourceExhausted));
}

// Rule S1.
TEST(SimMemoryTest, UnsealedStagingFailsTheSealCheck) {
  SimMemory memory;

  EXPECT_THAT(memory.MakeUnsealed(4096)->CheckStagingSeals(),
              StatusIs(absl::StatusCode::kFailedPrecondition));
}

}  // namespace
}  // namespace firnkv
