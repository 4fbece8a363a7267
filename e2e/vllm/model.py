"""model.py DIR TEXT…: makes a model for vLLM with random weights. Its tokenizer is trained on the texts.

An answer depends on all tokens of its prompt. With --load-format dummy, it depends only on the last one.
"""

import json
import pathlib
import sys

import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

CONTEXT = 4096
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = (
    "{% if reasoning_effort %}<|im_start|>effort {{ reasoning_effort }} {{ enable_thinking }}<|im_end|>\n{% endif %}"
    "{% for t in tools or [] %}<|im_start|>tool {{ t | tojson }}<|im_end|>\n{% endfor %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.reasoning %}<think>{{ m.reasoning }}</think>{% endif %}"
    "{{ m.content }}{% for c in m.tool_calls or [] %}<call>{{ c.function.name }} {{ c.function.arguments | tojson }}"
    "{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def train(texts):
    """Returns a byte-level BPE tokenizer of 2,000 tokens and SPECIAL."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train(texts, trainers.BpeTrainer(vocab_size=2000, show_progress=False, initial_alphabet=alphabet))
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in SPECIAL])
    return tokenizer


def weights(config):
    """Returns the weights of a model, the same for each call."""
    random = torch.Generator().manual_seed(7)
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    cached = hidden // config["num_attention_heads"] * config["num_key_value_heads"]

    def matrix(rows, columns, scale):
        return (torch.randn(rows, columns, generator=random) * scale * columns**-0.5).bfloat16()

    def ones():
        return torch.ones(hidden, dtype=torch.bfloat16)

    tensors = {
        "model.embed_tokens.weight": matrix(config["vocab_size"], hidden, hidden**0.5),
        "model.norm.weight": ones(),
        "lm_head.weight": matrix(config["vocab_size"], hidden, 1),
    }
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        tensors |= {prefix + f"{norm}_layernorm.weight": ones() for norm in ("input", "post_attention")}
        # The values' scale lets attention change the answer.
        for name, rows, columns, scale in (
            ("self_attn.q_proj", hidden, hidden, 1), ("self_attn.k_proj", cached, hidden, 1),
            ("self_attn.v_proj", cached, hidden, 3), ("self_attn.o_proj", hidden, hidden, 1),
            ("mlp.gate_proj", inner, hidden, 1), ("mlp.up_proj", inner, hidden, 1), ("mlp.down_proj", hidden, inner, 1),
        ):
            tensors[prefix + name + ".weight"] = matrix(rows, columns, scale)
            if name.endswith(("q_proj", "k_proj", "v_proj")):
                tensors[prefix + name + ".bias"] = torch.zeros(rows, dtype=torch.bfloat16)
    return tensors


def main(directory, texts):
    directory.mkdir(parents=True, exist_ok=True)
    tokenizer = train(texts)
    end, _, stop = (tokenizer.token_to_id(token) for token in SPECIAL)
    files = {
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": CONTEXT, "eos_token": SPECIAL[2],
            "pad_token": SPECIAL[0], "clean_up_tokenization_spaces": False, "chat_template": TEMPLATE,
        },
        "config.json": {
            "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "vocab_size": tokenizer.get_vocab_size(),
            "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2,
            "num_key_value_heads": 1, "max_position_embeddings": CONTEXT, "rms_norm_eps": 1e-6, "hidden_act": "silu",
            "tie_word_embeddings": False, "torch_dtype": "bfloat16", "bos_token_id": end, "eos_token_id": stop,
        },
    }
    for name, value in files.items():
        (directory / name).write_text(json.dumps(value, indent=1))
    tokenizer.save(str(directory / "tokenizer.json"))
    save_file(weights(files["config.json"]), directory / "model.safetensors", metadata={"format": "pt"})


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), sys.argv[2:])
