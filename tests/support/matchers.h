// Matchers for absl::Status and StatusOr, which the absl of Debian 12 lacks.
//
//     EXPECT_THAT(store.Get(...), IsOk());
//     EXPECT_THAT(Parse("x"), IsOkAndHolds(Eq(3)));
//     EXPECT_THAT(Parse("?"), StatusIs(absl::StatusCode::kInvalidArgument));
//     EXPECT_THAT(Parse("?"), StatusIs(code, HasSubstr("'?'")));
//     ASSERT_OK_AND_ASSIGN(auto value, Parse("3"));

#ifndef FIRNKV_TESTS_SUPPORT_MATCHERS_H_
#define FIRNKV_TESTS_SUPPORT_MATCHERS_H_

#include <ostream>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/outcome.h"
#include "proto/base/status.h"

namespace firnkv {

// Found by gtest when it prints an outcome.
inline void PrintTo(Outcome outcome, std::ostream* out) {
  *out << OutcomeName(outcome);
}

namespace matchers_internal {

inline const absl::Status& ToStatus(const absl::Status& status) {
  return status;
}
template <typename T>
const absl::Status& ToStatus(const absl::StatusOr<T>& status_or) {
  return status_or.status();
}

}  // namespace matchers_internal

MATCHER(IsOk, negation ? "is not OK" : "is OK") {
  const absl::Status& status = matchers_internal::ToStatus(arg);
  *result_listener << status.ToString();
  return status.ok();
}

MATCHER_P(StatusIs, code, "has code " + absl::StatusCodeToString(code)) {
  const absl::Status& status = matchers_internal::ToStatus(arg);
  *result_listener << status.ToString();
  return status.code() == code;
}

MATCHER_P2(StatusIs, code, message,
           "has code " + absl::StatusCodeToString(code) +
               " and a message that matches") {
  const absl::Status& status = matchers_internal::ToStatus(arg);
  *result_listener << status.ToString();
  return status.code() == code &&
         ::testing::ExplainMatchResult(message, std::string(status.message()),
                                       result_listener);
}

MATCHER_P(IsOkAndHolds, value, "is OK and holds a value that matches") {
  if (!arg.ok()) {
    *result_listener << arg.status().ToString();
    return false;
  }
  return ::testing::ExplainMatchResult(value, *arg, result_listener);
}

}  // namespace firnkv

#define EXPECT_OK(expression) EXPECT_THAT(expression, ::firnkv::IsOk())
#define ASSERT_OK(expression) ASSERT_THAT(expression, ::firnkv::IsOk())
#define ASSERT_OK_AND_ASSIGN(lhs, expression)                          \
  ASSERT_OK_AND_ASSIGN_INNER(FIRNKV_CONCAT(firnkv_or_, __LINE__), lhs, \
                             expression)
#define ASSERT_OK_AND_ASSIGN_INNER(tmp, lhs, expression) \
  auto tmp = (expression);                               \
  ASSERT_TRUE(tmp.ok()) << tmp.status();                 \
  lhs = *std::move(tmp)

#endif  // FIRNKV_TESTS_SUPPORT_MATCHERS_H_
