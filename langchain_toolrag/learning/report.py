"""How learning went."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from langchain_toolrag.learning.guard import Guarded
from langchain_toolrag.learning.held_out import Chosen, Difference
from langchain_toolrag.learning.options import LearnOptions


@dataclass(frozen=True, slots=True)
class Course:
    """How one training went.

    Attributes:
        losses: The running loss after each step.
        checks: Held-out mean reciprocal rank at scale 1, by step.
        scales: The same at the end, by scale; 0 is the base model.
        scale: The best scale.
    """

    losses: Sequence[float]
    checks: Mapping[int, float]
    scales: Mapping[float, float]
    scale: float

    @property
    def value(self) -> float:
        """Held-out mean reciprocal rank at the best scale."""
        return self.scales[self.scale]


@dataclass(frozen=True, slots=True)
class LearnReport:
    """How learning went. Figures are mean reciprocal ranks of called tools among all, 0 to 1.

    Attributes:
        options: How was trained.
        tools: How many tools there are.
        examples: How many searches were learned from or measured by.
        held_out: How many of them, the newest, were measured by.
        skipped: How many of what in the log were of no use, by what.
        candidate_course: How training on the log went.
        control_course: How the same training went where the called tool was drawn at random from
            those that the search showed.
        popularity_course: The same where it was drawn by how often each of them is called when it
            is shown; None where that is mostly the tool that was called, and tells nothing apart.
        over_base: How much better the candidate is than the base model.
        over_control: How much better it is than the control.
        over_popularity: How much better it is than popularity; None as above.
        guard: What the candidate does to labelled sets; empty if it was refused before.
        refusal: Why there is no candidate; empty if there is one.
    """

    options: LearnOptions
    tools: int
    examples: int
    held_out: int
    skipped: Mapping[str, int]
    candidate_course: Course
    control_course: Course
    popularity_course: Course | None
    over_base: Difference
    over_control: Difference
    over_popularity: Difference | None
    guard: tuple[Guarded, ...] = field(default=())
    refusal: str = ""

    @property
    def base(self) -> float:
        """Held-out mean reciprocal rank of the base model."""
        return self.candidate_course.scales[0.0]

    @property
    def candidate(self) -> float:
        """The same of what was learned, at its best scale."""
        return self.candidate_course.value

    @property
    def control(self) -> float:
        """The same of the control, at its best scale."""
        return self.control_course.value

    @property
    def scale(self) -> float:
        """How much of what was learned is best applied; 0 for nothing."""
        return self.candidate_course.scale

    @property
    def courses(self) -> dict[str, tuple[Course, Difference]]:
        """How each training went, and how much better the candidate is; itself than the base."""
        found = {
            "candidate": (self.candidate_course, self.over_base),
            "control": (self.control_course, self.over_control),
        }
        if self.popularity_course is not None and self.over_popularity is not None:
            found["popularity"] = (self.popularity_course, self.over_popularity)
        return found

    def as_json(self) -> dict[str, Any]:
        """Return the report as JSON values; numbers that are none become null."""
        value = asdict(self)
        for name in ("base", "candidate", "control", "scale"):
            value[name] = getattr(self, name)
        for name in ("candidate_course", "control_course", "popularity_course"):
            if value[name] is not None:
                scales = value[name]["scales"].items()
                value[name]["scales"] = {f"{scale:g}": found for scale, found in scales}
        for name in ("over_base", "over_control", "over_popularity"):
            if value[name] is not None and math.isinf(value[name]["error"]):
                value[name]["error"] = None
        as_json: dict[str, Any] = json.loads(json.dumps(value, allow_nan=False))
        return as_json


def course_of(losses: Sequence[float], checks: Mapping[int, float], chosen: Chosen) -> Course:
    """Return how a training went."""
    return Course(tuple(losses), dict(checks), dict(chosen.scales), chosen.scale)
