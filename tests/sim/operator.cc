#include "tests/sim/operator.h"

#include <utility>

#include "proto/base/text.h"
#include "server/node/node.h"

namespace firnkv {
namespace {

// Between two steps.
constexpr absl::Duration kPause = absl::Milliseconds(700);
// A node that was refused tries again after 5 s: looks before another accept.
constexpr int kPatience = 12;
// A node that the present catalog will refuse is a member until it speaks to
// it: looks that make more than a heartbeat (2.5 s).
constexpr int kSureLooks = 6;

}  // namespace

void Operator::After(absl::Duration delay, Task step) {
  cluster_->executor()->root()->PostAfter(delay, std::move(step));
}

void Operator::Backup() {
  cluster_->Admin().Backup([this](absl::StatusOr<std::string> state) {
    if (state.ok()) {
      backup_ = *std::move(state);
    } else {
      After(kPause, [this] { Backup(); });
    }
  });
}

void Operator::BeginRepair(Repair repair) {
  ++repairs_;
  operations_->ExpectDenials(true);
  const bool mending = repairing();
  repair_ = repair;
  looks_ = 0;
  good_looks_ = 0;
  if (!mending) After(kPause, [this] { Mend(); });
}

void Operator::Mend() {
  switch (repair_) {
    case Repair::kNone:
      return;
    case Repair::kRestore:
      return cluster_->Admin().Restore(
          backup_, [this](const absl::Status& status) {
            // What is there already is restored.
            const bool there = absl::IsFailedPrecondition(status);
            OnMended(Repair::kAccept, there ? absl::OkStatus() : status);
          });
    case Repair::kAccept:
      looks_ = 0;
      good_looks_ = 0;
      return cluster_->Admin().AcceptRestore(
          [this](const absl::StatusOr<std::uint64_t>& incarnation) {
            if (incarnation.ok()) accepted_ = *incarnation;
            OnMended(Repair::kWatch, incarnation.status());
          });
    case Repair::kWatch:
      if (!EveryNodeIsAMember()) {
        good_looks_ = 0;
      } else if (++good_looks_ >= kSureLooks) {
        for (int n = 1; n <= cluster_->nodes(); ++n) {
          cluster_->Admin().NoteCredentials(
              cluster_->Node(n).memory().seen.credentials);
        }
        cluster_->executor()->Note("the catalog is whole again");
        repair_ = Repair::kNone;
        return;
      }
      if (good_looks_ == 0 && ++looks_ > kPatience) {
        repair_ = Repair::kAccept;
      }
      return After(kPause, [this] { Mend(); });
  }
}

void Operator::OnMended(Repair next, const absl::Status& status) {
  if (status.ok()) repair_ = next;
  After(kPause, [this] { Mend(); });
}

bool Operator::EveryNodeIsAMember() const {
  for (int n = 1; n <= cluster_->nodes(); ++n) {
    const SimNode& node = cluster_->Node(n);
    if (!node.running() || node.paused() ||
        node.memory().seen.incarnation < accepted_ ||
        node.node()->link_state() != CatalogLink::State::kRegistered) {
      return false;
    }
  }
  return true;
}

void Operator::Clear(std::size_t tenant, const std::string& name,
                     NamespaceId name_space) {
  const std::size_t number = oracle_->BeginClear(name_space);
  cluster_->Admin().Clear(
      cluster_->options().tenants[tenant], name, SimAdmin::ClearMode::kClear,
      [this, tenant, name, name_space, number,
       repairs = repairs_](const SimAdmin::Cleared& cleared) {
        if (!cleared.status.ok()) return;
        oracle_->EndClear(name_space, number, cleared.epoch);
        if (cleared.pending == 0 && repairs == repairs_) {
          oracle_->EndWait(name_space, number);
        } else {
          AwaitClear(tenant, name, name_space, number, repairs);
        }
      });
}

void Operator::AwaitClear(std::size_t tenant, const std::string& name,
                          NamespaceId name_space, std::size_t number,
                          std::uint64_t repairs) {
  After(absl::Milliseconds(100), [this, tenant, name, name_space, number,
                                  repairs] {
    if (repairs != repairs_) return;
    cluster_->Admin().Clear(
        cluster_->options().tenants[tenant], name,
        SimAdmin::ClearMode::kReportOnly,
        [this, tenant, name, name_space, number,
         repairs](const SimAdmin::Cleared& report) {
          if (repairs != repairs_) return;
          if (report.status.ok() && report.pending == 0) {
            cluster_->executor()->Note(StrCat("clear of ", name, " is done"));
            oracle_->EndWait(name_space, number);
          } else {
            AwaitClear(tenant, name, name_space, number, repairs);
          }
        });
  });
}

}  // namespace firnkv
