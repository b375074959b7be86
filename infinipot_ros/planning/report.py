"""A plan as text for people and as JSON for machines."""

from __future__ import annotations

from typing import Any

from infinipot_ros.planning.plan import Plan
from infinipot_ros.planning.sizes import format_bytes

_LABEL, _VALUE = 18, 14


def as_text(plans: list[Plan]) -> str:
    """Return a plan in lines of label, value with unit, and meaning.

    Args:
        plans: of the same model and load, for 1, 2, ... cameras; all figures are of the last.
    """
    plan = plans[-1]
    load, step, text = plan.load, plan.step, plan.files.figures.text
    weights = f"{plan.parameters / 1e9:.3g} billion parameters, {plan.dtype}"
    if load.quantization:
        weights += f", layers of the language model in {load.quantization}"
    rows = [
        ("weights", format_bytes(plan.weights), weights),
        ("a token", f"{plan.token:,} B", "its keys and values, over all layers and heads"),
        ("", f"{plan.provenance:,} B", "and where it comes from"),
        ("a step", f"{step.tokens:,} tokens", _step(plan)),
        ("cache", format_bytes(plan.cache), f"of a camera at the cap of {load.cap:,} tokens"),
        ("policy", format_bytes(plan.state), "what it remembers of a camera's tokens"),
        ("rotation tables", format_bytes(plan.tables), "at most, one for all cameras"),
        ("a block", format_bytes(plan.block), "at its peak: encoding, compressing, prefill"),
        ("a question", format_bytes(plan.question), "at its peak; block and question take turns"),
    ]
    if load.device_memory:
        rows.append(("runtime", format_bytes(plan.runtime), "of CUDA: a rule of thumb"))
    rows += [_total(each) for each in plans]
    rows += [
        ("the cap spans", f"{plan.frames:,} frames", f"as they come, at {load.fps:g} a second"),
        ("", _duration(plan.seconds), "after which older steps are thinned, never all dropped"),
        ("one hour", format_bytes(plan.full_cache), "of one camera with a cache that keeps all"),
        ("positions", f"{text.positions:,}", "the model was made for"),
    ]
    if plan.largest_cap is not None:
        rows.append(_largest(plan))
    lines = [f"{plan.files.name}  ({plan.files.origin})"]
    lines += [f"  {label:{_LABEL}}{value:>{_VALUE}}  {meaning}" for label, value, meaning in rows]
    return "\n".join([*lines, *(f"note: {note}" for note in plan.notes)])


def as_dict(plan: Plan) -> dict[str, Any]:
    """Return the same figures for machines: bytes, tokens, frames, seconds."""
    return {
        "model": plan.files.name,
        "origin": plan.files.origin,
        "family": plan.files.figures.family,
        "dtype": plan.dtype,
        "quantization": plan.load.quantization,
        "parameters": plan.parameters,
        "cap_tokens": plan.load.cap,
        "cameras": plan.load.cameras,
        "fps": plan.load.fps,
        "max_dialogue_tokens": plan.load.max_dialogue_tokens,
        "block_steps": plan.load.block_steps,
        "step_tokens": plan.step.tokens,
        "step_text_tokens": plan.step.text,
        "step_frames": plan.step.frames,
        "step_pixels": plan.step.pixels,
        "token_bytes": plan.token,
        "provenance_bytes": plan.provenance,
        "weights_bytes": plan.weights,
        "cache_bytes": plan.cache,
        "policy_bytes": plan.state,
        "tables_bytes": plan.tables,
        "encode_peak_bytes": plan.encode,
        "block_peak_bytes": plan.block,
        "question_peak_bytes": plan.question,
        "runtime_bytes": plan.runtime,
        "total_bytes": plan.total,
        "device_bytes": plan.load.device_memory or None,
        "fits": plan.fits,
        "largest_cap_tokens": plan.largest_cap,
        "span_frames": plan.frames,
        "span_seconds": plan.seconds,
        "full_cache_hour_bytes": plan.full_cache,
        "positions": plan.files.figures.text.positions,
        "notes": list(plan.notes),
    }


def _step(plan: Plan) -> str:
    step = plan.step
    frames = "a frame" if step.frames == 1 else f"{step.frames} frames"
    text = f", {step.text} of them text" if step.text else ""
    pixels = f" of {step.pixels:,} pixels" if step.pixels else ""
    return f"at most: {frames}{pixels}{text}"


def _total(plan: Plan) -> tuple[str, str, str]:
    cameras = "1 camera" if plan.load.cameras == 1 else f"{plan.load.cameras} cameras"
    meaning = "all of the above"
    if plan.fits is not None:
        device = format_bytes(plan.load.device_memory)
        left = plan.load.device_memory - plan.total
        if not plan.fits:
            meaning = f"does not fit in {device}: {format_bytes(-left)} too much"
        elif left < plan.load.device_memory / 10:
            meaning = f"fits, but only {format_bytes(left)} of {device} are left: a tenth should be"
        else:
            meaning = f"OK, {format_bytes(left)} of {device} are left"
    return (cameras, format_bytes(plan.total), meaning)


def _largest(plan: Plan) -> tuple[str, str, str]:
    if not plan.largest_cap:
        return ("largest cap", "none", "no cap of two blocks fits: smaller weights are needed")
    cameras = "the camera" if plan.load.cameras == 1 else f"each of {plan.load.cameras} cameras"
    return ("largest cap", f"{plan.largest_cap:,} tokens", f"that just fits, for {cameras}")


def _duration(seconds: float) -> str:
    return f"{seconds / 60:.1f} min" if seconds >= 60 else f"{seconds:.0f} s"
