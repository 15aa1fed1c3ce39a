import json
import os
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
COMPILE = os.environ.get("CASE_COMPILE", "")
torch.set_num_threads(1)
random.seed(SEED)
np.random.seed(SEED)
torch.manual_seed(SEED)

PAD, BOS, EOS = 0, 1, 2
N_WORDS = 24
VOCAB = N_WORDS + 3
MAX_LEN = 7


def make_corpus(n, rng, lexicon):
    """Toy language pair: words are translated one by one and verb-final order becomes verb-first."""
    src = np.full((n, MAX_LEN), PAD, dtype=np.int64)
    tgt = np.full((n, MAX_LEN + 2), PAD, dtype=np.int64)
    for i in range(n):
        k = rng.integers(4, MAX_LEN + 1)
        s = rng.integers(0, N_WORDS, size=k)
        t = [lexicon[w] for w in s]
        t = [t[-1]] + t[:-1]
        src[i, :k] = s + 3
        tgt[i, 0] = BOS
        tgt[i, 1:k + 1] = np.array(t) + 3
        tgt[i, k + 1] = EOS
    return torch.from_numpy(src), torch.from_numpy(tgt)


class Encoder(nn.Module):
    def __init__(self, emb, hid):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, emb, padding_idx=PAD)
        self.rnn = nn.GRU(emb, hid // 2, batch_first=True, bidirectional=True)

    def forward(self, src):
        out, h = self.rnn(self.embed(src))
        return out, torch.cat([h[0], h[1]], dim=-1).unsqueeze(0)


class AttnDecoder(nn.Module):
    def __init__(self, emb, hid):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, emb, padding_idx=PAD)
        self.rnn = nn.GRU(emb, hid, batch_first=True)
        self.query = nn.Linear(hid, hid, bias=False)
        self.combine = nn.Linear(2 * hid, hid)
        self.out = nn.Linear(hid, VOCAB)

    def forward(self, tgt_in, memory, h0, mask):
        dec, _ = self.rnn(self.embed(tgt_in), h0)
        scores = self.query(dec) @ memory.transpose(1, 2)
        scores = scores.masked_fill(mask[:, None, :], -1e9)
        ctx = scores.softmax(-1) @ memory
        return self.out(torch.tanh(self.combine(torch.cat([dec, ctx], -1))))


class Seq2Seq(nn.Module):
    def __init__(self, emb=48, hid=96):
        super().__init__()
        self.encoder = Encoder(emb, hid)
        self.decoder = AttnDecoder(emb, hid)

    def forward(self, src, tgt_in):
        mem, h = self.encoder(src)
        return self.decoder(tgt_in, mem, h, src.eq(PAD))


def build_optimizer(params, name="adam", lr=4e-3):
    if name == "adam":
        eps = 1e-8 if VARIANT == "fixed" else 0.1
        return torch.optim.Adam(params, lr=lr, betas=(0.9, 0.999), eps=eps)
    return torch.optim.SGD(params, lr=lr)


rng = np.random.default_rng(100 + SEED)
lexicon = rng.permutation(N_WORDS)
train_src, train_tgt = make_corpus(3000, rng, lexicon)
dev_src, dev_tgt = make_corpus(300, rng, lexicon)

net = Seq2Seq()
model = torch.compile(net, backend=COMPILE) if COMPILE else net
opt = build_optimizer(net.parameters())

BATCH, STEPS = 64, 320
losses = []
model.train()
for step in range(STEPS):
    idx = torch.randint(0, len(train_src), (BATCH,))
    s, t = train_src[idx], train_tgt[idx]
    logits = model(s, t[:, :-1])
    loss = F.cross_entropy(logits.reshape(-1, VOCAB), t[:, 1:].reshape(-1), ignore_index=PAD)
    opt.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(net.parameters(), 5.0)
    opt.step()
    losses.append(loss.item())
    if step % 40 == 0:
        print(f"update {step:4d}  nll/token {losses[-1]:.3f}  ppl {np.exp(losses[-1]):.1f}")

net.eval()
with torch.no_grad():
    mem, h = net.encoder(dev_src)
    ys = torch.full((len(dev_src), 1), BOS)
    for _ in range(MAX_LEN + 1):
        nxt = net.decoder(ys, mem, h, dev_src.eq(PAD))[:, -1].argmax(-1, keepdim=True)
        ys = torch.cat([ys, nxt], 1)
    gold = dev_tgt[:, 1:]
    keep = gold.ne(PAD)
    acc = (ys[:, 1:].eq(gold) & keep).sum().item() / keep.sum().item()

print(json.dumps({"loss_first": losses[0], "loss_last": float(np.mean(losses[-10:])),
                  "metric_name": "greedy_token_accuracy", "metric": acc, "ok": acc > 0.85}))
