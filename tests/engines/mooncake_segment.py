"""Memory for Mooncake's store, and nothing else: mooncake_segment.py MASTER BYTES.
Ends when its input does."""

import sys

from mooncake.store import MooncakeDistributedStore


def main(master, size):
    store = MooncakeDistributedStore()
    code = store.setup("127.0.0.1", "P2PHANDSHAKE", int(size), 64 << 20, "tcp",
                       "", master)
    print(f"segment {'is there' if code == 0 else 'refused'}: {code}",
          flush=True)
    if code == 0:
        import threading
        threading.Event().wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
