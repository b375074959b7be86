"""Tables for the terminal and for Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from infinipot_ros.bench.memory.answers import ALL, Answers
from infinipot_ros.bench.memory.figures import LATER, accuracy, fresh_and_later, leaders
from infinipot_ros.bench.memory.plan import Cap
from infinipot_ros.bench.memory.statistics import Estimate
from infinipot_ros.bench.memory.streams import NOW

_TITLES = {"0": "fresh", LATER: "later"}
_WIDTH = 7
_GUESSING = "(guessing)"


def cap_title(cap: Cap) -> str:
    """Say what a cap is."""
    return (
        f"cap {cap.label}: {cap.max_tokens} tokens, {cap.steps} steps (blocks of {cap.block_steps})"
    )


def terminal_table(answers: Answers, cap: Cap) -> str:
    """Return the accuracies at a cap: a row a policy, fresh and later columns a regime."""
    columns = _columns(answers, cap.label)
    groups = list(dict.fromkeys(regime for regime, _ in columns))
    name_width = max(len(policy) for policy in answers.policies) + 2
    heads = " " * name_width
    for group in groups:
        width = _WIDTH * sum(regime == group for regime, _ in columns)
        heads += group[: width - 1].rjust((width + len(group)) // 2).ljust(width)
    titles = "".join(_TITLES.get(label, label).rjust(_WIDTH) for _, label in columns)
    lines = [cap_title(cap), heads.rstrip(), "policy".ljust(name_width) + titles]
    lines.append("-" * len(lines[-1]))
    for policy in answers.policies:
        cells = [_terminal_cell(answers, policy, cap.label, column) for column in columns]
        lines.append((policy.ljust(name_width) + "".join(cells)).rstrip())
    guesses = [
        "".rjust(_WIDTH) if label == NOW else f"{answers.guessing[regime]:.2f} ".rjust(_WIDTH)
        for regime, label in columns
    ]
    lines.append((_GUESSING.ljust(name_width) + "".join(guesses)).rstrip())
    return "\n".join(lines)


def _columns(answers: Answers, cap: str) -> list[tuple[str, str]]:
    labels = list(fresh_and_later(answers, cap))
    regimes = answers.regimes if len(answers.regimes) == 1 else (*answers.regimes, ALL)
    found = [(regime, label) for regime in regimes for label in labels]
    return [*found, (regimes[-1], NOW)] if NOW in answers.kinds else found


def _terminal_cell(answers: Answers, policy: str, cap: str, column: tuple[str, str]) -> str:
    regime, label = column
    if label == NOW:
        found = accuracy(answers, policy, cap, answers.delays_at(cap), NOW, regime)
        mark = " "
    else:
        span = fresh_and_later(answers, cap)[label]
        found = accuracy(answers, policy, cap, span, ALL, regime)
        mark = "*" if policy in leaders(answers, cap, span, regime) else " "
    return (f"{found[0].value:.2f}{mark}" if found else "- ").rjust(_WIDTH)


def markdown(titles: Sequence[str], rows: Sequence[Sequence[str]], texts: int = 1) -> str:
    """Return a Markdown table; the first `texts` columns are texts, the others figures."""
    lines = [titles, ["---" if n < texts else "---:" for n in range(len(titles))], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def markdown_table(answers: Answers, cap: str, label: str) -> str:
    """Return accuracies with intervals at a cap and span of delays, a column a regime."""
    span = fresh_and_later(answers, cap)[label]
    regimes = answers.regimes if len(answers.regimes) == 1 else (*answers.regimes, ALL)
    leading = {regime: leaders(answers, cap, span, regime) for regime in regimes}
    rows = []
    for policy in answers.policies:
        row = [f"`{policy}`"]
        for regime in regimes:
            found = accuracy(answers, policy, cap, span, ALL, regime)
            text = interval(found[0]) if found else "-"
            row.append(f"**{text}**" if policy in leading[regime] else text)
        found = accuracy(answers, policy, cap, span, NOW, ALL)
        rows.append([*row, f"{found[0].value:.2f}" if found else "-"])
    rows.append([_GUESSING, *(f"{answers.guessing[regime]:.2f}" for regime in regimes), ""])
    return markdown(["policy", *regimes, "now"], rows)


def interval(estimate: Estimate) -> str:
    """Return a share with its interval."""
    return f"{estimate.value:.2f} ({estimate.low:.2f} to {estimate.high:.2f})"


def signed(estimate: Estimate) -> str:
    """Return a difference with its interval."""
    value, low, high = (f"{round(number, 2) + 0.0:+.2f}" for number in estimate)  # no "-0.00"
    return f"{value} ({low} to {high})"


def p_value(p: float) -> str:
    """Return a p value in few characters."""
    return "< 0.0001" if p < 0.0001 else f"{p:.4f}" if p < 0.01 else f"{p:.2f}"
