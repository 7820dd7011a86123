// CHECK, in release builds too: for invariants of our own, never for input.
//
// The daemons abort: a node whose invariants are broken must not serve bytes.
// Code in client/ must not use it on any path that a caller, a peer or a file
// can reach (the SDK never aborts its host): there, a broken invariant poisons
// the Client.

#ifndef FIRNKV_PROTO_BASE_CHECK_H_
#define FIRNKV_PROTO_BASE_CHECK_H_

namespace firnkv {

// Prints to standard error and aborts.
[[noreturn]] void CheckFailed(const char* file, int line, const char* what);

}  // namespace firnkv

// NOLINTNEXTLINE: the name that every C++ engineer looks for.
#define CHECK(condition)              \
  (__builtin_expect(!!(condition), 1) \
       ? (void)0                      \
       : ::firnkv::CheckFailed(__FILE__, __LINE__, #condition))

#endif  // FIRNKV_PROTO_BASE_CHECK_H_
