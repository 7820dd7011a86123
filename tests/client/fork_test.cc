// Rule S6: the child of a fork has the memory of a Client and none of its
// threads, and shares its sockets; whatever it does with it must do nothing.

#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/client/client_fixture.h"

namespace firnkv {
namespace {

class ForkTest : public ClientFixture {
 protected:
  // Runs `claims` in a child, which then ends; the number of the first that
  // does not hold, 0 where all do.
  int InAChild(const std::function<std::vector<bool>()>& claims) {
    const pid_t child = ::fork();
    if (child == 0) {
      // A call that waits would wait for ever.
      ::alarm(60);
      int number = 0;
      for (const bool holds : claims()) {
        ++number;
        if (!holds) ::_exit(number);
      }
      ::_exit(number == 0 ? 99 : 0);
    }
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  // The calls that a node and a catalog have heard.
  int CallsHeard() {
    int calls = node_->tokens_renewed + node_->sessions;
    for (const auto& [method, count] : node_->calls) calls += count;
    for (const auto& [method, count] : catalog_->calls) calls += count;
    return calls;
  }
};

// Rule S6.
TEST_F(ForkTest, EveryBlockingCallIsUnavailableInAChild) {
  Connect();
  node_->Put(Id(1), BytesFor(1, 64));

  const int failed = InAChild([this] {
    const std::vector<std::byte> bytes = BytesFor(2, 64);
    const ConstBuffer source{.address = bytes.data(), .length = bytes.size()};
    Landing landing{1, 64};
    landing.Aim();
    WriteBlock block;
    block.key = KeyOf(2);
    block.place.anchor = block.key;
    block.source = absl::MakeConstSpan(&source, 1);
    ExistsTarget exists{.key = KeyOf(1), .anchor = KeyOf(1)};
    RemoveTarget remove{.key = KeyOf(1)};
    const auto second = absl::Seconds(1);
    client_->Read({.name_space = handle_,
                   .blocks = absl::MakeSpan(&landing.target, 1),
                   .deadline = second});
    client_->Write({.name_space = handle_,
                    .blocks = absl::MakeSpan(&block, 1),
                    .deadline = second});
    client_->Exists({.name_space = handle_,
                     .blocks = absl::MakeSpan(&exists, 1),
                     .deadline = second});
    client_->Remove({.name_space = handle_,
                     .blocks = absl::MakeSpan(&remove, 1),
                     .deadline = second});
    const auto opened = client_->OpenNamespace({.name = "x"});
    const auto shared = client_->AllocateShared(10);
    return std::vector<bool>{
        landing.target.outcome == Outcome::kUnavailable,
        landing.memory == std::vector<std::byte>(64, std::byte{0xee}),
        block.outcome == Outcome::kUnavailable,
        exists.outcome == Outcome::kUnavailable,
        remove.outcome == Outcome::kUnavailable,
        absl::IsUnavailable(opened.status()),
        absl::IsUnavailable(shared.status()),
        !client_->Describe().session,
        client_->Describe().token.empty()};
  });

  EXPECT_EQ(failed, 0);
}

// Rule S6: both ends of an operation come, at once and inside the call, since
// no thread is there that could bring them.
TEST_F(ForkTest, EveryCallbackRunsInsideItsCallInAChild) {
  Connect();

  const int failed = InAChild([this] {
    int ends = 0;
    const auto second = absl::Seconds(1);
    client_->StartRead(
        {.name_space = handle_, .blocks = {}, .deadline = second},
        {.on_outcome = [&](const ReadReport&) { ++ends; },
         .on_buffers_free = [&] { ++ends; }});
    client_->StartWrite(
        {.name_space = handle_, .blocks = {}, .deadline = second},
        {.on_outcome = [&](const WriteReport&) { ++ends; },
         .on_buffers_free = [&] { ++ends; }});
    client_->StartExists(
        {.name_space = handle_, .blocks = {}, .deadline = second},
        [&](const ExistsReport&) { ++ends; });
    client_->StartRemove(
        {.name_space = handle_, .blocks = {}, .deadline = second},
        [&](const RemoveReport&) { ++ends; });
    client_->StartOpenNamespace(
        {.name = "x"}, [&](const absl::StatusOr<NamespaceHandle>&) { ++ends; });
    return std::vector<bool>{ends == 7};
  });

  EXPECT_EQ(failed, 0);
}

// Rule S6: nor is anything left for later.
TEST_F(ForkTest, AChildSendsNothingNotEvenWhenItsClientEnds) {
  Connect();
  RunFor(absl::Milliseconds(10));

  const int failed = InAChild([this] {
    const int before = CallsHeard();
    Landing landing{1, 64};
    landing.Aim();
    client_->Read({.name_space = handle_,
                   .blocks = absl::MakeSpan(&landing.target, 1),
                   .deadline = absl::Seconds(1)});
    client_->FreeShared(nullptr);
    client_->Close();
    client_.reset();
    // The fakes of this process are its own copies: they would hear it.
    world_.executor()->RunReady();
    return std::vector<bool>{CallsHeard() == before, node_->unmapped.empty()};
  });

  EXPECT_EQ(failed, 0);
}

// Rule S6.
TEST_F(ForkTest, TheParentGoesOnAsIfThereWereNoChild) {
  Connect();
  node_->Put(Id(1), BytesFor(1, 64));

  const int failed = InAChild([this] {
    client_.reset();
    return std::vector<bool>{client_ == nullptr};
  });
  std::vector<Landing> wanted{{1, 64}};
  const ReadReport report = Read(wanted);

  EXPECT_EQ(failed, 0);
  EXPECT_EQ(report.hits, 1u);
  EXPECT_EQ(node_->sessions, 1);
}

}  // namespace
}  // namespace firnkv
