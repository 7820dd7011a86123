"""Blocks are written, asked for, read and removed, out of and into whatever
memory Python has; wrong memory and wrong requests are refused with a word, and
nothing else is ever an exception.
"""

import array
import ast
import ctypes
import os
import sys
import unittest

import firnkv
from firnkv import Outcome, _core
from real_node import CONTRACT, DEADLINE, NodeTest, content

SIZE = 3000


class BlocksTest(NodeTest):
    def write(self, namespace, blocks, sources, **options):
        result = namespace.write(blocks, sources, deadline=DEADLINE, **options)
        self.assertEqual(result.stored, len(result), result.outcomes)
        return result

    def test_outcomes_have_the_numbers_of_the_sdk(self):
        self.assertEqual({one.name.lower(): one.value for one in Outcome},
                         _core.outcomes())

    def test_what_was_written_is_read_back(self):
        namespace = self.open()
        names = [f"block {i}" for i in range(20)]
        self.write(namespace, names, [content(i, SIZE) for i in range(20)])

        landing = bytearray(20 * SIZE)
        result = namespace.read(names, landing, deadline=DEADLINE)

        self.assertEqual(result.outcomes, [Outcome.HIT] * 20)
        self.assertEqual((result.hits, result.leading_hits), (20, 20))
        self.assertEqual(result.bytes_mapped + result.bytes_remote, 20 * SIZE)
        self.assertEqual(result.why, "")
        self.assertEqual(bytes(landing),
                         b"".join(content(i, SIZE) for i in range(20)))

    def test_a_miss_is_an_outcome_and_ends_the_leading_run(self):
        namespace = self.open()
        self.write(namespace, ["a", "c"], [b"a" * 100, b"c" * 100])

        leading = namespace.read(["a", "b", "c"], bytearray(300),
                                 deadline=DEADLINE)
        every = namespace.read(["a", "b", "c"], bytearray(300),
                               deadline=DEADLINE, want="every")

        self.assertEqual(leading.outcomes,
                         [Outcome.HIT, Outcome.MISS, Outcome.SKIPPED])
        self.assertEqual(leading.leading_hits, 1)
        self.assertEqual(every.outcomes,
                         [Outcome.HIT, Outcome.MISS, Outcome.HIT])
        self.assertEqual(every.hits, 2)
        self.assertEqual(every.good, [True, False, True])
        self.assertFalse(Outcome.MISS.good)
        self.assertTrue(Outcome.HIT.good)

    def test_exists_says_what_is_there_and_how_long_it_is(self):
        namespace = self.open()
        self.write(namespace, ["a", "b"], [b"a" * 100, b"b" * 200])

        result = namespace.exists(["a", "b", "c"], deadline=DEADLINE)

        self.assertEqual(result.outcomes,
                         [Outcome.HIT, Outcome.HIT, Outcome.MISS])
        self.assertEqual(result.lengths, [100, 200, 0])
        self.assertEqual((result.hits, result.leading_hits), (2, 2))

    def test_what_was_removed_is_a_miss(self):
        namespace = self.open()
        self.write(namespace, ["a", "b"], [b"a" * 100, b"b" * 100])

        result = namespace.remove(["a", "other"], deadline=DEADLINE)

        self.assertEqual(result.outcomes, [Outcome.HIT, Outcome.MISS])
        self.assertEqual(result.removed, 1)
        after = namespace.exists(["a", "b"], deadline=DEADLINE, want="every")
        self.assertEqual(after.outcomes, [Outcome.MISS, Outcome.HIT])

    def test_a_block_that_is_there_is_not_copied_again(self):
        namespace = self.open()
        self.write(namespace, ["a"], [b"a" * 100])

        again = namespace.write(["a"], [b"a" * 100], deadline=DEADLINE)

        self.assertEqual(again.outcomes, [Outcome.ALREADY_THERE])
        self.assertEqual((again.stored, again.already_there,
                          again.bytes_copied), (0, 1, 0))

    def test_a_chain_grows_and_its_parts_name_its_blocks(self):
        namespace = self.open(chained=True)
        chain = firnkv.Chain(block_tokens=16)
        chain.extend([b"one", "two"])
        self.write(namespace, chain, [b"1" * 64, b"2" * 64])
        self.assertEqual(chain.append(b"three"), 2)
        self.write(namespace, chain[2:], [b"3" * 64])

        landing = bytearray(3 * 64)
        result = namespace.read(chain, landing, deadline=DEADLINE)

        self.assertEqual(result.leading_hits, 3)
        self.assertEqual(bytes(landing), b"1" * 64 + b"2" * 64 + b"3" * 64)
        self.assertEqual(len(chain[-1]), 1)
        self.assertEqual(chain[1:].keys, chain.keys[1:])
        self.assertEqual(len(set(chain.keys)), 3)
        with self.assertRaises(IndexError):
            chain[3]

    def test_shards_of_a_position_are_different_blocks(self):
        chains = [firnkv.Chain(block_tokens=16, shard_index=i, shard_count=2)
                  for i in range(2)]
        for chain in chains:
            chain.append(b"hash")

        self.assertNotEqual(chains[0].keys, chains[1].keys)
        self.assertEqual(
            firnkv.unchained([b"hash"], shard_index=1, shard_count=2).keys,
            chains[1].keys)
        with self.assertRaisesRegex(ValueError, "shard 2 of 2"):
            firnkv.Chain(block_tokens=16, shard_index=2, shard_count=2)

    def test_names_are_refused_where_blocks_have_a_chain(self):
        namespace = self.open(chained=True)
        with self.assertRaisesRegex(ValueError, "come from a Chain"):
            namespace.exists(["a"], deadline=DEADLINE)

    def test_a_block_lands_in_pieces_in_their_order(self):
        namespace = self.open()
        self.write(namespace, ["a", "b"],
                   [[b"12", bytearray(b"345")], [memoryview(b"67890")]])

        first, second, third = bytearray(1), array.array("B", bytes(4)), (
            ctypes.c_char * 5)()
        result = namespace.read(["a", "b"], [[first, second], third],
                                deadline=DEADLINE)

        self.assertEqual(result.hits, 2)
        self.assertEqual(bytes(first) + bytes(second), b"12345")
        self.assertEqual(bytes(third), b"67890")

    def test_a_bare_address_is_memory(self):
        namespace = self.open()
        source = ctypes.create_string_buffer(b"address", 7)
        landing = ctypes.create_string_buffer(7)
        self.write(namespace, ["a"], [(ctypes.addressof(source), 7)])

        result = namespace.read(["a"], [(ctypes.addressof(landing), 7)],
                                deadline=DEADLINE)

        self.assertEqual(result.hits, 1)
        self.assertEqual(landing.raw, b"address")

    def test_a_tensor_is_memory(self):
        """Of torch, or what has its shape: CI has no torch."""
        namespace = self.open()
        source, landing = Tensor(b"tensors!"), Tensor(bytes(8))
        self.write(namespace, ["a"], source)

        self.assertEqual(
            namespace.read(["a"], [landing], deadline=DEADLINE).hits, 1)
        self.assertEqual(landing.memory.raw, b"tensors!")
        with self.assertRaisesRegex(BufferError, "on cuda:0"):
            namespace.read(["a"], Tensor(bytes(8), device="cuda:0"),
                           deadline=DEADLINE)
        with self.assertRaisesRegex(BufferError, "not contiguous"):
            namespace.read(["a"], Tensor(bytes(8), contiguous=False),
                           deadline=DEADLINE)

    def test_numpy_arrays_are_memory(self):
        try:
            import numpy
        except ImportError:
            self.skipTest("numpy is not installed (python3-numpy)")
        namespace = self.open()
        source = numpy.arange(4 * 100, dtype=numpy.int16).reshape(4, 100)
        names = [f"row {i}" for i in range(4)]
        self.write(namespace, names, source)

        landing = numpy.zeros_like(source)
        self.assertEqual(
            namespace.read(names, landing, deadline=DEADLINE).hits, 4)
        self.assertTrue((landing == source).all())
        with self.assertRaisesRegex(BufferError, "contiguous"):
            namespace.read(names, landing[:, ::2], deadline=DEADLINE)

    def test_memory_of_allocate_shared_is_written_without_a_copy(self):
        namespace = self.open()
        shared = self.client.allocate_shared(2 * SIZE)
        memoryview(shared)[:] = content(1, 2 * SIZE)

        result = self.write(namespace, ["a", "b"], shared)

        self.assertEqual((result.bytes_stored, result.bytes_copied),
                         (2 * SIZE, 0))
        landing = self.client.allocate_shared(2 * SIZE)
        self.assertEqual(
            namespace.read(["a", "b"], landing, deadline=DEADLINE).hits, 2)
        self.assertEqual(bytes(landing), content(1, 2 * SIZE))
        self.assertEqual(landing.address % 4096, 0)

    def test_shared_memory_is_given_back_with_its_last_user(self):
        with firnkv.Client(self.node.socket, shared_bytes=64 << 20) as client:
            shared = client.allocate_shared(48 << 20)
            view = memoryview(shared)
            del shared
            with self.assertRaises(firnkv.Exhausted):
                client.allocate_shared(48 << 20)
            view[0] = 1
            view.release()
            self.assertEqual(len(client.allocate_shared(48 << 20)), 48 << 20)

    def test_memory_that_does_not_fit_is_refused_with_a_word(self):
        namespace = self.open()
        with self.assertRaisesRegex(ValueError, "shared evenly by 3"):
            namespace.read(["a", "b", "c"], bytearray(100), deadline=DEADLINE)
        with self.assertRaisesRegex(ValueError, "memory of 1 blocks for 2"):
            namespace.read(["a", "b"], [bytearray(100)], deadline=DEADLINE)
        with self.assertRaisesRegex(BufferError, "block 1.*writable"):
            namespace.read(["a", "b"], [bytearray(1), b"read-only"],
                           deadline=DEADLINE)
        with self.assertRaisesRegex(TypeError, "block 0: int has no memory"):
            namespace.write(["a"], [7], deadline=DEADLINE)
        with self.assertRaisesRegex(BufferError, "contiguous"):
            namespace.read(["a"], [memoryview(bytearray(8))[::2]],
                           deadline=DEADLINE)
        with self.assertRaisesRegex(TypeError, "not int"):
            namespace.exists(7, deadline=DEADLINE)
        with self.assertRaisesRegex(TypeError, "not str"):
            namespace.exists("a", deadline=DEADLINE)
        with self.assertRaisesRegex(TypeError, "bytes or str, not int"):
            namespace.exists([7], deadline=DEADLINE)

    def test_a_wrong_length_is_an_outcome(self):
        namespace = self.open()
        self.write(namespace, ["a"], [b"12345"])
        result = namespace.read(["a"], [bytearray(6)], deadline=DEADLINE)
        self.assertEqual(result.outcomes, [Outcome.WRONG_SIZE])

    def test_memory_is_let_go_when_a_call_has_ended(self):
        namespace = self.open()
        landing = bytearray(100)
        namespace.read(["a"], landing, deadline=DEADLINE)
        before = sys.getrefcount(landing)
        landing.append(1)  # BufferError where it were still exported.
        namespace.read(["a"], [landing], deadline=DEADLINE)
        self.assertEqual(sys.getrefcount(landing), before)

    def test_a_request_out_of_its_bounds_is_refused(self):
        namespace = self.open()
        for deadline in (0, 1000):
            with self.assertRaisesRegex(firnkv.InvalidArgument, "deadline"):
                namespace.exists(["a"], deadline=deadline)
        for deadline in (-1, float("nan")):
            with self.assertRaisesRegex(ValueError, "must be seconds"):
                namespace.exists(["a"], deadline=deadline)
        with self.assertRaisesRegex(firnkv.InvalidArgument, "stands twice"):
            namespace.exists(["a", "a"], deadline=DEADLINE)
        with self.assertRaisesRegex(firnkv.InvalidArgument, "4097 blocks"):
            namespace.exists([str(i) for i in range(4097)], deadline=DEADLINE)
        with self.assertRaisesRegex(ValueError, "'leading' or 'every'"):
            namespace.exists(["a"], deadline=DEADLINE, want="some")
        with self.assertRaisesRegex(ValueError, "0 bytes; 1 to 4096"):
            namespace.exists([""], deadline=DEADLINE)
        with self.assertRaises(TypeError):
            namespace.exists(["a"])

    def test_options_out_of_their_bounds_are_refused(self):
        with self.assertRaisesRegex(firnkv.InvalidArgument, "threads"):
            firnkv.Client(self.node.socket, threads=0)
        with self.assertRaisesRegex(TypeError, "threads cannot be 'two'"):
            firnkv.Client(self.node.socket, threads="two")
        with self.assertRaisesRegex(TypeError, "no_such_option"):
            firnkv.Client(self.node.socket, no_such_option=1)
        with self.assertRaisesRegex(ValueError, "hex"):
            firnkv.Client("", catalog_address="x:1", token="no hex")

    def test_a_namespace_of_another_contract_is_another_one(self):
        one = self.open()
        other = firnkv.StateContract.opaque("test", block_tokens=32)
        with self.assertRaisesRegex(firnkv.NotFound, "no-such-name"):
            self.client.open_namespace("no-such-name", other, create=False,
                                       deadline=DEADLINE)
        with self.assertRaisesRegex(firnkv.Refused, "block_tokens"):
            self.client.open_namespace(one.name, other, chained=False,
                                       create=False, deadline=DEADLINE)
        second = self.client.open_namespace(one.name, other, chained=False,
                                            deadline=DEADLINE)
        self.assertNotEqual(one.id, second.id)
        self.assertEqual((one.version, second.version), (1, 2))
        self.assertTrue(second.created)
        self.assertTrue(second.opened)
        self.assertEqual(second.why, "")

    def test_a_contract_without_a_field_is_refused_by_its_name(self):
        with self.assertRaisesRegex(firnkv.InvalidArgument, "kv_dtype"):
            self.client.open_namespace(
                "x", firnkv.StateContract.opaque("x", kv_dtype=""),
                deadline=DEADLINE)
        with self.assertRaisesRegex(TypeError, "must be a StateContract"):
            self.client.open_namespace("x", {"model": "x"}, deadline=DEADLINE)

    def test_a_client_says_where_it_is_and_what_it_has_done(self):
        namespace = self.open()
        self.write(namespace, ["a"], [b"a" * 100])
        namespace.read(["a", "b"], bytearray(200), deadline=DEADLINE)

        about = self.client.about()
        stats = self.client.stats()

        self.assertTrue(about["session"])
        self.assertEqual(about["tenant"], "default")
        self.assertGreaterEqual(stats["read_outcomes"]["hit"], 1)
        self.assertGreaterEqual(stats["read_outcomes"]["miss"], 1)
        self.assertGreaterEqual(stats["bytes_stored"], 100)

    def test_a_closed_client_does_nothing(self):
        client = firnkv.Client(self.node.socket)
        namespace = self.open(client)
        client.close()
        client.close()
        result = namespace.read(["a"], bytearray(1), deadline=DEADLINE)
        self.assertEqual(result.outcomes, [Outcome.CANCELLED])
        with self.assertRaises(firnkv.Cancelled):
            namespace.submit_exists(["a"], deadline=DEADLINE)


class StubsTest(unittest.TestCase):
    """What type checkers are told is what is there."""

    def declared(self):
        """Name to public members of each class; to None for functions."""
        path = os.path.join(os.path.dirname(firnkv.__file__), "_core.pyi")
        with open(path, encoding="utf-8") as file:
            tree = ast.parse(file.read())
        classes = {node.name: node for node in tree.body
                   if isinstance(node, ast.ClassDef)}

        def members(node):
            own = {one.name for one in node.body
                   if isinstance(one, ast.FunctionDef)}
            return own.union(*(members(classes[base.id])
                               for base in node.bases))
        names = {name: members(node) for name, node in classes.items()
                 if not name.startswith("_")}
        names.update((node.name, None) for node in tree.body
                     if isinstance(node, ast.FunctionDef))
        return names

    def test_every_name_is_declared_and_no_other(self):
        declared = self.declared()
        there = {name for name in vars(_core) if not name.startswith("_")}
        self.assertEqual(set(declared), there)
        for name, members in declared.items():
            if members is None:
                continue
            public = {one for one in members if not one.startswith("_")}
            self.assertEqual(public, {
                one for one in vars(getattr(_core, name))
                if not one.startswith("_")}, name)

    def test_the_package_has_every_name_of_its_list(self):
        for name in firnkv.__all__:
            self.assertTrue(hasattr(firnkv, name), name)


class Tensor:
    """Shaped as torch's on the CPU."""

    def __init__(self, initial, device="cpu", contiguous=True):
        self.memory = ctypes.create_string_buffer(initial, len(initial))
        self.device = device
        self.contiguous = contiguous

    def data_ptr(self):
        return ctypes.addressof(self.memory)

    def numel(self):
        return len(self.memory) // 2

    def element_size(self):
        return 2

    def is_contiguous(self):
        return self.contiguous


if __name__ == "__main__":
    unittest.main()
