"""Small acoustic model with CTC: three dense layers, one bidirectional GRU, softmax over characters + blank."""
import json
import math
import os
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

SEED = int(os.environ.get("CASE_SEED", "0"))
FIXED = os.environ.get("CASE_VARIANT", "faulty") == "fixed"
BACKEND = os.environ.get("CASE_COMPILE", "")


class FLAGS:
    relu_clip = 20.0
    default_stddev = 0.1 if FIXED else 1.0
    n_hidden = 48
    n_input = 10
    n_context = 1
    n_character = 7          # blank + 6 letters
    learning_rate = 3e-3
    batch_size = 16
    steps = 130


def synth_batch(templates, n):
    """utterances of 3-5 letters, each letter held for 3-5 frames"""
    feats, targets, flen, tlen = [], [], [], []
    for _ in range(n):
        k = random.randint(3, 5)
        letters, prev = [], 0
        for _ in range(k):
            c = random.choice([j for j in range(1, FLAGS.n_character) if j != prev])
            letters.append(c)
            prev = c
        frames = [templates[c] + 0.4 * torch.randn(FLAGS.n_input) for c in letters for _ in range(random.randint(3, 5))]
        feats.append(torch.stack(frames))
        targets += letters
        flen.append(len(frames))
        tlen.append(k)
    x = nn.utils.rnn.pad_sequence(feats, batch_first=True)
    return x, torch.tensor(targets), torch.tensor(flen), torch.tensor(tlen)


class AcousticModel(nn.Module):
    def __init__(self):
        super().__init__()
        width = FLAGS.n_input * (2 * FLAGS.n_context + 1)
        self.layer_1 = nn.Linear(width, FLAGS.n_hidden)
        self.layer_2 = nn.Linear(FLAGS.n_hidden, FLAGS.n_hidden)
        self.layer_3 = nn.Linear(FLAGS.n_hidden, FLAGS.n_hidden)
        self.birnn = nn.GRU(FLAGS.n_hidden, FLAGS.n_hidden // 2, batch_first=True, bidirectional=True)
        self.layer_5 = nn.Linear(FLAGS.n_hidden, FLAGS.n_hidden)
        self.layer_6 = nn.Linear(FLAGS.n_hidden, FLAGS.n_character)
        for layer in (self.layer_1, self.layer_2, self.layer_3, self.layer_5, self.layer_6):
            nn.init.normal_(layer.weight, std=FLAGS.default_stddev)
            nn.init.normal_(layer.bias, std=FLAGS.default_stddev)

    def forward(self, x):
        pad = F.pad(x, (0, 0, FLAGS.n_context, FLAGS.n_context))
        x = torch.cat([pad[:, i:i + x.size(1)] for i in range(2 * FLAGS.n_context + 1)], -1)
        for layer in (self.layer_1, self.layer_2, self.layer_3):
            x = F.relu(layer(x)).clamp(max=FLAGS.relu_clip)
        x, _ = self.birnn(x)
        x = F.relu(self.layer_5(x)).clamp(max=FLAGS.relu_clip)
        return self.layer_6(x)


def greedy(logits, length):
    path = logits[:length].argmax(-1).tolist()
    return [c for i, c in enumerate(path) if c != 0 and (i == 0 or c != path[i - 1])]


def edit_distance(a, b):
    d = list(range(len(b) + 1))
    for i, ca in enumerate(a, 1):
        prev, d[0] = d[0], i
        for j, cb in enumerate(b, 1):
            prev, d[j] = d[j], min(d[j] + 1, d[j - 1] + 1, prev + (ca != cb))
    return d[-1]


def main():
    torch.set_num_threads(1)
    random.seed(SEED)
    np.random.seed(SEED)
    torch.manual_seed(SEED)
    templates = torch.randn(FLAGS.n_character, FLAGS.n_input)
    net = AcousticModel()
    model = torch.compile(net, backend=BACKEND) if BACKEND else net
    optimizer = torch.optim.Adam(net.parameters(), lr=FLAGS.learning_rate)
    ctc = nn.CTCLoss(blank=0)
    losses = []
    for step in range(FLAGS.steps):
        x, y, flen, tlen = synth_batch(templates, FLAGS.batch_size)
        logp = model(x).log_softmax(-1).transpose(0, 1)
        loss = ctc(logp, y, flen, tlen)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if step % 25 == 0:
            print(f"I Training of Epoch {step // 25} - loss: {loss.item():.6f}")
    with torch.no_grad():
        x, y, flen, tlen = synth_batch(templates, 100)
        out = model(x)
        errors, pos = 0, 0
        for i in range(100):
            ref = y[pos:pos + tlen[i]].tolist()
            pos += int(tlen[i])
            errors += edit_distance(greedy(out[i], int(flen[i])), ref)
    cer = errors / len(y)
    f = lambda v: round(float(v), 4) if math.isfinite(v) else None
    print(json.dumps({"loss_first": f(losses[0]), "loss_last": f(np.mean(losses[-10:])), "metric_name": "label_error_rate",
                      "metric": f(cer), "ok": bool(cer < 0.1)}))


if __name__ == "__main__":
    main()
