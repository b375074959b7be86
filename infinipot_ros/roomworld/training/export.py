"""Write the finished model as a folder that `from_pretrained` loads."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

from transformers import GenerationConfig, PreTrainedTokenizerFast

from infinipot_ros.roomworld.scenes import IMAGE_SIZE
from infinipot_ros.roomworld.training.architecture import FRAMES_PER_STEP, MERGE_SIZE, PATCH_SIZE


def export_model(model: Any, tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Write weights (float16), configuration, tokenizer and image preparation into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    half = copy.deepcopy(model).half()
    end = int(tokenizer.convert_tokens_to_ids("<|im_end|>"))
    padding = int(tokenizer.convert_tokens_to_ids("<|endoftext|>"))
    half.generation_config = GenerationConfig(
        do_sample=False, eos_token_id=end, pad_token_id=padding, max_new_tokens=8
    )
    half.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    # safetensors writes for the owner's eyes only; a package's files are read by everybody.
    (folder / "model.safetensors").chmod(0o644)
    preparation = {
        "image_processor_type": "Qwen2VLImageProcessor",
        "do_resize": True,
        # An exact size, not a pixel budget: the model was trained at this one only.
        "size": {"height": IMAGE_SIZE, "width": IMAGE_SIZE},
        "do_rescale": True,
        "rescale_factor": 1.0 / 255.0,
        "do_normalize": True,
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
        "patch_size": PATCH_SIZE,
        "temporal_patch_size": FRAMES_PER_STEP,
        "merge_size": MERGE_SIZE,
    }
    (folder / "preprocessor_config.json").write_text(
        json.dumps(preparation, indent=2) + "\n", encoding="utf-8"
    )
