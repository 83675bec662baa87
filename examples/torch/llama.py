"""A Llama of transformers with delta connections, on the characters of a text: python3 llama.py TEXT [STEPS [CHANNELS]]"""
import torch
import toy
from transformers import LlamaConfig, LlamaForCausalLM

import deep_delta as dd


class Logits(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, ids):
        return self.model(ids, use_cache=False).logits


def small(channels, disable):
    model = LlamaForCausalLM(LlamaConfig(
        vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=128))
    return Logits(dd.patch_llama(model, c=channels, disable=disable))


if __name__ == "__main__":
    toy.compare(small)
