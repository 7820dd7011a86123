// The configuration file says what is wrong with it, and where.

#include "server/base/config.h"

#include <cstdlib>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "proto/base/bytes.h"
#include "proto/base/random.h"

namespace firnkv {
namespace {

class ConfigTest : public testing::Test {
 protected:
  ConfigTest() {
    list_.Bytes("dram.bytes", &bytes_, {.help = "Size.", .least = kMiB});
    list_.Duration("dram.lease.longest", &duration_, {.help = "Term."});
    list_.Text("labels.zone", &zone_, {.help = "Zone."});
    list_.List("tenants", &tenants_, {.help = "Tenants."});
  }
  std::string Complaint(const char* yaml) {
    return std::string(LoadYaml(yaml, "node.yaml", list_).message());
  }

  std::uint64_t bytes_ = kGiB;
  absl::Duration duration_ = absl::Seconds(60);
  std::string zone_;
  std::vector<std::string> tenants_;
  OptionList list_;
};

TEST_F(ConfigTest, NestedKeysNameOptions) {
  ASSERT_EQ(Complaint("dram:\n  bytes: 2GiB\n  lease: {longest: 5s}\n"
                      "tenants: [\"1000=acme\", \"1001=umbrella\"]\n"),
            "");

  EXPECT_EQ(bytes_, 2 * kGiB);
  EXPECT_EQ(duration_, absl::Seconds(5));
  EXPECT_EQ(tenants_.size(), 2u);
}

TEST_F(ConfigTest, AnUnknownKeyIsRefusedWithItsLineAndTheNearestName) {
  EXPECT_EQ(Complaint("dram:\n  bites: 2GiB\n"),
            "node.yaml:2: unknown option dram.bites; did you mean dram.bytes?");
}

TEST_F(ConfigTest, ABadUnitIsRefusedWithItsLineAndTheReason) {
  const std::string complaint = Complaint("\n\ndram:\n  bytes: 2GB\n");
  EXPECT_EQ(complaint.substr(0, 12), "node.yaml:4:");
  EXPECT_NE(complaint.find("512MiB"), std::string::npos);
}

TEST_F(ConfigTest, AValueOutOfBoundsIsRefused) {
  EXPECT_NE(Complaint("dram: {bytes: 1KiB}").find("at least 1MiB"),
            std::string::npos);
}

TEST_F(ConfigTest, BrokenYamlIsRefusedWithItsLine) {
  EXPECT_EQ(Complaint("dram:\n  bytes: [1\n").substr(0, 10), "node.yaml:");
}

TEST_F(ConfigTest, AListWhereOneValueIsWantedIsRefused) {
  EXPECT_NE(Complaint("dram: {bytes: [1GiB]}"), "");
  EXPECT_NE(Complaint("tenants: acme"), "");
  EXPECT_NE(Complaint("tenants: [{a: b}]"), "");
}

// Once, the last of the two counted, without a word.
TEST_F(ConfigTest, AKeyThatStandsTwiceIsRefusedWithBothLines) {
  EXPECT_EQ(Complaint("dram:\n  bytes: 2GiB\n  bytes: 3GiB\n"),
            "node.yaml:3: dram.bytes stands already in line 2");
  EXPECT_EQ(Complaint("dram: {bytes: 2GiB}\n\ndram: {bytes: 3GiB}\n"),
            "node.yaml:3: dram stands already in line 1");
}

TEST_F(ConfigTest, ASectionTakesNoValueAndNamesAnOptionBelowIt) {
  EXPECT_EQ(Complaint("dram: 2GiB\n"),
            "node.yaml:1: dram is a section: its options stand below it, like "
            "dram.bytes");
}

TEST_F(ConfigTest, ASectionOfNothingButCommentsChangesNothing) {
  EXPECT_EQ(Complaint("dram:\n  # bytes: 2GiB\nlabels:\n  zone: a\n"), "");

  EXPECT_EQ(bytes_, kGiB);
  EXPECT_EQ(zone_, "a");
}

// Once, it was as good as an empty file.
TEST_F(ConfigTest, ADirectoryIsNoConfiguration) {
  EXPECT_EQ(LoadYamlFile("/", list_).message(),
            "cannot read the configuration /: it is no file");
}

TEST_F(ConfigTest, AnEmptyFileChangesNothing) {
  EXPECT_EQ(Complaint("# nothing\n"), "");
  EXPECT_EQ(bytes_, kGiB);
}

TEST_F(ConfigTest, AHugeFileIsRefusedUnread) {
  const std::string huge(kLargestConfigBytes + 1, ' ');
  EXPECT_FALSE(LoadYaml(huge, "x", list_).ok());
}

TEST_F(ConfigTest, ARecursiveAliasIsRefusedAndDoesNotHang) {
  EXPECT_FALSE(LoadYaml("a: &a {b: *a}\n", "x", list_).ok());
}

TEST_F(ConfigTest, WhatIsRenderedLoadsAgain) {
  zone_ = "say \"hi\" \\ #1";
  tenants_ = {"1000=acme", "a b"};
  const std::string yaml = RenderYaml(list_, "All options.");
  zone_.clear();
  tenants_.clear();

  ASSERT_EQ(Complaint(yaml.c_str()), "");

  EXPECT_EQ(zone_, "say \"hi\" \\ #1");
  EXPECT_EQ(tenants_, (std::vector<std::string>{"1000=acme", "a b"}));
}

// Once, a newline was read back as a space, and other bytes not at all.
TEST_F(ConfigTest, ControlCharactersAreRenderedSoThatTheyLoadAgain) {
  const std::string odd = "one\ntwo\r\tthree\x01\x7f";
  zone_ = odd;
  const std::string yaml = RenderYaml(list_, "All options.");
  zone_.clear();

  ASSERT_EQ(Complaint(yaml.c_str()), "");

  EXPECT_EQ(zone_, odd);
}

TEST_F(ConfigTest, ASectionIsRenderedOnceThoughTwoPartsDescribeIt) {
  std::string other;
  list_.Text("dram.other", &other, {.help = "Described later."});

  const std::string yaml = RenderYaml(list_, "All options.");

  EXPECT_EQ(yaml.find("\ndram:"), yaml.rfind("\ndram:")) << yaml;
}

TEST_F(ConfigTest, AVariableThatNamesNoOptionIsRefused) {
  ::setenv("FIRNKV_DRAM_BITES", "1GiB", 1);
  EXPECT_FALSE(LoadEnvironment(list_).ok());
  ::unsetenv("FIRNKV_DRAM_BITES");

  ::setenv("FIRNKV_DRAM_BYTES", "3GiB", 1);
  EXPECT_TRUE(LoadEnvironment(list_).ok());
  ::unsetenv("FIRNKV_DRAM_BYTES");
  EXPECT_EQ(bytes_, 3 * kGiB);
}

TEST_F(ConfigTest, AVariableThatIsNearlyAnOptionIsToldWhich) {
  ::setenv("FIRNKV_DRAM_BITES", "1GiB", 1);
  const absl::Status status = LoadEnvironment(list_);
  ::unsetenv("FIRNKV_DRAM_BITES");

  EXPECT_NE(std::string(status.message()).find("FIRNKV_DRAM_BYTES?"),
            std::string::npos);
}

// Once, no daemon started where Kubernetes had a service "firnkv-...".
TEST_F(ConfigTest, VariablesThatKubernetesMakesOfAServiceAreNobodysMistake) {
  const char* const names[] = {
      "FIRNKV_CATALOG_SERVICE_HOST",       "FIRNKV_CATALOG_SERVICE_PORT",
      "FIRNKV_CATALOG_SERVICE_PORT_GRPC",  "FIRNKV_CATALOG_PORT",
      "FIRNKV_CATALOG_PORT_7400_TCP",      "FIRNKV_CATALOG_PORT_7400_TCP_PROTO",
      "FIRNKV_CATALOG_PORT_7400_TCP_PORT", "FIRNKV_CATALOG_PORT_7400_TCP_ADDR"};
  for (const char* name : names) ::setenv(name, "tcp://10.0.0.7:7400", 1);
  const absl::Status status = LoadEnvironment(list_);
  for (const char* name : names) ::unsetenv(name);

  EXPECT_TRUE(status.ok()) << status;
}

TEST_F(ConfigTest, AFlagThatIsNearlyAnOptionIsToldWhich) {
  EXPECT_EQ(UnknownFlag("--dram-byts=1GiB", list_),
            "unknown option --dram-byts; did you mean --dram-bytes?");
  EXPECT_EQ(UnknownFlag("--colour-of-the-sky", list_),
            "unknown option --colour-of-the-sky; docs/CONFIG.md lists all "
            "options");
}

TEST_F(ConfigTest, DamagedFilesNeverDoMoreThanComplain) {
  SeededRandom random(20261129);
  const std::string sound = RenderYaml(list_, "All options.");
  for (int round = 0; round < 2000; ++round) {
    std::string damaged = sound;
    const std::uint64_t hits = 1 + random.Below(8);
    for (std::uint64_t i = 0; i < hits; ++i) {
      damaged[random.Below(damaged.size())] =
          static_cast<char>(random.Below(256));
    }
    LoadYaml(damaged, "x", list_).IgnoreError();
  }
}

}  // namespace
}  // namespace firnkv
