// The users that daemons and clients of these tests run as: they need no name,
// no password and no process of their own.

#ifndef FIRNKV_TESTS_PROCESS_USERS_H_
#define FIRNKV_TESTS_PROCESS_USERS_H_

#include <cstdint>

namespace firnkv {

inline constexpr std::uint32_t kDaemonUid = 64001;
inline constexpr std::uint32_t kAliceUid = 64002;
inline constexpr std::uint32_t kBobUid = 64003;
// In no uid map.
inline constexpr std::uint32_t kStrangerUid = 64004;

}  // namespace firnkv

#endif  // FIRNKV_TESTS_PROCESS_USERS_H_
