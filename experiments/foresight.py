"""What can be said before a comparison runs: that its effect can't show, and which setting would show it.

Knows the registry and the spec, no engine: it is asked before anything is loaded.
"""

from __future__ import annotations

from experiments.spec import CompareSpec

OF_DRAFTS = ("num_draft_tokens", "draft_control", "draft_model")
REPEATING = ("copy", "code")  # workloads whose answers repeat their prompts


def foreseen(spec: CompareSpec) -> list[str]:
    """Warnings about a comparison, each with the setting that would show the effect; empty when nothing speaks against
    it."""
    if spec.endpoints is not None:  # what a server is set to is not known
        return []
    looks = (_without_drafts, _look_up, _switched_off, _no_device_apart, _shared_cores)
    return [warning for look in looks for warning in look(spec)]


def _without_drafts(spec: CompareSpec) -> list[str]:
    if spec.variable in OF_DRAFTS and spec.settings.get("speculation", "off") == "off":
        return [f"{spec.variable} changes nothing with speculation=off; --set speculation=ngram would show it"]
    return []


def _look_up(spec: CompareSpec) -> list[str]:
    if "ngram" in _values(spec, "speculation") and spec.workload not in REPEATING:
        return [
            f"a look-up finds little where answers repeat nothing of their prompt, as in the workload {spec.workload}; "
            "--workload copy would show its gain"
        ]
    return []


def _switched_off(spec: CompareSpec) -> list[str]:
    """Adaptive control hides a loss: it stops drafting where that is seen to be slower."""
    drafting = any(value != "off" for value in _values(spec, "speculation"))
    if drafting and spec.variable == "speculation" and "adaptive" in _values(spec, "draft_control"):
        return [
            "draft_control=adaptive stops drafting where it does not pay, so a loss shows as no difference; "
            "--set draft_control=fixed would show it"
        ]
    return []


def _no_device_apart(spec: CompareSpec) -> list[str]:
    if spec.variable != "overlap":
        return []
    from core_engine.environment import cuda_is_here

    if cuda_is_here() and "cpu" not in _values(spec, "device"):
        return []
    return ["overlap changes nothing on a CPU, where the host itself computes; --set device=cuda would show it"]


def _shared_cores(spec: CompareSpec) -> list[str]:
    if spec.variable not in ("tensor_parallel", "pipeline_parallel"):
        return []
    from core_engine.environment import cuda_is_here

    if cuda_is_here() and "cpu" not in _values(spec, "device"):
        return []
    return [
        "ranks share the cores that one process has, so a split adds its price and no arithmetic here; "
        "--set device=cuda with a GPU for each rank would show its gain"
    ]


def _values(spec: CompareSpec, name: str) -> tuple[object, ...]:
    """What a variable is in the two arms."""
    return tuple(config.settings()[name] for config in spec.configs())


def never_drafted(counters: dict[str, object]) -> bool:
    """Whether a finished arm with speculation never proposed a token, so that nothing of it could show."""
    return counters.get("tokens_per_pass") is not None and not counters.get("drafted_tokens")
