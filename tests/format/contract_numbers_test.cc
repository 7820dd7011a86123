// Numbers of the contract: every message, field, enumerator and method of
// proto/*.proto, every outcome, role, class and frame type, as lists in
// tests/format/golden. A number may be added, never changed or reused.

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "google/protobuf/descriptor.h"
#include "gtest/gtest.h"
#include "proto/admin.pb.h"
#include "proto/base/frame.h"
#include "proto/base/outcome.h"
#include "proto/base/request.h"
#include "proto/base/token.h"
#include "proto/catalog.pb.h"
#include "proto/convert.h"
#include "proto/node.pb.h"
#include "proto/session.pb.h"
#include "proto/types.pb.h"
#include "tests/format/golden_file.h"
#include "tests/proto/samples.h"
#include "tests/support/matchers.h"

namespace firnkv {
namespace {

namespace pb = ::google::protobuf;

std::string ReadText(const std::string& path) {
  std::ifstream in(path);
  EXPECT_TRUE(in) << path << " cannot be read";
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

std::string TypeOf(const pb::FieldDescriptor& field) {
  std::string type = field.is_repeated() ? "repeated " : "";
  if (field.message_type() != nullptr)
    return type + field.message_type()->name();
  if (field.enum_type() != nullptr) return type + field.enum_type()->name();
  return type + field.type_name();
}

void AppendMessage(const pb::Descriptor& message, std::string* out) {
  std::vector<const pb::FieldDescriptor*> fields;
  for (int i = 0; i < message.field_count(); ++i) {
    fields.push_back(message.field(i));
  }
  std::sort(fields.begin(), fields.end(), [](const auto* a, const auto* b) {
    return a->number() < b->number();
  });
  for (const pb::FieldDescriptor* field : fields) {
    StrAppend(out, message.name(), " ", field->number(), " ", field->name(),
              " ", TypeOf(*field), "\n");
  }
  for (int e = 0; e < message.enum_type_count(); ++e) {
    const pb::EnumDescriptor& one = *message.enum_type(e);
    for (int v = 0; v < one.value_count(); ++v) {
      StrAppend(out, message.name(), ".", one.name(), " ",
                one.value(v)->number(), " ", one.value(v)->name(), "\n");
    }
  }
}

// One line a field: message, number, name, type; one line a method.
std::string ListOf(const pb::FileDescriptor& file) {
  std::string out = StrCat("# ", file.name(), "\n");
  for (int i = 0; i < file.message_type_count(); ++i) {
    AppendMessage(*file.message_type(i), &out);
  }
  for (int s = 0; s < file.service_count(); ++s) {
    const pb::ServiceDescriptor& service = *file.service(s);
    for (int m = 0; m < service.method_count(); ++m) {
      const pb::MethodDescriptor& method = *service.method(m);
      StrAppend(&out, "/", service.full_name(), "/", method.name(), " ",
                method.input_type()->name(), " ", method.output_type()->name(),
                "\n");
    }
  }
  return out;
}

TEST(ContractNumbers, FieldsAndMethodsAreTheListedOnes) {
  std::string ours;
  for (const pb::FileDescriptor* file :
       {v1::RequestHeader::descriptor()->file(),
        v1::ClientMessage::descriptor()->file(),
        v1::OpenReadRequest::descriptor()->file(),
        v1::LocateRequest::descriptor()->file(),
        v1::TenantRow::descriptor()->file()}) {
    ours += ListOf(*file);
  }

  EXPECT_EQ(ours, ReadText("tests/format/golden/fields.txt"));
}

TEST(ContractNumbers, OutcomesAreTheListedOnes) {
  std::string ours;
  for (int number = 0; number <= kLastOutcome; ++number) {
    StrAppend(&ours, number, " ",
              OutcomeName(Outcome{static_cast<std::uint8_t>(number)}), "\n");
  }

  EXPECT_EQ(ours, ReadText("tests/format/golden/outcomes.txt"));
}

TEST(ContractNumbers, ClassesRolesAndFrameTypesKeepTheirs) {
  EXPECT_EQ(static_cast<int>(TrafficClass::kForeground), 1);
  EXPECT_EQ(static_cast<int>(TrafficClass::kBackgroundWrite), 2);
  EXPECT_EQ(static_cast<int>(TrafficClass::kWarmUp), 3);
  EXPECT_EQ(static_cast<int>(TrafficClass::kRebuild), 4);
  EXPECT_EQ(static_cast<int>(Role::kTenant), 1);
  EXPECT_EQ(static_cast<int>(Role::kNode), 2);
  EXPECT_EQ(static_cast<int>(Role::kAdmin), 3);
  EXPECT_EQ(static_cast<int>(FrameType::kHello), 1);
  EXPECT_EQ(static_cast<int>(FrameType::kRefused), 2);
  EXPECT_EQ(static_cast<int>(FrameType::kRead), 3);
  EXPECT_EQ(static_cast<int>(FrameType::kBlock), 4);
  EXPECT_EQ(static_cast<int>(FrameType::kReadEnd), 5);
  EXPECT_EQ(static_cast<int>(FrameType::kCancel), 6);
  EXPECT_EQ(static_cast<int>(FrameType::kFoundCorrupt), 7);
  EXPECT_EQ(static_cast<int>(FrameType::kReserve), 8);
  EXPECT_EQ(static_cast<int>(FrameType::kReserved), 9);
  EXPECT_EQ(static_cast<int>(FrameType::kWrite), 10);
  EXPECT_EQ(static_cast<int>(FrameType::kWritten), 11);
  EXPECT_EQ(static_cast<int>(FrameType::kWriteEnd), 12);
  EXPECT_EQ(static_cast<int>(FrameType::kCallOpenRead), 20);
  EXPECT_EQ(static_cast<int>(FrameType::kCallOpened), 21);
  EXPECT_EQ(static_cast<int>(FrameType::kCallRelease), 22);
  EXPECT_EQ(static_cast<int>(FrameType::kCallReserve), 23);
  EXPECT_EQ(static_cast<int>(FrameType::kCallReserved), 24);
  EXPECT_EQ(static_cast<int>(FrameType::kCallCommit), 25);
  EXPECT_EQ(static_cast<int>(FrameType::kCallCommitted), 26);
  EXPECT_EQ(static_cast<int>(FrameType::kCallFailed), 27);
}

TEST(ContractNumbers, BlockColumnsHaveTheDocumentedBytes) {
  const GoldenFile golden("messages.hex");
  BlockRow first{CountingId<BlockKey>(0x20), SampleHeader().place, 70'000};
  BlockRow second = first;
  second.key = CountingId<BlockKey>(0x21);
  second.place.parent = first.key;
  second.place.position = 6;
  second.place.first_token = 96;

  v1::BlockColumns columns;
  ToProto(std::vector<BlockRow>{first, second}, &columns);

  EXPECT_EQ(ToHex(columns.SerializeAsString()),
            golden.Hex("BlockColumns of two blocks"));
}

TEST(ContractNumbers, OutcomesAreAByteEach) {
  const GoldenFile golden("messages.hex");

  EXPECT_EQ(ToHex(OutcomesToProto(
                {Outcome::kHit, Outcome::kMiss, Outcome::kAlreadyThere})),
            golden.Hex("outcomes hit, miss, already there"));
}

}  // namespace
}  // namespace firnkv
