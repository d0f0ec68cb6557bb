"""MXFP4: 32 weights of a row as four-bit floats with one shared power of two."""
import torch

VALUES = torch.tensor([0, .5, 1, 1.5, 2, 3, 4, 6, -0., -.5, -1, -1.5, -2, -3, -4, -6])
BLOCK = 32


def scales_of(blocks):
    """The smallest power of two with which the largest weight is at most 6 * 1.17 (it is then cut)."""
    largest = blocks.abs().amax(-1, keepdim=True).clamp_min(2.0 ** -60)
    return torch.exp2(torch.ceil(torch.log2(largest / 7.0)))


def rounded(weights):
    """The nearest values that MXFP4 can hold, in float32."""
    blocks = weights.reshape(*weights.shape[:-1], -1, BLOCK)
    scales = scales_of(blocks)
    x = blocks / scales
    size = x.abs()
    step = torch.where(size < 2, 0.5, torch.where(size < 4, 1.0, 2.0))
    return (torch.round(x / step) * step).clamp_(-6, 6).mul_(scales).reshape(weights.shape)


class Straight(torch.autograd.Function):
    """Rounds forward, lets gradients through."""

    @staticmethod
    def forward(ctx, weights):
        return rounded(weights)

    @staticmethod
    def backward(ctx, gradient):
        return gradient


def packed(weights):
    """blocks [..., columns/32, 16] and scales [..., columns/32], as the checkpoint has them."""
    values = rounded(weights).reshape(*weights.shape[:-1], -1, BLOCK)
    blocks = weights.reshape(values.shape)
    scales = scales_of(blocks)
    codes = (values / scales).unsqueeze(-1).sub(VALUES).abs()[..., :8].argmin(-1)
    negative = values < 0
    codes = torch.where(negative, (values.abs() / scales).unsqueeze(-1).sub(VALUES[:8]).abs().argmin(-1) + 8, codes)
    low, high = codes[..., 0::2], codes[..., 1::2]
    exponents = torch.log2(scales.squeeze(-1)).round().to(torch.int32) + 127
    return (low + high * 16).to(torch.uint8), exponents.to(torch.uint8)


def unpacked(blocks, scales):
    codes = torch.stack((blocks & 15, blocks >> 4), -1).reshape(*blocks.shape[:-1], BLOCK).long()
    values = VALUES[codes] * torch.exp2(scales.float() - 127).unsqueeze(-1)
    return values.reshape(*blocks.shape[:-2], -1)
