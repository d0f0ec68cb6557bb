"""Writes a state dict as torch.save() does, without torch: for tests. The pickle is CPython's own, of protocol 2, with
classes of torch's names; the archive is stored, its data at multiples of 64.

As a program: torch_state.py IN.safetensors OUT.bin
"""
import collections
import io
import json
import math
import pathlib
import pickle
import struct
import sys
import types
import zipfile

SIZES = {"F32": 4, "F16": 2, "BF16": 2, "F64": 8, "I64": 8}
STORAGES = {"F32": "FloatStorage", "F16": "HalfStorage", "BF16": "BFloat16Storage", "F64": "DoubleStorage", "I64": "LongStorage"}


class Storage:
    def __init__(self, kind, key, elements):
        self.kind, self.key, self.elements = kind, key, elements


class Tensor:
    """`offset` and `strides` in elements."""

    def __init__(self, storage, offset, shape, strides):
        self.storage, self.offset, self.shape, self.strides = storage, offset, tuple(shape), tuple(strides)

    def __reduce_ex__(self, protocol):
        return sys.modules["torch._utils"]._rebuild_tensor_v2, (self.storage, self.offset, self.shape, self.strides, False,
                                                                collections.OrderedDict())


def _modules():
    torch, utils = types.ModuleType("torch"), types.ModuleType("torch._utils")

    def _rebuild_tensor_v2(*arguments):
        raise AssertionError("nothing is loaded here")

    _rebuild_tensor_v2.__module__, _rebuild_tensor_v2.__qualname__ = "torch._utils", "_rebuild_tensor_v2"
    utils._rebuild_tensor_v2 = _rebuild_tensor_v2
    torch._utils = utils
    for name in STORAGES.values():
        setattr(torch, name, type(name, (), {"__module__": "torch"}))
    return {"torch": torch, "torch._utils": utils}


class _Pickler(pickle.Pickler):
    def persistent_id(self, value):
        if not isinstance(value, Storage):
            return None
        return "storage", getattr(sys.modules["torch"], STORAGES[value.kind]), value.key, "cpu", value.elements


def strides_of(shape):
    return [math.prod(shape[i + 1:]) for i in range(len(shape))]


def pickled(state):
    """`state`: name -> Tensor, or anything else that is picklable."""
    before = {name: sys.modules.get(name) for name in ("torch", "torch._utils")}
    sys.modules.update(_modules())
    try:
        out = io.BytesIO()
        _Pickler(out, protocol=2).dump(state)
        return out.getvalue()
    finally:
        for name, module in before.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module


def write_archive(path, pickle_bytes, storages, folder="archive"):
    """`storages`: key -> bytes."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        def add(name, data):
            info = zipfile.ZipInfo(f"{folder}/{name}", date_time=(1980, 1, 1, 0, 0, 0))
            header = 30 + len(info.filename) + 4
            padding = -(archive.start_dir + header) % 64
            info.extra = b"FB" + struct.pack("<H", padding) + b"Z" * padding
            archive.writestr(info, data)
        add("data.pkl", pickle_bytes)
        add("byteorder", b"little")
        for key, data in storages.items():
            add(f"data/{key}", data)
        add("version", b"3\n")


def write_state(path, tensors):
    """`tensors`: name -> (dtype as safetensors calls it, shape, bytes)."""
    state, storages = collections.OrderedDict(), {}
    for i, (name, (kind, shape, data)) in enumerate(tensors.items()):
        storages[str(i)] = data
        state[name] = Tensor(Storage(kind, str(i), len(data) // SIZES[kind]), 0, shape, strides_of(shape))
    # As torch.nn.Module.state_dict() has it.
    state._metadata = collections.OrderedDict([("", {"version": 1})])
    write_archive(path, pickled(state), storages)


def read_safetensors(path):
    data = pathlib.Path(path).read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    return {name: (one["dtype"], one["shape"], data[8 + size + one["data_offsets"][0]:8 + size + one["data_offsets"][1]])
            for name, one in header.items() if name != "__metadata__"}


if __name__ == "__main__":
    write_state(sys.argv[2], read_safetensors(sys.argv[1]))
