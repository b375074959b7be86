"""Text of a step stays while a patch of it does, whatever the policy chose."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from infinipot_ros.compression.step_text import with_step_text


@st.composite
def _memories(draw):
    """Steps of one head with text before and after their patches, and what a policy chose."""
    n_heads = draw(st.integers(1, 3))
    sizes = draw(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5), st.integers(0, 2)),
                          min_size=1, max_size=7))  # fmt: skip
    steps, text = [], []
    for number, (before, patches, after) in enumerate(sizes):
        steps += [3 * number] * (before + patches + after)
        text += [True] * before + [False] * patches + [True] * after
    n_tokens = len(steps)
    keep = draw(st.integers(0, n_tokens))
    orders = [draw(st.permutations(range(n_tokens))) for _ in range(n_heads)]
    slots = torch.tensor([sorted(order[:keep]) for order in orders], dtype=torch.int64)
    shape = (1, n_heads, n_tokens)
    return (
        slots.view(1, n_heads, keep),
        torch.tensor(steps).expand(shape),
        torch.tensor(text).expand(shape),
    )


def _naive(slots, steps, text):
    """The rules of `with_step_text`, one head at a time, with lists."""
    keep = len(slots)
    chosen = {int(slot) for slot in slots if not text[slot]}
    counts = {}
    for slot in chosen:
        counts[int(steps[slot])] = counts.get(int(steps[slot]), 0) + 1
    every = range(len(steps))
    queue, whole = [], []
    for step in sorted({int(step) for step in steps}, reverse=True):
        if any(steps[i] == step and not text[i] and i not in chosen for i in every):
            break
        if step in counts:
            whole.append(step)
    for step in whole + sorted(set(counts) - set(whole), key=lambda step: (-counts[step], -step)):
        queue += [i for i in every if steps[i] == step and text[i]]
        queue += [i for i in every if steps[i] == step and i in chosen]
    for step in sorted(counts, reverse=True):
        queue += [i for i in every if steps[i] == step and not text[i] and i not in chosen]
    for step in sorted({int(step) for step in steps} - set(counts), reverse=True):
        queue += [i for i in every if steps[i] == step and text[i]]
        queue += [i for i in every if steps[i] == step and not text[i]]
    return sorted(queue[:keep])


@settings(max_examples=300, deadline=None)
@given(_memories())
def test_it_equals_the_rules_and_keeps_its_promise(memory):
    slots, steps, text = memory
    found = with_step_text(slots, steps, text)
    assert found.shape == slots.shape
    for head in range(slots.shape[1]):
        kept = found[0, head].tolist()
        assert kept == _naive(slots[0, head], steps[0, head].tolist(), text[0, head].tolist())
        for slot in kept:
            if not text[0, head, slot]:
                own = (steps[0, head] == steps[0, head, slot]) & text[0, head]
                assert set(own.nonzero().flatten().tolist()) <= set(kept)


def test_what_already_holds_is_left_alone():
    steps = torch.tensor([0, 0, 0, 1, 1, 1]).expand(2, 2, 6)
    text = torch.tensor([True, False, False, True, False, False]).expand(2, 2, 6)
    slots = torch.tensor([0, 2, 3, 4]).expand(2, 2, 4)
    assert torch.equal(with_step_text(slots, steps, text), slots)


def test_the_step_of_which_least_was_chosen_gives_way():
    steps = torch.tensor([0, 0, 0, 1, 1, 1]).expand(1, 1, 6)
    text = torch.tensor([True, False, False, True, False, False]).expand(1, 1, 6)
    slots = torch.tensor([[[1, 2, 5]]])  # both patches of step 0, one of step 1, no text
    assert with_step_text(slots, steps, text).tolist() == [[[0, 1, 2]]]


def test_recent_steps_stay_whole_when_their_grid_is_smaller():
    """Six steps of 16 patches, then three of 4: the policy chose the newest two whole."""
    steps = torch.tensor([n for n in range(9) for _ in range(17 if n < 6 else 5)]).expand(1, 1, 117)
    text = steps.diff(dim=-1, prepend=torch.tensor([[[-1]]])) > 0
    recent = [i for i in range(117) if steps[0, 0, i] >= 7]
    patches = [i for i in range(107) if not text[0, 0, i]][: 70 - len(recent)]
    kept = with_step_text(torch.tensor([[patches + recent]]), steps, text)[0, 0].tolist()
    assert set(recent) <= set(kept)
