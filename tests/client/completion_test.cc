// Operations that are submitted and drained: results by id, one descriptor that
// says when.

#include "client/completion.h"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "tests/client/client_fixture.h"
#include "tests/client/transport/process_state.h"

namespace firnkv {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class CompletionTest : public ClientFixture {
 protected:
  void SetUp() override {
    Connect();
    for (int n = 1; n <= 8; ++n) node_->Put(Id(n), BytesFor(n, 5000));
    fd_ = *client_->CompletionFd();
  }

  static bool IsReadable(int fd) {
    pollfd event = {.fd = fd, .events = POLLIN, .revents = 0};
    return poll(&event, 1, 0) == 1;
  }
  bool IsReadable() const { return IsReadable(fd_); }

  struct Submitted {
    explicit Submitted(int number) : landing(number, 5000) {
      landing.Aim();
      targets = {landing.target};
    }
    Landing landing;
    std::vector<ReadTarget> targets;
    CompletionId id = CompletionId::kNone;
  };
  std::unique_ptr<Submitted> SubmitRead(
      int number, absl::Duration deadline = absl::Seconds(1)) {
    auto submitted = std::make_unique<Submitted>(number);
    const auto id =
        client_->SubmitRead({.name_space = handle_,
                             .blocks = absl::MakeSpan(submitted->targets),
                             .deadline = deadline});
    EXPECT_OK(id);
    submitted->id = *id;
    return submitted;
  }
  // Lets everything that was begun come to its end.
  void Settle() { RunFor(absl::Seconds(3)); }

  int fd_ = -1;
};

TEST_F(CompletionTest, ASubmitReturnsBeforeItsOperationHasFinished) {
  const auto read = SubmitRead(1);

  EXPECT_NE(read->id, CompletionId::kNone);
  EXPECT_FALSE(IsReadable());
  EXPECT_THAT(client_->DrainCompletions(), IsEmpty());

  Settle();
  EXPECT_TRUE(IsReadable());
  const std::vector<Completion> done = client_->DrainCompletions();
  ASSERT_THAT(done, SizeIs(1));
  EXPECT_EQ(done[0].id, read->id);
  EXPECT_EQ(std::get<ReadReport>(done[0].result).leading_hits, 1u);
  EXPECT_EQ(read->targets[0].outcome, Outcome::kHit);
  EXPECT_EQ(read->landing.memory, BytesFor(1, 5000));
}

TEST_F(CompletionTest, ManyFinishedOperationsAreOneWakingAndOneDrain) {
  std::vector<std::unique_ptr<Submitted>> reads;
  for (int n = 1; n <= 8; ++n) reads.push_back(SubmitRead(n));
  Settle();
  ASSERT_TRUE(IsReadable());

  const std::vector<Completion> done = client_->DrainCompletions();

  EXPECT_THAT(done, SizeIs(8));
  EXPECT_FALSE(IsReadable()) << "one drain takes the signal with it";
  EXPECT_THAT(client_->DrainCompletions(), IsEmpty());
}

TEST_F(CompletionTest, APartialDrainLeavesTheSignalSet) {
  std::vector<std::unique_ptr<Submitted>> reads;
  for (int n = 1; n <= 3; ++n) reads.push_back(SubmitRead(n));
  Settle();

  EXPECT_THAT(client_->DrainCompletions(2), SizeIs(2));

  EXPECT_TRUE(IsReadable());
  EXPECT_THAT(client_->DrainCompletions(2), SizeIs(1));
  EXPECT_FALSE(IsReadable());
}

TEST_F(CompletionTest, EachKindBringsItsOwnResult) {
  const std::vector<std::byte> bytes = BytesFor(20, 3000);
  const std::vector<ConstBuffer> source = {
      {.address = bytes.data(), .length = bytes.size()}};
  std::vector<WriteBlock> blocks(1);
  blocks[0].key = KeyOf(20);
  blocks[0].place.anchor = KeyOf(20);
  blocks[0].place.tokens = 16;
  blocks[0].source = source;
  std::vector<ExistsTarget> looked(1);
  looked[0].key = KeyOf(2);
  const std::vector<BlockKey> keys = {KeyOf(1), KeyOf(2)};

  std::map<CompletionId, std::string> kinds;
  kinds[*client_->SubmitWrite({.name_space = handle_,
                               .blocks = absl::MakeSpan(blocks),
                               .deadline = absl::Seconds(1)})] = "write";
  kinds[*client_->SubmitOpenViews(
      {.name_space = handle_, .keys = keys, .deadline = absl::Seconds(1)})] =
      "views";
  kinds[*client_->SubmitExists({.name_space = handle_,
                                .blocks = absl::MakeSpan(looked),
                                .deadline = absl::Seconds(1)})] = "exists";
  Settle();

  std::vector<Completion> done = client_->DrainCompletions();
  ASSERT_THAT(done, SizeIs(3));
  for (Completion& one : done) {
    if (kinds[one.id] == "write") {
      EXPECT_EQ(std::get<WriteReport>(one.result).stored, 1u);
    } else if (kinds[one.id] == "views") {
      ViewBatch views = std::get<ViewBatch>(std::move(one.result));
      EXPECT_EQ(views.report().hits, 2u);
      EXPECT_THAT(std::move(views).Close(), Each(Outcome::kHit));
    } else {
      EXPECT_EQ(kinds[one.id], "exists");
      EXPECT_EQ(std::get<ExistsReport>(one.result).leading_hits, 1u);
    }
  }
  EXPECT_EQ(node_->BytesOf(Id(20)), bytes);
}

TEST_F(CompletionTest, AnOperationThatIsRefusedFinishesToo) {
  const auto read = SubmitRead(1, -absl::Seconds(1));

  EXPECT_TRUE(IsReadable());
  const std::vector<Completion> done = client_->DrainCompletions();
  ASSERT_THAT(done, SizeIs(1));
  EXPECT_EQ(std::get<ReadReport>(done[0].result).status.code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(CompletionTest, ADeadlineFinishesAnOperation) {
  node_->silent = {"OpenRead"};
  const auto read = SubmitRead(1, absl::Milliseconds(50));

  RunFor(absl::Milliseconds(40));
  EXPECT_FALSE(IsReadable());
  RunFor(absl::Milliseconds(20));

  EXPECT_TRUE(IsReadable());
  EXPECT_THAT(client_->DrainCompletions(), SizeIs(1));
  EXPECT_EQ(read->targets[0].outcome, Outcome::kTimedOut);
}

TEST_F(CompletionTest, WhatIsPendingAtCloseFinishesAndCanBeDrained) {
  node_->silent = {"OpenRead"};
  const auto first = SubmitRead(1);
  const auto second = SubmitRead(2);

  client_->Close();

  EXPECT_TRUE(IsReadable());
  const std::vector<Completion> done = client_->DrainCompletions();
  ASSERT_THAT(done, SizeIs(2));
  EXPECT_EQ(done[0].id, first->id);
  EXPECT_EQ(done[1].id, second->id);
  EXPECT_EQ(first->targets[0].outcome, Outcome::kCancelled);
  const auto late = SubmitRead(3);
  EXPECT_THAT(client_->DrainCompletions(), SizeIs(1));
  EXPECT_EQ(late->targets[0].outcome, Outcome::kCancelled);
}

TEST_F(CompletionTest, WhatIsNotDrainedGoesWithTheClient) {
  const std::vector<BlockKey> keys = {KeyOf(1)};
  ASSERT_OK(client_->SubmitOpenViews(
      {.name_space = handle_, .keys = keys, .deadline = absl::Seconds(1)}));
  const auto read = SubmitRead(2);
  Settle();
  const std::size_t descriptors = DescriptorsOfThisProcess();

  client_.reset();

  EXPECT_EQ(DescriptorsOfThisProcess(), descriptors - 1);
}

TEST_F(CompletionTest, WhatIsNotDrainedIsBounded) {
  node_->silent = {"OpenRead"};
  std::vector<std::unique_ptr<Submitted>> reads;
  for (std::size_t i = 0; i < kMaxUndrained; ++i) {
    reads.push_back(SubmitRead(1, absl::Milliseconds(1)));
  }
  Submitted one_more(1);
  const ReadRequest request = {.name_space = handle_,
                               .blocks = absl::MakeSpan(one_more.targets),
                               .deadline = absl::Seconds(1)};

  EXPECT_THAT(client_->SubmitRead(request),
              StatusIs(absl::StatusCode::kResourceExhausted));

  Settle();
  EXPECT_THAT(client_->SubmitRead(request),
              StatusIs(absl::StatusCode::kResourceExhausted))
      << "finished is not drained";
  EXPECT_THAT(client_->DrainCompletions(1), SizeIs(1));
  EXPECT_OK(client_->SubmitRead(request));
  Settle();
}

TEST_F(CompletionTest, ADescriptorThatIsAskedForLateIsSetAtOnce) {
  client_.reset();
  Connect();
  const auto read = SubmitRead(1);
  Settle();

  ASSERT_OK_AND_ASSIGN(const int fd, client_->CompletionFd());

  EXPECT_TRUE(IsReadable(fd));
  EXPECT_THAT(client_->CompletionFd(), IsOkAndHolds(fd));
}

// Rule S6: its parent's results and signal stay its parent's.
TEST_F(CompletionTest, AForkedChildSubmitsAndDrainsNothing) {
  const auto read = SubmitRead(1);
  Settle();

  const pid_t child = fork();
  if (child == 0) {
    Submitted other(2);
    const bool nothing =
        client_->DrainCompletions().empty() &&
        absl::IsUnavailable(client_->CompletionFd().status()) &&
        absl::IsUnavailable(
            client_
                ->SubmitRead({.name_space = handle_,
                              .blocks = absl::MakeSpan(other.targets),
                              .deadline = absl::Seconds(1)})
                .status());
    _exit(nothing ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);

  EXPECT_EQ(status, 0);
  EXPECT_TRUE(IsReadable());
  EXPECT_THAT(client_->DrainCompletions(), SizeIs(1));
}

}  // namespace
}  // namespace firnkv
