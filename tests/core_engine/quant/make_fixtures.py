"""Makes fixtures/: one-layer Llama checkpoints whose linear layers were packed by the libraries themselves.

Run once, by hand: python tests/core_engine/quant/make_fixtures.py. It makes a virtual environment beside this one's
packages, puts the libraries of LIBRARIES there without what they depend on, and imports of each the module that packs.
Every fixture is NAME.safetensors (what the library wrote), NAME.json (its config.json, and the versions) and
NAME-values.safetensors: the weights [out, in] as the library itself reads them back.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import types
import zipfile
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

HERE = Path(__file__).parent / "fixtures"
LIBRARIES = ("autoawq==0.2.9", "auto-gptq==0.7.1", "compressed-tensors==0.20.1", "loguru==0.7.3")
HIDDEN, INNER, GROUP = 64, 96, 32
SHAPES = {
    **{f"self_attn.{name}_proj": (HIDDEN, HIDDEN) for name in "qkvo"},
    "mlp.gate_proj": (INNER, HIDDEN),
    "mlp.up_proj": (INNER, HIDDEN),
    "mlp.down_proj": (HIDDEN, INNER),
}
CONFIG = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": HIDDEN, "intermediate_size": INNER,
    "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 256,
    "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "tie_word_embeddings": True, "eos_token_id": 0,
    "hidden_act": "silu",
}  # fmt: skip


def weight(name: str) -> torch.Tensor:
    """Random [out, in]; in some rows all weights are above, in some all below 0: zero points of 0 and 15."""
    made = torch.randn(SHAPES[name], generator=torch.Generator().manual_seed(len(name))) * 0.2
    made[0::8] = made[0::8].abs() + 0.05
    made[1::8] = -made[1::8].abs() - 0.05
    return made


def grid(values: torch.Tensor, bits: int, group: int, symmetric: bool, lowest_zero: int = 0) -> tuple[Any, Any]:
    """(scales, zeros) [out, groups] float32 as a quantizer hands them to a packer."""
    groups = values.view(len(values), -1, group)
    high = 2**bits - 1
    if symmetric:
        scales = (groups.abs().amax(-1) / (high / 2)).half().float()
        return scales, torch.full_like(scales, 2 ** (bits - 1))
    low, top = groups.amin(-1).clamp(max=0), groups.amax(-1).clamp(min=0)
    scales = ((top - low) / high).half().float()
    return scales, (-low / scales).round().clamp(lowest_zero, high)


def stub(name: str, path: Path) -> None:
    """A package of that name whose own __init__ is not run: it would want a model library of another version."""
    module = types.ModuleType(name)
    module.__path__ = [str(path)]
    sys.modules[name] = module


def awq(name: str) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    from awq.modules.linear.gemm import WQLinear_GEMM
    from awq.utils.packing_utils import dequantize_gemm

    linear = torch.nn.Linear(*reversed(SHAPES[name]), bias=False)
    linear.weight.data = weight(name)
    scales, zeros = grid(linear.weight.data, 4, GROUP, symmetric=False)
    made = WQLinear_GEMM.from_linear(linear, 4, GROUP, scales=scales.t().contiguous(), zeros=zeros.t().contiguous())
    values = dequantize_gemm(made.qweight, made.qzeros, made.scales.float(), 4, GROUP).t()
    return {part: getattr(made, part) for part in ("qweight", "qzeros", "scales")}, values


def gptq(name: str, bits: int, desc_act: bool, symmetric: bool) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    from auto_gptq.nn_modules.qlinear.qlinear_cuda import QuantLinear

    out, depth = SHAPES[name]
    linear = torch.nn.Linear(depth, out, bias=False)
    linear.weight.data = weight(name)
    # This version packs a zero point of 0 as all ones into its neighbours too: its own checkpoints begin at 1.
    order = torch.randperm(depth, generator=torch.Generator().manual_seed(3)) if desc_act else torch.arange(depth)
    scales, zeros = grid(linear.weight.data[:, order].contiguous(), bits, GROUP, symmetric, lowest_zero=1)
    group_of = torch.empty(depth, dtype=torch.int32)
    group_of[order] = (torch.arange(depth) // GROUP).int()
    made = QuantLinear(bits, GROUP, depth, out, bias=False, weight_dtype=torch.float32)
    made.pack(linear, scales.clone(), zeros.clone(), group_of)
    made.autogptq_cuda_available = False
    with torch.no_grad():
        values = made(torch.eye(depth)).t()
    tensors = {part: getattr(made, part) for part in ("qweight", "qzeros", "scales", "g_idx")}
    return {**tensors, "scales": tensors["scales"].half()}, values


def compressed(name: str, form: str, scheme: Any) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    from compressed_tensors.compressors import BaseCompressor

    values = weight(name)
    weights = scheme.weights
    group = weights.group_size or values.shape[1]
    scales, zeros = grid(values, weights.num_bits, group, weights.symmetric)
    state = {"weight": values, "weight_scale": scales}
    if not weights.symmetric:
        state["weight_zero_point"] = (zeros - 2 ** (weights.num_bits - 1)).to(torch.int8)
    compressor = BaseCompressor.get_value_from_registry(form)
    packed = compressor.compress(state, scheme)
    back = compressor.decompress(packed, scheme)["weight"]
    return {**packed, "weight_scale": packed["weight_scale"].half()}, back


def compressed_config(form: str, **arguments: Any) -> tuple[dict[str, Any], Any]:
    """(quantization_config, scheme) with the weights' arguments; activations=True adds dynamic int8 for each token."""
    from compressed_tensors.quantization import QuantizationArgs, QuantizationConfig, QuantizationScheme

    inputs = (
        QuantizationArgs(num_bits=8, strategy="token", dynamic=True) if arguments.pop("activations", False) else None
    )
    scheme = QuantizationScheme(targets=["Linear"], weights=QuantizationArgs(**arguments), input_activations=inputs)
    whole = QuantizationConfig(config_groups={"group_0": scheme}, format=form, ignore=["lm_head"])
    return json.loads(whole.model_dump_json()), scheme


def write(name: str, version: str, settings: dict[str, Any], pack: Any) -> None:
    """One fixture: every linear layer through `pack`, and the plain rest of the model."""
    tensors, values = {}, {}
    for module in SHAPES:
        parts, values[module] = pack(module)
        tensors |= {f"model.layers.0.{module}.{part}": tensor.contiguous() for part, tensor in parts.items()}
    random = torch.Generator().manual_seed(1)
    tensors["model.embed_tokens.weight"] = torch.randn(256, HIDDEN, generator=random).half()
    for norm in ("layers.0.input_layernorm", "layers.0.post_attention_layernorm", "norm"):
        tensors[f"model.{norm}.weight"] = (1 + 0.1 * torch.randn(HIDDEN, generator=random)).half()
    save_file(tensors, HERE / f"{name}.safetensors", metadata={"format": "pt", "made_by": version})
    save_file(
        {module: value.float().contiguous() for module, value in values.items()}, HERE / f"{name}-values.safetensors"
    )
    config = {**CONFIG, "quantization_config": settings}
    (HERE / f"{name}.json").write_text(json.dumps({"made_by": version, "config": config}, indent=1) + "\n")


def make(libraries: Path) -> None:
    """All fixtures; runs inside the environment that has the libraries."""
    for package, *inner in (("awq", "modules", "modules.linear"), ("auto_gptq", "nn_modules", "nn_modules.qlinear")):
        root = next(libraries.glob(f"**/{package}"))
        for name in ("", *inner):
            stub(".".join(filter(None, (package, name))), root.joinpath(*name.split(".")) if name else root)
    HERE.mkdir(exist_ok=True)
    common = {"quant_method": "awq", "bits": 4, "group_size": GROUP, "zero_point": True, "version": "gemm"}
    write("awq", "autoawq 0.2.9", common, awq)
    for name, bits, desc_act, symmetric in (("gptq", 4, True, False), ("gptq-8bit", 8, False, True)):
        settings = {"quant_method": "gptq", "bits": bits, "group_size": GROUP, "desc_act": desc_act, "sym": symmetric}
        write(name, "auto-gptq 0.7.1", settings, lambda m, args=(bits, desc_act, symmetric): gptq(m, *args))
    for name, form, arguments in (
        ("ct-w4a16", "pack-quantized", {"num_bits": 4, "strategy": "group", "group_size": GROUP}),
        ("ct-w4a16-asym", "pack-quantized",
         {"num_bits": 4, "strategy": "group", "group_size": GROUP, "symmetric": False}),
        ("ct-w8a16", "pack-quantized", {"num_bits": 8, "strategy": "channel"}),
        ("ct-w8a8", "int-quantized", {"num_bits": 8, "strategy": "channel", "activations": True}),
    ):  # fmt: skip
        settings, scheme = compressed_config(form, **arguments)
        write(name, "compressed-tensors 0.20.1", settings, lambda m, f=form, s=scheme: compressed(m, f, s))


def main() -> None:
    """Make the environment and run `make` in it."""
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        subprocess.run([sys.executable, "-m", "venv", root / "venv"], check=True)
        (own,) = (root / "venv").glob("lib/python*/site-packages")
        (own / "parent.pth").write_text("\n".join(path for path in sys.path if path.endswith("site-packages")))
        pip = [root / "venv/bin/python", "-m", "pip", "-q"]
        subprocess.run([*pip, "install", "--no-deps", *LIBRARIES[2:]], check=True)
        subprocess.run([*pip, "download", "--no-deps", "-d", root / "files", *LIBRARIES[:2]], check=True)
        for wheel in (root / "files").glob("*.whl"):
            zipfile.ZipFile(wheel).extractall(root / "files")
        for archive in (root / "files").glob("*.tar.gz"):
            subprocess.run(["tar", "xzf", archive, "-C", root / "files"], check=True)
        subprocess.run([root / "venv/bin/python", __file__, root / "files"], check=True)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        make(Path(sys.argv[1]))
    else:
        main()
