// Descriptors that a peer has sent, or may have: how to close them without
// waiting for anybody (rule S4).
//
// close(2) of the last descriptor of a TCP socket with SO_LINGER waits until
// its other end has acknowledged all, for as long as whoever made it likes; so
// does that of a unix socket in whose queue such a one lies unread. One peer
// that passes one on, and closes its own, would stop the thread that serves all
// sessions.
//
// Does not help against a file whose file system makes close(2) wait (FUSE, a
// network's): of those there is no telling without asking it.
//
// Threading. Functions without state.

#ifndef FIRNKV_CLIENT_TRANSPORT_FOREIGN_DESCRIPTOR_H_
#define FIRNKV_CLIENT_TRANSPORT_FOREIGN_DESCRIPTOR_H_

#include <sys/socket.h>

#include <vector>

#include "client/transport/descriptor.h"

namespace firnkv {

// The kernel passes at most SCM_MAX_FD descriptors with a message. Where there
// is room for all of them, each can be closed by name.
inline constexpr std::size_t kMaxDescriptors = 253;

// Takes every descriptor of a message just received into possession. They may
// be closed anywhere: a socket among them has lost its connection and what lay
// in its queue.
std::vector<Descriptor> TakeDescriptors(msghdr* header);

// Of a socket whose peer may send descriptors: ends the connection, takes out
// what lies unread, and closes.
void CloseForeign(Descriptor socket);

}  // namespace firnkv

#endif  // FIRNKV_CLIENT_TRANSPORT_FOREIGN_DESCRIPTOR_H_
