"""Muon for matrices (the orthogonalised momentum), AdamW for the rest."""
import torch


def orthogonalised(matrices):
    """Newton-Schulz towards U V^T for a stack of matrices [n, rows, columns], in bf16."""
    x = matrices.bfloat16()
    turned = x.shape[1] > x.shape[2]
    if turned:
        x = x.transpose(1, 2)
    x = x / (x.float().flatten(1).norm(dim=1).view(-1, 1, 1) + 1e-7).bfloat16()
    for _ in range(5):
        a = torch.bmm(x, x.transpose(1, 2))
        b = torch.baddbmm(a, a, a, beta=-4.7750, alpha=2.0315)
        x = torch.baddbmm(x, b, x, beta=3.4445)
    return x.transpose(1, 2) if turned else x


class Muon:
    """params: tensors [rows, columns] or [n, rows, columns]."""

    def __init__(self, params, momentum=0.95):
        self.params, self.momentum = params, momentum
        self.buffers = [torch.zeros_like(p) for p in params]

    @torch.no_grad()
    def step(self, rate):
        groups = {}
        for p, buffer in zip(self.params, self.buffers):
            buffer.mul_(self.momentum).add_(p.grad)
            update = p.grad + self.momentum * buffer
            groups.setdefault(tuple(p.shape[-2:]), []).append((p, update.view(-1, *p.shape[-2:])))
        for (rows, columns), members in groups.items():
            # One expert at a time keeps the stacks in the cache.
            stack = torch.cat([u for _, u in members])
            done = torch.cat([orthogonalised(part) for part in stack.split(16)]).float()
            scale = rate * max(1.0, rows / columns) ** 0.5
            for (p, u), new in zip(members, done.split([len(u) for _, u in members])):
                p.sub_(new.reshape(p.shape), alpha=scale)

    def state_dict(self):
        return self.buffers

    def load_state_dict(self, buffers):
        self.buffers = buffers


def split_parameters(model):
    """(matrices for Muon, biases of queries and keys, the rest)"""
    muon, biases, rest = [], [], []
    for name, p in model.named_parameters():
        last = name.rsplit(".", 1)[-1]
        if last in ("q", "k", "v", "o", "gate_up", "down"):
            muon.append(p)
        else:
            (biases if last in ("q_bias", "k_bias") else rest).append(p)
    return muon, biases, rest
