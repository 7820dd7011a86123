"""Code written for Mooncake's store runs over FirnKV: its names, its arguments,
its return codes.
"""

import ctypes
import os
import subprocess
import sys
import unittest

import firnkv.compat
from real_node import NodeTest, RealNode, content, until

sys.path.insert(0, firnkv.compat.PATH)

# What programs write.
from mooncake.store import (MooncakeDistributedStore,  # noqa: E402
                            MooncakeHostMemAllocator, ReplicateConfig,
                            SoftPinAction)

MISSING = -704


class StoreTest(NodeTest):
    def setUp(self):
        os.environ["FIRNKV_SOCKET"] = self.node.socket
        os.environ["FIRNKV_NAMESPACE"] = self.id().rsplit(".", 1)[-1]
        self.store = MooncakeDistributedStore()
        self.assertEqual(self.store.setup("127.0.0.1", "P2PHANDSHAKE", 0,
                                          16 << 20, "tcp", "",
                                          "127.0.0.1:50051"), 0)
        self.addCleanup(self.store.close)
        until("it stores", lambda: self.store.put("first", b"1") == 0)
        self.buffer = ctypes.create_string_buffer(4096)
        self.base = ctypes.addressof(self.buffer)

    def test_a_value_is_put_and_got(self):
        self.assertEqual(self.store.put("a", b"value"), 0)
        self.assertEqual(self.store.get("a"), b"value")
        self.assertEqual(self.store.get_size("a"), 5)
        self.assertEqual(self.store.is_exist("a"), 1)
        self.assertEqual(self.store.health_check(), 0)
        self.assertEqual(self.store.get_hostname(), "127.0.0.1")

    def test_a_key_that_is_not_there_is_no_exception(self):
        self.assertEqual(self.store.get("a"), b"")
        self.assertIsNone(self.store.get_buffer("a"))
        self.assertEqual(self.store.get_size("a"), MISSING)
        self.assertEqual(self.store.is_exist("a"), 0)
        self.assertEqual(self.store.get_into("a", self.base, 10), MISSING)
        self.assertEqual(self.store.remove("a"), MISSING)

    def test_a_put_over_a_key_that_is_there_changes_nothing(self):
        self.store.put("a", b"first")
        self.assertEqual(self.store.put("a", b"other"), 0)
        self.assertEqual(self.store.get("a"), b"first")
        self.assertEqual(self.store.upsert("a", b"third"), 0)
        self.assertEqual(self.store.get("a"), b"third")

    def test_values_move_between_buffers(self):
        self.assertEqual(self.store.register_buffer(self.base, 4096), 0)
        self.buffer[0:5] = b"12345"
        self.assertEqual(self.store.put_from("a", self.base, 5,
                                             ReplicateConfig()), 0)
        self.assertEqual(self.store.get_into("a", self.base + 100, 5), 5)
        self.assertEqual(self.buffer[100:105], b"12345")
        # Memory may be longer than the value, never shorter.
        self.assertEqual(self.store.get_into("a", self.base + 200, 50), 5)
        self.assertEqual(self.buffer[200:206], b"12345\0")
        self.assertEqual(self.store.get_into("a", self.base + 300, 4), -600)
        self.assertEqual(self.store.unregister_buffer(self.base), 0)

    def test_batches_say_what_became_of_each(self):
        self.buffer[0:8] = b"aaaabbbb"
        keys = ["a", "b"]
        self.assertEqual(self.store.batch_put_from(
            keys, [self.base, self.base + 4], [4, 4]), [0, 0])
        self.assertEqual(self.store.batch_is_exist(["a", "x", "b"]),
                         [1, 0, 1])
        self.assertEqual(self.store.batch_get_into(
            ["a", "x", "b"], [self.base + at for at in (100, 200, 300)],
            [4, 4, 20]), [4, MISSING, 4])
        self.assertEqual(self.buffer[100:104], b"aaaa")
        self.assertEqual(self.buffer[300:304], b"bbbb")
        self.assertEqual(self.store.get_batch(["b", "x", "a"]),
                         [b"bbbb", b"", b"aaaa"])
        self.assertEqual(self.store.batch_remove(["a", "x"]), [0, MISSING])

    def test_values_lie_in_several_buffers(self):
        self.buffer[0:6] = b"k1v1v2"
        self.assertEqual(self.store.batch_put_from_multi_buffers(
            ["a"], [[self.base, self.base + 2]], [[2, 4]]), [0])
        self.assertEqual(self.store.batch_get_into_multi_buffers(
            ["a", "x"], [[self.base + 100, self.base + 200], [self.base]],
            [[4, 50], [1]]), [6, MISSING])
        self.assertEqual(self.buffer[100:104], b"k1v1")
        self.assertEqual(self.buffer[200:202], b"v2")
        self.assertEqual(self.store.put_parts("b", b"12", b"345"), 0)
        self.assertEqual(self.store.get("b"), b"12345")

    def test_a_buffer_handle_says_where_its_value_is(self):
        self.store.put("a", b"value")
        handle = self.store.get_buffer("a")
        self.assertEqual(handle.size(), 5)
        self.assertEqual(ctypes.string_at(handle.ptr(), 5), b"value")
        self.assertEqual(bytes(memoryview(handle)), b"value")

    def test_arguments_have_mooncakes_names(self):
        self.buffer[0:4] = b"aaaa"
        config = ReplicateConfig()
        config.soft_pin_action = SoftPinAction.ENABLE
        config.group_ids = ["g"]
        self.assertEqual(self.store.put(key="p", value=b"1", config=config), 0)
        self.assertEqual(self.store.put_from(
            key="a", buffer_ptr=self.base, size=4, config=config), 0)
        self.assertEqual(self.store.get_into(
            key="a", buffer_ptr=self.base + 10, size=4), 4)
        self.assertEqual(self.store.batch_upsert_from(
            keys=["a"], buffer_ptrs=[self.base], sizes=[2], config=config),
            [0])
        self.assertEqual(self.store.batch_get_into(
            keys=["a"], buffer_ptrs=[self.base + 20], sizes=[4]), [2])
        self.assertEqual(self.store.batch_put_from_multi_buffers(
            keys=["b"], all_buffer_ptrs=[[self.base]], all_sizes=[[3]],
            config=config), [0])
        self.assertEqual(self.store.batch_get_into_multi_buffers(
            keys=["b"], all_buffer_ptrs=[[self.base]], all_sizes=[[3]],
            prefer_alloc_in_same_node=True), [3])
        self.assertEqual(self.store.remove(key="b", force=True), 0)

    def test_tenants_of_a_store_share_nothing(self):
        self.store.put("a", b"mine")
        other = MooncakeDistributedStore()
        self.assertEqual(other.setup(config={"local_hostname": "h",
                                             "tenant_id": "other"}), 0)
        self.addCleanup(other.close)
        until("it stores", lambda: other.put("first", b"1") == 0)
        self.assertEqual(other.is_exist("a"), 0)
        self.assertEqual(other.get_hostname(), "h")

    def test_memory_is_allocated_by_address(self):
        allocator = MooncakeHostMemAllocator()
        address = allocator.alloc(4096)
        ctypes.memmove(address, b"value", 5)
        self.assertEqual(self.store.put_from("a", address, 5), 0)
        self.assertEqual(self.store.get("a"), b"value")
        self.assertEqual(allocator.free(address), 0)
        self.assertEqual(allocator.free(address), -600)
        self.assertEqual(allocator.alloc(0), 0)

    def test_batches_of_any_size_and_keys_that_stand_twice_go(self):
        keys = [f"{i}" for i in range(3000)]
        self.assertEqual(self.store.put_batch(
            keys, [content(i, 50) for i in range(3000)]), 0)
        self.assertEqual(self.store.batch_is_exist(keys + ["0", "x", "0"]),
                         [1] * 3001 + [0, 1])
        self.assertEqual(self.store.get("2999"), content(2999, 50))

    def test_wrong_arguments_are_codes(self):
        self.assertEqual(self.store.put("", b"1"), -400)
        self.assertEqual(self.store.put("a", b""), -600)
        self.assertEqual(self.store.batch_put_from(["a", "b"], [self.base],
                                                   [4]), [-600, -600])
        self.assertEqual(self.store.register_buffer(0, 1), -600)
        self.assertEqual(self.store.setup("again", ""), -600)

    def test_before_setup_nothing_goes(self):
        store = MooncakeDistributedStore()
        self.assertEqual(store.health_check(), 1)
        self.assertEqual(store.put("a", b"1"), -703)
        self.assertEqual(store.get("a"), b"")
        self.assertEqual(store.close(), 0)

    def test_without_a_node_everything_says_so(self):
        nobody = RealNode()
        self.addCleanup(nobody.remove)
        del os.environ["FIRNKV_SOCKET"]
        store = MooncakeDistributedStore()
        self.assertEqual(store.setup({"local_hostname": "h",
                                      "firnkv_socket": nobody.socket}), 0)
        self.addCleanup(store.close)
        self.assertEqual(store.health_check(), 2)
        self.assertEqual(store.put("a", b"1"), -900)
        self.assertEqual(store.is_exist("a"), -900)
        self.assertEqual(store.get("a"), b"")

    def test_a_program_finds_it_under_mooncakes_name(self):
        path = subprocess.run([sys.executable, "-m", "firnkv.compat"],
                              check=True, capture_output=True,
                              text=True).stdout.strip()
        program = ("from mooncake.store import MooncakeDistributedStore;"
                   "print(MooncakeDistributedStore.__module__)")
        env = {**os.environ,
               "PYTHONPATH": f"{path}:{os.environ['PYTHONPATH']}"}
        done = subprocess.run([sys.executable, "-c", program], check=True,
                              capture_output=True, text=True, env=env)
        self.assertEqual(done.stdout.strip(), "firnkv.mooncake")


if __name__ == "__main__":
    unittest.main()
