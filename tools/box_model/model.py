"""The gpt-oss architecture in torch, for training on a CPU: equal to src/models/transformer.cc.

A batch is rows of packed conversations. A row begins with one system message (segment 0) that all its
conversations (segments 1, 2, ...) see; they do not see each other, and each continues the positions
of the system message. So every conversation is computed as if it were alone.
"""
import math

import torch
import torch.nn.functional as F
from torch import nn

import mxfp4


class Config:
    def __init__(self, **values):
        self.vocab_size, self.hidden, self.layers, self.heads, self.kv_heads, self.head_dim = 4096, 192, 4, 6, 2, 32
        self.experts, self.experts_per_token, self.intermediate, self.window = 8, 2, 192, 128
        self.context, self.original_context, self.theta, self.factor = 8192, 1024, 150000.0, 8.0
        self.beta_fast, self.beta_slow, self.epsilon, self.limit = 32.0, 1.0, 1e-5, 7.0
        self.__dict__.update(values)

    def to_dict(self):
        return dict(self.__dict__)


def rotary_table(config, positions):
    """cos and sin [..., head_dim/2] of YaRN, both times its concentration."""
    d = config.head_dim
    i = torch.arange(d // 2, dtype=torch.float64)
    f = config.theta ** (2 * i / d)
    bound = lambda beta: d / 2 * math.log(config.original_context / (beta * 2 * math.pi)) / math.log(config.theta)
    low, high = bound(config.beta_fast), bound(config.beta_slow)
    ramp = ((i - low) / (high - low)).clamp(0, 1)
    inverse = ramp / (config.factor * f) + (1 - ramp) / f
    m = 0.1 * math.log(config.factor) + 1 if config.factor > 1 else 1.0
    angles = positions.double().unsqueeze(-1) * inverse
    return (m * angles.cos()).float(), (m * angles.sin()).float()


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


def masks_of(segments, positions, window):
    """Additive masks [rows, 1, T, T] for full and window layers; segment -1 is padding."""
    length = segments.shape[1]
    q, k = segments.unsqueeze(2), segments.unsqueeze(1)
    causal = torch.ones(length, length, dtype=torch.bool).tril()
    allowed = causal & ((q == k) | (k == 0))
    near = (positions.unsqueeze(2) - positions.unsqueeze(1)) < window
    make = lambda m: torch.zeros(m.shape).masked_fill(~m, -1e4).unsqueeze(1)
    return make(allowed), make(allowed & near)


class Attention(torch.autograd.Function):
    """Softmax with a sink, without keeping more than the weights: q, k, v [B, H, T, D], sinks [H]."""

    @staticmethod
    def forward(ctx, q, k, v, sinks, mask, scale):
        s = torch.matmul(q, k.transpose(-1, -2)).mul_(scale).add_(mask)
        sink = sinks.to(s.dtype).view(1, -1, 1, 1)
        top = torch.maximum(s.amax(-1, keepdim=True), sink)
        s.sub_(top).exp_()
        at_sink = (sink - top).float().exp()
        total = s.sum(-1, keepdim=True, dtype=torch.float32).add_(at_sink)
        s.mul_(total.reciprocal().to(s.dtype))
        out = torch.matmul(s, v)
        ctx.save_for_backward(q, k, v, s, at_sink / total, out)
        ctx.scale = scale
        return out

    @staticmethod
    def backward(ctx, grad):
        q, k, v, p, at_sink, out = ctx.saved_tensors
        delta = (grad.float() * out.float()).sum(-1, keepdim=True)
        dv = torch.matmul(p.transpose(-1, -2), grad)
        ds = torch.matmul(grad, v.transpose(-1, -2)).sub_(delta.to(p.dtype)).mul_(p)
        dq = torch.matmul(ds, k).mul_(ctx.scale)
        dk = torch.matmul(ds.transpose(-1, -2), q).mul_(ctx.scale)
        return dq, dk, dv, -(at_sink * delta).sum((0, 2, 3)), None, None


def exact_attention(q, k, v, sinks, mask, scale):
    """The same in plain operations, for comparisons."""
    s = torch.matmul(q, k.transpose(-1, -2)) * scale + mask
    sink = sinks.view(1, -1, 1, 1).expand(s.shape[0], -1, s.shape[2], 1)
    return torch.matmul(torch.cat((s, sink), -1).softmax(-1)[..., :-1], v)


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        self.closest_choices = None  # a list: each pass notes the closest choice among experts
        q, kv, n = c.heads * c.head_dim, c.kv_heads * c.head_dim, c.intermediate
        normal = lambda scale, *shape: nn.Parameter(torch.randn(*shape) * scale)
        zeros = lambda *shape: nn.Parameter(torch.zeros(*shape))
        self.norm1, self.norm2 = nn.Parameter(torch.ones(c.hidden)), nn.Parameter(torch.ones(c.hidden))
        wide = c.hidden ** -0.5
        self.q, self.k, self.v = normal(wide, q, c.hidden), normal(wide, kv, c.hidden), normal(wide, kv, c.hidden)
        self.o = normal(0.3 * q ** -0.5, c.hidden, q)
        self.q_bias, self.k_bias, self.v_bias, self.o_bias = zeros(q), zeros(kv), zeros(kv), zeros(c.hidden)
        self.sinks = zeros(c.heads)
        self.router, self.router_bias = normal(wide, c.experts, c.hidden), zeros(c.experts)
        self.gate_up, self.gate_up_bias = normal(wide, c.experts, 2 * n, c.hidden), zeros(c.experts, 2 * n)
        self.down, self.down_bias = normal(0.3 * n ** -0.5, c.experts, c.hidden, n), zeros(c.experts, c.hidden)

    def attend(self, x, cos, sin, mask, exact):
        c, (rows, length, _) = self.c, x.shape
        heads = lambda y, n: y.view(rows, length, n, c.head_dim).transpose(1, 2)
        y = rms(x, self.norm1, c.epsilon, exact)
        q = rotate(heads(linear(y, self.q, self.q_bias), c.heads), cos, sin)
        k = rotate(heads(linear(y, self.k, self.k_bias), c.kv_heads), cos, sin)
        v = heads(linear(y, self.v, self.v_bias), c.kv_heads)
        k, v = (t.repeat_interleave(c.heads // c.kv_heads, 1) for t in (k, v))
        attention = exact_attention if exact else Attention.apply
        out = attention(q, k, v, self.sinks, mask, c.head_dim ** -0.5)
        out = out.transpose(1, 2).reshape(rows, length, -1)
        return x + linear(out, self.o, self.o_bias)

    def experts(self, quantized, exact):
        """(gate_up, bias) and (down, bias) of each expert, in the precision of the computation."""
        rounded = mxfp4.Straight.apply if quantized else lambda w: w
        # unbind, not [e]: the gradient of an index is as large as the whole.
        parts = lambda *tensors: list(zip(*((t if exact else t.bfloat16()).unbind(0) for t in tensors)))
        return parts(rounded(self.gate_up), self.gate_up_bias), parts(rounded(self.down), self.down_bias)

    def mix(self, x, experts, exact):
        """x [N, hidden] -> the experts' sum, and the loss that keeps them equally busy."""
        c = self.c
        y = rms(x, self.norm2, c.epsilon, exact)
        logits = F.linear(y.float(), self.router, self.router_bias)
        top, chosen = logits.topk(c.experts_per_token, -1)
        if self.closest_choices is not None:
            best = logits.topk(c.experts_per_token + 1, -1).values
            self.closest_choices.append((best[:, -2] - best[:, -1]).min().item())
        weights = top.softmax(-1)
        order = chosen.flatten().argsort(stable=True)
        counts = torch.bincount(chosen.flatten(), minlength=c.experts)
        sizes = counts.tolist()
        inputs = y[order // c.experts_per_token].split(sizes)
        h = torch.cat([F.linear(i, w, b) for i, (w, b) in zip(inputs, experts[0])])
        gate, up = h[:, 0::2].clamp(max=c.limit), h[:, 1::2].clamp(-c.limit, c.limit)
        a = gate * torch.sigmoid(1.702 * gate) * (up + 1)
        out = torch.cat([F.linear(i, w, b) for i, (w, b) in zip(a.split(sizes), experts[1])])
        back = torch.empty_like(order)
        back[order] = torch.arange(order.numel())
        out = out[back].view(-1, c.experts_per_token, c.hidden)
        balance = c.experts * (logits.softmax(-1).mean(0) * counts / order.numel()).sum()
        return (out * weights.to(out.dtype).unsqueeze(-1)).sum(1), balance


def rms(x, gain, epsilon, exact):
    y = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + epsilon) * gain
    return y if exact else y.bfloat16()


def linear(x, weight, bias=None):
    """In the precision of x; weights are kept in float32."""
    return F.linear(x, weight.to(x.dtype), None if bias is None else bias.to(x.dtype))


def begin_with_copying(model):
    """Heads that could copy, to begin with: learnt from nothing they take longer than all the rest.

    Layer 0: heads look 1, 2, 3 tokens back. Later layers: what a head reads it writes back as it was, so
    that looking at a word makes it likely. In full layers the first group of heads looks for a token whose
    predecessor is the current token, in those dimensions that hardly rotate.
    """
    c, first = model.c, model.blocks[0]
    d, group = c.head_dim, c.heads // c.kv_heads
    pairs = torch.arange(d // 2)
    frequency = c.theta ** (-2.0 * pairs / d)
    amplitude = torch.where(pairs < 6, 5.0, 0.0)
    first.q.mul_(0.3)
    first.k.mul_(0.3)
    first.o.copy_(torch.randn_like(first.o) * c.hidden ** -0.5)
    first.o.view(c.hidden, c.heads, d)[:, 1:].mul_(0.3)  # the first head, one token back, matters most
    first.k_bias.view(c.kv_heads, d)[:, :d // 2] = amplitude
    for head in range(c.heads):
        back = 1 + head % group
        bias = first.q_bias.view(c.heads, d)[head]
        bias[:d // 2], bias[d // 2:] = amplitude * torch.cos(back * frequency), -amplitude * torch.sin(back * frequency)
    still = torch.cat((pairs >= 5, pairs >= 5))
    for i, block in enumerate(model.blocks[1:], 1):
        for head in range(c.heads):
            shared = head // group
            block.o[:, head * d:(head + 1) * d] = block.v[shared * d:(shared + 1) * d].t()
        if i % 2 == 1:
            for head in range(group):
                block.q[head * d:(head + 1) * d][still] = 1.4 * first.v[:d][still]
                block.q[head * d:(head + 1) * d][~still] *= 0.3
            block.k[:d][still] = 1.4 * first.o[:, :d].t()[still]


class Model(nn.Module):
    def __init__(self, config, words=None):
        """words: for each token a number, equal for tokens of the same word ("Anna", " Anna", " anna")."""
        super().__init__()
        c = self.c = config
        vectors = torch.randn(c.vocab_size, c.hidden)
        if words is not None:
            vectors = 0.6 * vectors + 0.8 * torch.randn(int(words.max()) + 1, c.hidden)[words]
        self.embedding = nn.Parameter(vectors * 0.5)
        self.blocks = nn.ModuleList(Block(c) for _ in range(c.layers))
        self.norm = nn.Parameter(torch.ones(c.hidden))
        # Untied, but alike at first: to copy a word is then easy to learn.
        self.head = nn.Parameter(vectors * 0.03)
        with torch.no_grad():
            begin_with_copying(self)

    def experts(self, quantized, exact=False):
        return [block.experts(quantized, exact) for block in self.blocks]

    def hidden_states(self, tokens, segments, positions, quantized=False, exact=False, taps=(), experts=None):
        """The residual stream behind the last block, the balance loss, and the stream behind `taps` blocks.

        `experts`: what experts() gave, for several batches with the same weights."""
        c = self.c
        experts = experts or self.experts(quantized, exact)
        cos, sin = (t.unsqueeze(1) for t in rotary_table(c, positions))
        full, near = masks_of(segments, positions, c.window)
        if not exact:
            cos, sin, full, near = (t.bfloat16() for t in (cos, sin, full, near))
        x, balance, tapped = F.embedding(tokens, self.embedding), 0.0, []
        real = (segments >= 0).flatten().nonzero().squeeze(1)
        for i, block in enumerate(self.blocks):
            x = block.attend(x, cos, sin, near if i % 2 == 0 else full, exact)
            flat = x.view(-1, c.hidden)
            mixed, one = block.mix(flat[real], experts[i], exact)
            x = flat.index_add(0, real, mixed.to(flat.dtype)).view(x.shape)
            balance = balance + one
            if i in taps:
                tapped.append(x)
        return x, balance / c.layers, tapped

    def record_closest_choices(self):
        """A list that every pass from here on adds to, once a block: the least gap between the router's logits of
        an expert that was taken and one that was not."""
        choices = []
        for block in self.blocks:
            block.closest_choices = choices
        return choices

    def logits(self, x, exact=False):
        return linear(rms(x, self.norm, self.c.epsilon, exact), self.head)
