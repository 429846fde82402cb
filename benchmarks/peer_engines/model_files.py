"""The embedded model's weights in the form that each engine reads, written once from the one shipped file."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from core_engine.model.embedded import CONVERSION, GGUF_SHA256, embedded_directory, ensure_embedded, find_gguf

# (name, what llama.cpp calls it in llama_ftype)
QUANTIZED = {"q8_0": "LLAMA_FTYPE_MOSTLY_Q8_0", "q4_0": "LLAMA_FTYPE_MOSTLY_Q4_0"}
_QUANTIZE = """
import ctypes, sys, llama_cpp
params = llama_cpp.llama_model_quantize_default_params()
params.ftype = getattr(llama_cpp, sys.argv[3])
sys.exit(llama_cpp.llama_model_quantize(sys.argv[1].encode(), sys.argv[2].encode(), ctypes.byref(params)))
"""


def folder(root: Path) -> Path:
    """Where the files of this model and conversion are."""
    return root / f"model-{GGUF_SHA256[:12]}-v{CONVERSION}"


def path_of(root: Path, form: str) -> Path:
    """The file or directory of a form: hf-bf16, bf16, q8_0, q4_0 or shipped."""
    if form == "shipped":
        return find_gguf()
    return folder(root) / (form if form == "hf-bf16" else f"{form}.gguf")


def write_all(root: Path, llama_python: Path | None, report: Callable[[str], None]) -> None:
    """Write what is not there; the quantized files only where llama.cpp can write them (`llama_python`)."""
    folder(root).mkdir(parents=True, exist_ok=True)
    steps: dict[str, Callable[[Path], None]] = {"hf-bf16": _write_directory, "bf16": _write_gguf}
    if llama_python is not None:
        for form, ftype in QUANTIZED.items():
            steps[form] = lambda part, ftype=ftype: _quantize(llama_python, path_of(root, "bf16"), part, ftype)
    for form, write in steps.items():
        target = path_of(root, form)
        if not target.exists():
            report(f"Writing {target.name}")
            part = target.with_name(f"part-{target.name}")
            shutil.rmtree(part, ignore_errors=True)
            write(part)
            part.rename(target)


def _write_directory(target: Path) -> None:
    """config.json, bf16 safetensors and tokenizer files, as transformers and vLLM read them."""
    import torch
    from safetensors.torch import load_file, save_file

    source = ensure_embedded()
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("*.safetensors"))
    weights = load_file(embedded_directory() / "model.safetensors")
    save_file({n: w.to(torch.bfloat16) for n, w in weights.items()}, target / "model.safetensors", {"format": "pt"})
    config = json.loads((source / "config.json").read_text("utf-8"))
    (target / "config.json").write_text(json.dumps(config | {"torch_dtype": "bfloat16"}, indent=1), "utf-8")


def _write_gguf(target: Path) -> None:
    """The shipped file with every matrix in BF16 and every vector in F32; metadata, names and row order stay."""
    from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter, LlamaFileType, dequantize, quantize

    reader = GGUFReader(find_gguf())
    writer = GGUFWriter(target, str(reader.fields["general.architecture"].contents()))
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name in ("general.architecture", "general.file_type"):
            continue
        inner = field.types[-1] if field.types[0] == GGUFValueType.ARRAY else None
        writer.add_key_value(name, field.contents(), field.types[0], sub_type=inner)
    writer.add_file_type(LlamaFileType.MOSTLY_BF16)
    for tensor in reader.tensors:
        values = dequantize(tensor.data, tensor.tensor_type).reshape(list(map(int, reversed(tensor.shape))))
        form = GGMLQuantizationType.BF16 if values.ndim > 1 else GGMLQuantizationType.F32
        writer.add_tensor(tensor.name, quantize(values, form), raw_dtype=form)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _quantize(python: Path, source: Path, target: Path, ftype: str) -> None:
    subprocess.run([python, "-c", _QUANTIZE, source, target, ftype], check=True, capture_output=True)
