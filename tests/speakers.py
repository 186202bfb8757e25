"""Small models that speak, for the tests of inference.

A scripted model is a real one whose position embedding alone decides: at position p it predicts what the script says.
"""

from dataclasses import dataclass

import torch

from andrea.config import ModelConfig
from andrea.data.tokenizer import Tokenizer, byte_tokenizer
from andrea.model import Transformer

CONTEXT = 32
BYTES = byte_tokenizer()


@dataclass(frozen=True)
class Run:
    model: Transformer
    tokenizer: Tokenizer


def tiny(seed=0, tokenizer=BYTES, vocab_size=None, context=CONTEXT, **options):
    """A model whose attention matters: every weight is as large as a trained one's, norms and biases included."""
    torch.manual_seed(seed)
    model = Transformer(ModelConfig(vocab_size or tokenizer.vocab_size, context, n_layer=2, n_head=2, d_model=32, **options))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.3)
    return Run(model.eval(), tokenizer)


@torch.no_grad()
def scripted(*steps, tokenizer=BYTES, context=CONTEXT):
    """At position p the model predicts steps[p]: an id for certain, or a dict of logits; after the script, byte 0."""
    c = ModelConfig(tokenizer.vocab_size, context, 1, 1, context, norm="none", init="zero", tied=False)
    model = Transformer(c)
    model.token_embed.weight.zero_()
    model.position_embed.weight.copy_(torch.eye(context))
    model.unembed.weight.fill_(-1000)
    for p in range(context):
        step = steps[p] if p < len(steps) else 0
        for i, logit in (step if isinstance(step, dict) else {step: 0}).items():
            model.unembed.weight[i, p] = logit
    return Run(model.eval(), tokenizer)


def saying(text, tokenizer=BYTES):
    """A scripted model that answers an empty prompt with this text, then ends its document."""
    return scripted(*tokenizer.encode(text), tokenizer.separator, tokenizer=tokenizer, context=64)


def prompt_of(length, seed=3):
    return torch.randint(BYTES.vocab_size, (length,), generator=torch.Generator().manual_seed(seed)).tolist()
