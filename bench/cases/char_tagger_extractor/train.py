"""POS-like tagger for a made-up suffixing language: char CNN per word type + BiGRU over the sentence."""
import json, os, random
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

VARIANT = os.environ.get("CASE_VARIANT", "faulty")
SEED = int(os.environ.get("CASE_SEED", "0"))
BACKEND = os.environ.get("CASE_COMPILE", "")
random.seed(SEED); np.random.seed(SEED); torch.manual_seed(SEED); torch.set_num_threads(1)

ALPHABET = "abcdefghijklmnopqrstuvwxyz"
MAXLEN = 10
TAGS = ["N", "V", "ADJ", "ADV", "DET", "PART"]
PAD = 0


class Language:
    """tag = suffix class, except that a noun after PART is tagged as V (needs context)"""

    def __init__(self, rng):
        self.rng = rng
        suffixes = set()
        while len(suffixes) < 30:
            suffixes.add("".join(rng.choice(list(ALPHABET), 3)))
        self.suffixes = sorted(suffixes)
        rng.shuffle(self.suffixes)

    def word(self):
        k = int(self.rng.integers(len(self.suffixes)))
        stem = "".join(self.rng.choice(list(ALPHABET), int(self.rng.integers(3, 7))))
        return stem + self.suffixes[k], k % len(TAGS)

    def sentence(self, n=10):
        words, tags = zip(*[self.word() for _ in range(n)])
        tags = list(tags)
        for i in range(1, n):
            if tags[i] == 0 and tags[i - 1] == 5:
                tags[i] = 1
        return list(words), tags


def encode(words):
    ids = np.zeros((len(words), MAXLEN), dtype=np.int64)
    for i, w in enumerate(words):
        ids[i, -len(w):] = [ALPHABET.index(c) + 1 for c in w]
    return torch.from_numpy(ids)


class CharEncoder(nn.Module):
    def __init__(self, emb=16, out=10):
        super().__init__()
        self.emb = nn.Embedding(len(ALPHABET) + 1, emb, padding_idx=PAD)
        self.conv = nn.Conv1d(emb, 48, 3, padding=1)
        self.proj = nn.Linear(48, out)

    def forward(self, ids):
        h = F.relu(self.conv(self.emb(ids).transpose(1, 2)))
        return self.proj(h.amax(-1))


class FeatureTap(nn.Module):
    """runs an encoder and hands on what a hook on one of its layers saw"""

    def __init__(self, encoder, layer):
        super().__init__()
        self.encoder = encoder
        self.grabbed = None
        getattr(encoder, layer).register_forward_hook(self._hook)

    def _hook(self, module, inputs, output):
        self.grabbed = output.clone().detach() if VARIANT == "faulty" else output.clone()

    def forward(self, ids):
        self.encoder(ids)
        feats, self.grabbed = self.grabbed, None
        return feats


class SentenceTagger(nn.Module):
    def __init__(self, feat=10, hidden=32):
        super().__init__()
        self.rnn = nn.GRU(feat, hidden, batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * hidden, len(TAGS))

    def forward(self, feats):
        h, _ = self.rnn(feats)
        return self.out(F.dropout(h, 0.1, self.training))


def batch_of(lang, n):
    sents = [lang.sentence() for _ in range(n)]
    types = sorted({w for s, _ in sents for w in s})
    where = {w: i for i, w in enumerate(types)}
    idx = torch.tensor([[where[w] for w in s] for s, _ in sents])
    return encode(types), idx, torch.tensor([t for _, t in sents])


def main():
    lang = Language(np.random.default_rng(SEED + 1))
    chars = FeatureTap(CharEncoder(), layer="proj")
    tagger = SentenceTagger()
    run = torch.compile(tagger, backend=BACKEND) if BACKEND else tagger
    opt = torch.optim.Adam([
        {"params": chars.parameters(), "lr": 5e-3},
        {"params": tagger.parameters(), "lr": 5e-3},
    ])
    held_out = batch_of(lang, 100)
    first, recent = None, []
    for step in range(1, 181):
        ids, idx, tags = batch_of(lang, 24)
        logits = run(chars(ids)[idx])
        loss = F.cross_entropy(logits.flatten(0, 1), tags.flatten())
        opt.zero_grad()
        loss.backward()
        opt.step()
        first = loss.item() if first is None else first
        recent = (recent + [loss.item()])[-10:]
        if step % 30 == 0:
            print("step %d | loss %.4f" % (step, np.mean(recent)))

    chars.eval(); tagger.eval()
    with torch.no_grad():
        ids, idx, tags = held_out
        acc = (tagger(chars(ids)[idx]).argmax(-1) == tags).float().mean().item()
    print(json.dumps({"loss_first": first, "loss_last": float(np.mean(recent)),
                      "metric_name": "held_out_token_accuracy", "metric": acc, "ok": acc > 0.85}))


main()
