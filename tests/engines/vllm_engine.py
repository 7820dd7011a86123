"""One vLLM engine in a process of its own: vllm_engine.py JSON. Runs each prompt
by itself, greedily, and writes for each what came out and how many of its tokens
were found."""

import json
import sys
import time

from vllm import LLM, SamplingParams
from vllm.config import KVTransferConfig

BLOCK = 32
PREFIXES = 5
PREFIX_TOKENS = 9 * BLOCK


def prompts(count):
    """That share prefixes of several blocks, and end differently."""
    for i in range(count):
        which = i % PREFIXES
        prefix = [4 + (7 * j + 101 * which + j * j // 5) % 500
                  for j in range(PREFIX_TOKENS)]
        yield prefix + [4 + (13 * i + j) % 500 for j in range(3 + i % 7)]


def main(task):
    transfer = task.get("kv_transfer_config")
    engine = LLM(
        model=task["model"], dtype="bfloat16", max_model_len=1024,
        enforce_eager=True, enable_prefix_caching=bool(transfer),
        max_num_seqs=8, block_size=BLOCK, seed=0, disable_log_stats=False,
        kv_transfer_config=KVTransferConfig(**transfer) if transfer else None)
    sampling = SamplingParams(temperature=0, max_tokens=8, detokenize=False,
                              ignore_eos=True)
    found = []
    for prompt in prompts(task["prompts"]):
        began = time.monotonic()
        output = engine.generate([{"prompt_token_ids": prompt}], sampling,
                                 use_tqdm=False)[0]
        found.append({"tokens": list(output.outputs[0].token_ids),
                      "cached": output.num_cached_tokens or 0,
                      "prompt": len(prompt),
                      "seconds": time.monotonic() - began})
    with open(task["out"], "w", encoding="utf-8") as file:
        json.dump(found, file)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
