"""Makes a Llama with random weights, and a tokenizer: tiny_model.py FOLDER SIZE.
The same weights each time. SIZE: small, or large: one whose prefill of some
thousand tokens takes seconds on a CPU."""

import sys

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (LlamaConfig, LlamaForCausalLM,
                          PreTrainedTokenizerFast)

WORDS = 512
SIZES = {
    "small": {"hidden_size": 128, "intermediate_size": 256,
              "num_hidden_layers": 3, "num_attention_heads": 4,
              "num_key_value_heads": 2, "head_dim": 32,
              "max_position_embeddings": 2048},
    "large": {"hidden_size": 1024, "intermediate_size": 2816,
              "num_hidden_layers": 16, "num_attention_heads": 16,
              "num_key_value_heads": 4, "head_dim": 64,
              "max_position_embeddings": 8192},
}


def main(folder, size):
    torch.manual_seed(7)
    model = LlamaForCausalLM(LlamaConfig(
        vocab_size=WORDS, bos_token_id=0, eos_token_id=1, pad_token_id=2,
        tie_word_embeddings=False, **SIZES[size]))
    model.to(torch.bfloat16).save_pretrained(folder)
    words = ["<s>", "</s>", "<pad>", "<unk>"]
    words += [f"t{i}" for i in range(len(words), WORDS)]
    tokenizer = Tokenizer(models.WordLevel(
        {word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>",
        pad_token="<pad>", unk_token="<unk>").save_pretrained(folder)


if __name__ == "__main__":
    main(*sys.argv[1:])
