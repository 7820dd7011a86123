"""Contracts come out of what an engine has resolved, by the names that its
releases have used; and processes whose hashes cannot agree are told so.
"""

import dataclasses
import os
import subprocess
import sys
import tempfile
import types
import unittest

import firnkv
from firnkv import contracts
from firnkv.contracts import HashAgreement
from real_node import DEADLINE, NodeTest, RealNode


def space(**fields):
    return types.SimpleNamespace(**fields)


def vllm(**changes):
    """Shaped as vLLM's VllmConfig."""
    cache = {"block_size": 16, "cache_dtype": "auto",
             "prefix_caching_hash_algo": "sha256_cbor",
             **changes.pop("cache", {})}
    hf = space(num_hidden_layers=32, num_key_value_heads=8, head_dim=128,
               rope_theta=500000.0, _commit_hash="c0ffee",
               **changes.pop("hf", {}))
    model = {"model": "org/model", "tokenizer": "org/model", "revision": None,
             "tokenizer_revision": None, "dtype": "torch.bfloat16",
             "hf_config": hf, "hf_text_config": hf,
             **changes.pop("model", {})}
    parallel = {"tensor_parallel_size": 4, "pipeline_parallel_size": 1,
                "decode_context_parallel_size": 1,
                **changes.pop("parallel", {})}
    assert not changes
    return space(model_config=space(**model), cache_config=space(**cache),
                 parallel_config=space(**parallel))


class ContractsTest(unittest.TestCase):
    def test_vllm_says_all_of_it(self):
        contract = contracts.from_vllm(vllm(), layout="blocks,heads,tokens,kv")
        self.assertEqual(contract.model, "org/model")
        self.assertEqual(contract.weights_revision, "c0ffee")
        self.assertEqual(contract.tokenizer, "org/model@c0ffee")
        self.assertEqual(contract.kv_dtype, "bf16")
        self.assertEqual(contract.head_grouping, "8 kv heads of 128")
        self.assertEqual(contract.block_tokens, 16)
        self.assertEqual((contract.tensor_parallel,
                          contract.pipeline_parallel,
                          contract.context_parallel), (4, 1, 1))
        self.assertIn("500000.0", contract.positional)
        self.assertIn("sha256_cbor", contract.cache_salt)
        self.assertEqual(contract.page_order, "blocks,heads,tokens,kv")

    def test_what_no_block_hash_says_makes_another_contract(self):
        one = contracts.from_vllm(vllm())
        others = [
            vllm(cache={"block_size": 32}),
            vllm(cache={"cache_dtype": "fp8_e4m3"}),
            vllm(cache={"prefix_caching_hash_algo": "xxhash"}),
            vllm(model={"model": "org/other"}),
            vllm(model={"hf_config": space(_commit_hash="beef")}),
            vllm(hf={"rope_scaling": {"type": "yarn", "factor": 4.0}}),
            vllm(parallel={"tensor_parallel_size": 2}),
            vllm(parallel={"decode_context_parallel_size": 2}),
        ]
        made = [contracts.from_vllm(other) for other in others]
        self.assertEqual(len(set(map(repr, [one, *made]))), 9)

    def test_the_seed_is_part_of_it_and_is_not_told(self):
        with_seed = self.with_seed("12345")
        self.assertNotEqual(with_seed, self.with_seed("54321"))
        self.assertNotEqual(with_seed, self.with_seed(None))
        self.assertEqual(with_seed, self.with_seed("12345"))
        self.assertNotIn("12345", with_seed.cache_salt)

    def with_seed(self, seed):
        before = os.environ.pop("PYTHONHASHSEED", None)
        try:
            if seed is not None:
                os.environ["PYTHONHASHSEED"] = seed
            return contracts.from_vllm(vllm())
        finally:
            os.environ.pop("PYTHONHASHSEED", None)
            if before is not None:
                os.environ["PYTHONHASHSEED"] = before

    def test_a_field_that_is_not_there_is_named(self):
        config = vllm(model={"hf_config": None})
        with self.assertRaisesRegex(ValueError, "weights_revision=..."):
            contracts.from_vllm(config)
        contract = contracts.from_vllm(config, weights_revision="given")
        self.assertEqual(contract.weights_revision, "given")

    def test_a_folder_of_weights_is_named_by_what_is_in_it(self):
        with tempfile.TemporaryDirectory() as folder:
            self.write(folder, "config.json", b"{}")
            self.write(folder, "model.safetensors", bytes(3 << 20))
            first = contracts.weights_revision(folder)
            self.assertEqual(first, contracts.weights_revision(folder))
            with open(os.path.join(folder, "model.safetensors"),
                      "r+b") as file:
                file.seek(-1, os.SEEK_END)
                file.write(b"x")
            second = contracts.weights_revision(folder)
            self.write(folder, "config.json", b"[]")
            third = contracts.weights_revision(folder)
        self.assertEqual(len({first, second, third}), 3)
        self.assertIsNone(contracts.weights_revision("org/model"))

    def write(self, folder, name, text):
        with open(os.path.join(folder, name), "wb") as file:
            file.write(text)

    def test_sglang_says_all_of_it(self):
        arguments = space(model_path="org/model", kv_cache_dtype="auto",
                          page_size=64, tp_size=2, pp_size=1,
                          hicache_mem_layout="page_first",
                          tokenizer_path=None, revision=None)
        storage = space(tp_rank=1, tp_size=2, pp_size=1,
                        is_page_first_layout=True, model_name="org/model")
        model = space(hf_config=space(num_hidden_layers=2,
                                      num_attention_heads=4, hidden_size=128,
                                      rope_theta=1e4, _commit_hash="c0ffee"),
                      dtype="torch.float16")
        contract = contracts.from_sglang(arguments, storage,
                                         model_config=model)
        self.assertEqual(contract.kv_dtype, "fp16")
        self.assertEqual(contract.block_tokens, 64)
        self.assertEqual(contract.tensor_parallel, 2)
        self.assertEqual(contract.page_order, "page_first")
        self.assertEqual(contract.head_grouping, "4 kv heads of 32")

    def test_shards_of_several_splits_are_told_apart(self):
        self.assertEqual(contracts.rank_shard([(0, 2), (1, 4)]), (1, 8))
        self.assertEqual(contracts.rank_shard([(1, 2), (3, 4)]), (7, 8))
        self.assertEqual(contracts.rank_shard([]), (0, 1))
        with self.assertRaises(ValueError):
            contracts.rank_shard([(2, 2)])

    def test_opaque_contracts_say_one_word_everywhere(self):
        contract = contracts.from_lmcache(kv_dtype="bf16")
        said = dataclasses.asdict(contract)
        self.assertEqual(said.pop("kv_dtype"), "bf16")
        self.assertEqual(said.pop("cache_salt"), "")
        texts = {value for value in said.values() if isinstance(value, str)}
        self.assertEqual(texts, {"in the key"})
        self.assertEqual(contract.block_tokens, 256)


class HashesTest(NodeTest):
    CONTRACT = firnkv.StateContract.opaque("hashes", block_tokens=16)

    def check(self, told, client=None, **options):
        return contracts.check_hashes(
            client or self.client, self.id().rsplit(".", 1)[-1],
            self.CONTRACT, told, deadline=DEADLINE, **options)

    def test_the_second_process_finds_the_first_ones_hash(self):
        self.assertEqual(self.check(b"hash"), HashAgreement.FIRST)
        self.assertEqual(self.check(b"hash"), HashAgreement.AGREES)

    def test_hashes_that_differ_are_told_with_their_cause(self):
        self.check(b"hash")
        with self.assertRaisesRegex(contracts.HashesDiffer,
                                    "PYTHONHASHSEED"):
            self.check(b"other")
        self.assertEqual(self.check(b"other", fail=False),
                         HashAgreement.DIFFERS)

    def test_processes_with_seeds_of_their_own_do_not_agree(self):
        """As an engine's whose hash begins with Python's own."""
        program = ("import hashlib, os;"
                   "print(hashlib.sha256(b'%d' % hash('probe')).hexdigest())")

        def told(seed):
            env = {**os.environ, "PYTHONHASHSEED": seed}
            return subprocess.run([sys.executable, "-c", program], env=env,
                                  check=True, capture_output=True,
                                  text=True).stdout.strip()

        self.assertEqual(self.check(told("1")), HashAgreement.FIRST)
        self.assertEqual(self.check(told("1")), HashAgreement.AGREES)
        self.assertEqual(self.check(told("2"), fail=False),
                         HashAgreement.DIFFERS)

    def test_where_nobody_can_be_asked_nothing_is_known(self):
        nobody = RealNode()
        self.addCleanup(nobody.remove)
        with firnkv.Client(nobody.socket, wait_for_node=False) as client:
            self.assertEqual(
                contracts.check_hashes(client, "x", self.CONTRACT, b"hash",
                                       deadline=0.3),
                HashAgreement.UNKNOWN)


if __name__ == "__main__":
    unittest.main()
