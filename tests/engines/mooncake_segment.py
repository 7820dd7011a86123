"""Memory for Mooncake's store, and nothing else: mooncake_segment.py MASTER BYTES.
Goes on until it is killed."""

import sys
import threading

from mooncake.store import MooncakeDistributedStore


def main(master, size):
    store = MooncakeDistributedStore()
    code = store.setup("127.0.0.1", "P2PHANDSHAKE", int(size), 64 << 20, "tcp",
                       "", master)
    if code != 0:
        sys.exit(f"setup: {code}")
    print("the segment is there", flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
