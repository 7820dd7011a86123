"""One vLLM engine in a process of its own: vllm_engine.py JSON COMMANDS ANSWERS.

The first argument is the engine's configuration, the others are descriptors:
commands come as lines of JSON, and each is answered by lines, the last of which
has "done". Prompts run one by one and greedily, so that what comes out depends
on nothing but the prompt.

{"do": "generate", "family": F, "count": N, "tokens": T}: N prompts of a family,
which shares nothing with other families; a line a prompt. Up to 99 they share
prefixes with each other; from 100 on each has its own, so that an engine which
has answered one has nothing of the next in its own cache.
{"do": "long", "family": F, "prefix": P}: one prompt of P tokens; its time is the
time to its first token.
{"do": "forget"}: the engine's own cache is emptied.
{"do": "timing"}: what a timed tier has measured since it was last asked.
{"do": "end"}
"""

import json
import os
import sys
import time

BLOCK = 32
PREFIXES = 5
PREFIX_TOKENS = 9 * BLOCK


APART = 100  # Families from here on.


def prefix(which, family, tokens):
    bend = 5 if family < APART else 3
    return [4 + (7 * j + 101 * which + 497 * family + j * j // bend) % 500
            for j in range(tokens)]


def prompts(family, count):
    """With prefixes of several blocks; they end differently."""
    for i in range(count):
        which = i % PREFIXES if family < APART else i
        yield (prefix(which, family, PREFIX_TOKENS)
               + [4 + (13 * i + j) % 500 for j in range(3 + i % 7)])


class Engine:
    def __init__(self, options, answers):
        from vllm import LLM, SamplingParams
        from vllm.config import KVTransferConfig
        transfer = options.pop("kv_transfer_config", None)
        self._sampling = SamplingParams
        self._answers = answers
        self._engine = LLM(**{
            "dtype": "bfloat16", "max_model_len": 1024, "enforce_eager": True,
            "enable_prefix_caching": bool(transfer), "max_num_seqs": 8,
            "block_size": BLOCK, "seed": 0, "disable_log_stats": False,
            "kv_transfer_config":
                KVTransferConfig(**transfer) if transfer else None, **options})

    def say(self, **answer):
        self._answers.write(json.dumps(answer) + "\n")
        self._answers.flush()

    def run(self, prompt, tokens):
        sampling = self._sampling(temperature=0, max_tokens=tokens,
                                  detokenize=False, ignore_eos=True)
        began = time.monotonic()
        output = self._engine.generate([{"prompt_token_ids": prompt}], sampling,
                                       use_tqdm=False)[0]
        self.say(tokens=list(output.outputs[0].token_ids),
                 cached=output.num_cached_tokens or 0, prompt=len(prompt),
                 seconds=time.monotonic() - began)

    def generate(self, task):
        for prompt in prompts(task["family"], task["count"]):
            self.run(prompt, task.get("tokens", 8))

    def long(self, task):
        self.run(prefix(0, task["family"], task["prefix"]) + [7, 8, 9], 1)

    def forget(self, task):
        # Blocks of a request are free once their saves have ended.
        until = time.monotonic() + 60.0
        while not self._engine.reset_prefix_cache():
            if time.monotonic() > until:
                raise RuntimeError("the engine's cache is in use")
            time.sleep(0.1)

    def timing(self, task):
        import timed_tier
        self.say(**timed_tier.taken())


def main(options, commands, answers):
    engine = Engine(options, answers)
    engine.say(done=True)
    for line in commands:
        task = json.loads(line)
        if task["do"] == "end":
            break
        getattr(engine, task["do"])(task)
        engine.say(done=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), os.fdopen(int(sys.argv[2])),
         os.fdopen(int(sys.argv[3]), "w"))
