"""Train a small character-level GPT on the source text of Python's standard library.

The model is compiled as a whole. Each fault is one mistake of the kind people make;
without a fault the loss falls well below the entropy of single characters.
"""

from __future__ import annotations

import argparse
import math
import sysconfig
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

FAULTS = {
    "none": "nothing is wrong",
    "lr_too_high": "the learning rate lost two zeros",
    "missing_zero_grad": "gradients are never cleared between steps",
    "params_not_optimized": "the optimizer is built before the blocks are re-created",
    "init_too_large": "linear layers start at a standard deviation of 1 instead of 0.02",
    "broken_graph": "the last block returns a detached tensor",
}

WIDTH = 96
LAYERS = 4
HEADS = 4
CONTEXT = 64
BATCH = 16
WARMUP = 10
PEAK_LR = 1e-3
TEXT_CHARS = 300_000
MARGIN = 0.5  # nats below the unigram entropy: out of reach for single characters


class Attention(nn.Module):
    """Causal self-attention over a sequence of shape (batch, time, width)."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Mix each position with those before it."""
        batch, steps, width = x.shape
        split = (batch, steps, self.heads, width // self.heads)
        q, k, v = (part.view(split).transpose(1, 2) for part in self.qkv(x).chunk(3, dim=-1))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        out: Tensor = self.proj(mixed.transpose(1, 2).reshape(batch, steps, width))
        return out


class MLP(nn.Module):
    """The position-wise half of a block."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, 4 * width)
        self.act = nn.GELU()
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the two layers."""
        out: Tensor = self.down(self.act(self.up(x)))
        return out


class Block(nn.Module):
    """A pre-norm transformer block."""

    def __init__(self, width: int, heads: int, *, detach: bool = False) -> None:
        super().__init__()
        self.detach = detach
        self.norm1 = nn.LayerNorm(width)
        self.attn = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = MLP(width)

    def forward(self, x: Tensor) -> Tensor:
        """Add attention and MLP to the residual stream."""
        x = x + self.attn(self.norm1(x))
        x = x + self.mlp(self.norm2(x))
        return x.detach() if self.detach else x


class CharGPT(nn.Module):
    """Predicts the next character at every position."""

    def __init__(self, vocabulary: int, *, init_std: float, detach_last: bool = False) -> None:
        super().__init__()
        self.init_std = init_std
        self.token = nn.Embedding(vocabulary, WIDTH)
        self.position = nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList(
            Block(WIDTH, HEADS, detach=detach_last and i == LAYERS - 1) for i in range(LAYERS)
        )
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, vocabulary, bias=False)
        self.apply(self.init_weights)
        self.head.weight = self.token.weight

    def init_weights(self, module: nn.Module) -> None:
        """Draw weights from a normal distribution; zero the biases."""
        if isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=WIDTH**-0.5)
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=self.init_std)
            if module.bias is not None:
                nn.init.zeros_(module.bias)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits of shape (batch, time, vocabulary)."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.token(tokens) + self.position(places)
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.head(self.norm(x))
        return logits


def load_text(limit: int = TEXT_CHARS) -> str:
    """The first `limit` characters of the standard library's modules, in order of name."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    parts: list[str] = []
    size = 0
    for path in sorted(folder.glob("*.py")):
        part = path.read_text(encoding="utf-8", errors="ignore")
        parts.append(part)
        size += len(part)
        if size >= limit:
            break
    text = "".join(parts)[:limit]
    return "".join(char for char in text if char == "\n" or " " <= char <= "~")


def unigram_entropy(data: Tensor) -> float:
    """Nats per character when only the frequencies of characters are known."""
    share = torch.bincount(data).double() / len(data)
    share = share[share > 0]
    return float(-(share * share.log()).sum())


def learning_rate(step: int, steps: int) -> float:
    """The share of the peak rate: a linear warm-up, then a cosine down to a tenth."""
    if step < WARMUP:
        return (step + 1) / WARMUP
    done = (step - WARMUP) / max(1, steps - WARMUP)
    return 0.1 + 0.45 * (1 + math.cos(math.pi * done))


def draw_batch(data: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Random windows of text, and the same windows one character later."""
    starts = torch.randint(len(data) - CONTEXT - 1, (BATCH,), generator=generator)
    rows = starts[:, None] + torch.arange(CONTEXT + 1)
    window = data[rows]
    return window[:, :-1], window[:, 1:]


def build(vocabulary: int, fault: str) -> tuple[CharGPT, torch.optim.Optimizer]:
    """The model and its optimizer."""
    model = CharGPT(
        vocabulary,
        init_std=1.0 if fault == "init_too_large" else 0.02,
        detach_last=fault == "broken_graph",
    )
    lr = PEAK_LR * 100 if fault == "lr_too_high" else PEAK_LR
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, betas=(0.9, 0.99))
    if fault == "params_not_optimized":
        model.blocks = nn.ModuleList(Block(WIDTH, HEADS) for _ in range(LAYERS))
        model.blocks.apply(model.init_weights)
    return model, optimizer


def train(args: argparse.Namespace) -> None:
    """Train, print progress, and say in the last line how it ended."""
    torch.manual_seed(args.seed)
    text = load_text()
    characters = sorted(set(text))
    index = {char: i for i, char in enumerate(characters)}
    data = torch.tensor([index[char] for char in text])
    entropy = unigram_entropy(data)
    print(
        f"{len(text)} characters, {len(characters)} distinct, "
        f"unigram entropy {entropy:.3f}, chance {math.log(len(characters)):.3f}"
    )

    model, optimizer = build(len(characters), args.fault)
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: learning_rate(step, args.steps)
    )
    forward: Callable[[Tensor], Tensor] = model
    if args.backend != "eager":
        forward = torch.compile(model, backend=args.backend, fullgraph=True)

    generator = torch.Generator().manual_seed(args.seed)
    losses: list[Tensor] = []
    started = time.perf_counter()
    for step in range(args.steps):
        inputs, targets = draw_batch(data, generator)
        logits = forward(inputs)
        loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        if args.fault != "missing_zero_grad":
            optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        losses.append(loss.detach())
        if step % 10 == 0 or step == args.steps - 1:
            print(f"step {step:4d}  loss {loss.item():8.4f}")

    seconds = time.perf_counter() - started
    final = float(torch.stack(losses[-10:]).mean())
    verdict = "learned" if final < entropy - MARGIN else "did not learn"
    print(
        f"result: {verdict}, loss {final:.4f} over the last {min(10, args.steps)} steps, "
        f"unigram entropy {entropy:.4f}, {args.steps} steps in {seconds:.1f} s"
    )


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    faults = "\n".join(f"  {name:22s}{text}" for name, text in FAULTS.items())
    parser = argparse.ArgumentParser(
        prog="char_gpt.py",
        description="Train a small character-level GPT on Python's standard library.",
        epilog=f"faults:\n{faults}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--backend",
        choices=("inductor", "aot_eager", "eager"),
        default="inductor",
        help="torch.compile backend; eager means not compiled at all (default: inductor)",
    )
    parser.add_argument("--steps", type=int, default=120, help="optimizer steps (default: 120)")
    parser.add_argument("--seed", type=int, default=0, help="seed of everything (default: 0)")
    parser.add_argument(
        "--fault", choices=tuple(FAULTS), default="none", help="the mistake to make, see below"
    )
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    """Run as a script."""
    torch.set_num_threads(1)  # two gain little here, and lose much on a busy machine
    train(parse(argv))


if __name__ == "__main__":
    main()
