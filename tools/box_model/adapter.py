"""A LoRA adapter on the model in torch, and its folder in PEFT's layout (there is no PEFT in Debian).

y = W x + s B (A x) on queries, keys, values, outputs, and both matrices of every expert.
"""
import json
import os

import torch
from torch import nn

import checkpoint_io

ATTENTION, EXPERTS = ("q", "k", "v", "o"), ("gate_up", "down")


class Adapter(nn.Module):
    """`put_on` writes W + s B A over a model's matrices before each step; its gradients reach A and B alone."""

    def __init__(self, model, rank, alpha):
        super().__init__()
        self.rank, self.alpha = rank, alpha
        self.bases = [{name: getattr(block, name).detach() for name in ATTENTION + EXPERTS} for block in model.blocks]
        self.a, self.b = nn.ParameterDict(), nn.ParameterDict()
        for layer, base in enumerate(self.bases):
            for name, weights in base.items():
                *experts, rows, columns = weights.shape  # both kinds are (…, out, in) here
                self.a["%d %s" % (layer, name)] = nn.Parameter(torch.randn(*experts, rank, columns) * columns ** -0.5)
                self.b["%d %s" % (layer, name)] = nn.Parameter(torch.zeros(*experts, rows, rank))

    def put_on(self, model):
        for layer, (block, base) in enumerate(zip(model.blocks, self.bases)):
            for name, weights in base.items():
                block._parameters.pop(name, None)
                key = "%d %s" % (layer, name)
                setattr(block, name, weights + self.alpha / self.rank * (self.b[key] @ self.a[key]))

    def tensors(self):
        """PEFT's names and orders, in bf16."""
        out = {}
        for layer in range(len(self.bases)):
            prefix = "base_model.model.model.layers.%d." % layer
            for name in ATTENTION:
                module = prefix + "self_attn.%s_proj." % name
                out[module + "lora_A.weight"] = self.a["%d %s" % (layer, name)].detach().bfloat16()
                out[module + "lora_B.weight"] = self.b["%d %s" % (layer, name)].detach().bfloat16()
            # Two wrapped parameters of one module: the first, gate_up, lies within the other.
            for name, module in (("gate_up", prefix + "mlp.experts.base_layer."), ("down", prefix + "mlp.experts.")):
                a, b = self.a["%d %s" % (layer, name)].detach(), self.b["%d %s" % (layer, name)].detach()
                out[module + "lora_A.weight"] = expert_first(a).bfloat16()
                out[module + "lora_B.weight"] = rank_first(b).bfloat16()
        return dict(sorted(out.items()))

    def save(self, folder, base_name):
        os.makedirs(folder, exist_ok=True)
        checkpoint_io.write_json(os.path.join(folder, "adapter_config.json"), {
            "base_model_name_or_path": base_name, "bias": "none", "fan_in_fan_out": False, "inference_mode": True, "lora_alpha": self.alpha,
            "lora_dropout": 0.0, "modules_to_save": None, "peft_type": "LORA", "r": self.rank,
            "target_modules": [name + "_proj" for name in ATTENTION],
            "target_parameters": ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"], "task_type": "CAUSAL_LM",
            "use_dora": False, "use_rslora": False})
        checkpoint_io.write_safetensors(os.path.join(folder, "adapter_model.safetensors"), self.tensors())


def expert_first(a):
    """[E, r, in] -> [E r, in]: row e r + rho."""
    return a.reshape(-1, a.shape[-1])


def rank_first(b):
    """[E, out, r] -> [out, r E]: column rho E + e."""
    return b.permute(1, 2, 0).reshape(b.shape[1], -1)


def load_onto(model, folder):
    """The model with the folder's adapter added to its matrices, as PEFT would read it: rows of A by experts, columns of B by ranks."""
    with open(os.path.join(folder, "adapter_config.json"), encoding="utf-8") as file:
        config = json.load(file)
    tensors = checkpoint_io.read_safetensors(os.path.join(folder, "adapter_model.safetensors"))
    scale, rank = config["lora_alpha"] / config["r"], config["r"]
    with torch.no_grad():
        for layer, block in enumerate(model.blocks):
            prefix = "base_model.model.model.layers.%d." % layer
            part = lambda module, which: tensors[prefix + module + "lora_%s.weight" % which].float()
            for name in ATTENTION:
                module = "self_attn.%s_proj." % name
                getattr(block, name).add_(scale * (part(module, "B") @ part(module, "A")))
            for name, module in (("gate_up", "mlp.experts.base_layer."), ("down", "mlp.experts.")):
                weights = getattr(block, name)
                experts = weights.shape[0]
                a = part(module, "A").view(experts, rank, -1)
                b = part(module, "B").view(-1, rank, experts)
                weights.add_(scale * torch.einsum("ore,eri->eoi", b, a))
    return model
